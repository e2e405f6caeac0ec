// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// script returns settings that run a shell script.
func script(text string) Settings {
	return Settings{Name: "script", Command: []string{"/bin/sh", "-c", text}}
}

func start(t *testing.T, set Settings) *Process {
	p, err := Start(t.Context(), set)
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	return p
}

func TestStartWaitsUntilReady(t *testing.T) {
	set := script("echo starting; echo ready now; exec sleep 60")
	set.Ready = "ready now"
	set.LogPath = filepath.Join(t.TempDir(), "log")
	p := start(t, set)
	assert.Equal(t, "starting\nready now", p.Output())
	p.Kill()
	written, err := os.ReadFile(set.LogPath)
	require.NoError(t, err)
	assert.Equal(t, "starting\nready now\n", string(written))
}

func TestStartReportsAChildThatEnds(t *testing.T) {
	set := script("echo no such key; exit 3")
	set.Ready = "ready now"
	_, err := Start(t.Context(), set)
	assert.ErrorContains(t, err, "script ended before it was ready: exit status 3\nno such key")
}

func TestStartKillsAChildThatIsNeverReady(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	set := script("exec sleep 60")
	set.Ready = "ready now"
	_, err := Start(ctx, set)
	assert.ErrorContains(t, err, "script was not ready in time: context deadline exceeded")
}

func TestStopWaitsForTheChild(t *testing.T) {
	set := script("trap 'echo stopped; exit 0' TERM; echo ready now; while :; do sleep 0.01; done")
	set.Ready = "ready now"
	p := start(t, set)
	require.NoError(t, p.Stop(t.Context()))
	assert.Equal(t, "ready now\nstopped", p.Output())
	p.Terminate()
	p.Kill()
}

func TestStopKillsAChildThatDoesNotStop(t *testing.T) {
	set := script("trap '' TERM; echo ready now; while :; do sleep 0.01; done")
	set.Ready = "ready now"
	p := start(t, set)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	assert.ErrorContains(t, p.Stop(ctx), "script did not stop in time and was killed: context deadline exceeded")
	<-p.Ended()
}

func TestWaitReportsTheExitStatus(t *testing.T) {
	set := script("echo out of space; exit 1")
	set.LogPath = filepath.Join(t.TempDir(), "log")
	p := start(t, set)
	assert.EqualError(t, p.Wait(t.Context()), "script: exit status 1 (its output is in "+set.LogPath+")")
	assert.Equal(t, "out of space", p.Output())
}

func TestFreeAddressGivesNoneTwice(t *testing.T) {
	seen := map[string]bool{}
	for range 50 {
		address, err := FreeAddress()
		require.NoError(t, err)
		assert.False(t, seen[address], address)
		seen[address] = true
	}
}
