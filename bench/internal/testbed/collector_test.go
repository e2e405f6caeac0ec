// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ready is what the scripts print that stand in for a collector.
const ready = `echo 'Starting GRPC server	{"otelcol.component.id": "otlp", "endpoint": "127.0.0.1:4242"}' >&2
echo 'Everything is ready. Begin running.' >&2
`

// script writes an executable that stands in for a collector.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "collector")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700)) //nolint:gosec // it is to be run
	return path
}

func start(t *testing.T, text string) *Collector {
	t.Helper()
	c, err := StartCollector(t.Context(), script(t, text), "")
	require.NoError(t, err)
	t.Cleanup(c.Kill)
	return c
}

// gone reports whether there is no such process.
func gone(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH }

func TestCollectorGetsItsConfiguration(t *testing.T) {
	_, err := StartCollector(t.Context(), script(t, `echo "$1 $TESTBED_CONFIG" >&2; exit 3`), "receivers: {}")
	require.EqualError(t, err, "the collector ended before it was ready: exit status 3\n--config=env:TESTBED_CONFIG receivers: {}")
}

func TestCollectorThatCannotStart(t *testing.T) {
	_, err := StartCollector(t.Context(), filepath.Join(t.TempDir(), "none"), "")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestCollectorThatIsNeverReady(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := StartCollector(ctx, script(t, "echo no disk >&2; exec sleep 60"), "")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestCollectorStops(t *testing.T) {
	c := start(t, "trap 'exit 0' TERM\n"+ready+"while :; do sleep 0.01; done")
	address, err := c.Address()
	require.NoError(t, err)
	assert.Equal(t, "127.0.0.1:4242", address)
	require.NoError(t, c.Stop(t.Context()))
	assert.True(t, gone(c.PID()))
}

func TestCollectorThatFailsToStop(t *testing.T) {
	c := start(t, "trap 'echo lost data >&2; exit 1' TERM\n"+ready+"while :; do sleep 0.01; done")
	err := c.Stop(t.Context())
	require.ErrorContains(t, err, "exit status 1")
	require.ErrorContains(t, err, "lost data")
}

func TestCollectorThatDoesNotStopIsKilled(t *testing.T) {
	c := start(t, "trap '' TERM\n"+ready+"while :; do sleep 0.01; done")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, c.Stop(ctx), "did not stop in time and was killed")
	assert.True(t, gone(c.PID()))
}

func TestCollectorEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, err := StartCollector(ctx, script(t, ready+"exec sleep 60"), "")
	require.NoError(t, err)
	cancel()
	<-c.ended
	assert.True(t, gone(c.PID()))
}
