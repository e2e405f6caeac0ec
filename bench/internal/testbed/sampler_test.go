// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestSamplerReadsThisProcess uses some CPU and compares what the sampler says with
// what the system says.
func TestSamplerReadsThisProcess(t *testing.T) {
	const counterStep = 10 * time.Millisecond
	s, err := Watch(os.Getpid(), 20*time.Millisecond)
	require.NoError(t, err)
	began := ownCPU(t)
	for ownCPU(t)-began < 100*time.Millisecond {
	}
	used := ownCPU(t) - began
	u, err := s.Stop()
	require.NoError(t, err)
	assert.InDelta(t, used, u.CPU, float64(3*counterStep))
	assert.InDelta(t, began, u.CPUBefore, float64(3*counterStep))
	assert.GreaterOrEqual(t, u.CPUMax, 100*float64(u.CPU)/float64(u.Wall))
	assert.Positive(t, u.RSSAvg)
	assert.GreaterOrEqual(t, u.RSSMax, u.RSSAvg)
}

// TestSamplerOfAShortRun reads once all the same.
func TestSamplerOfAShortRun(t *testing.T) {
	s, err := Watch(os.Getpid(), time.Hour)
	require.NoError(t, err)
	u, err := s.Stop()
	require.NoError(t, err)
	assert.Positive(t, u.RSSMax)
	assert.InDelta(t, u.RSSMax, u.RSSAvg, 0)
}

func TestSamplerOfNoProcess(t *testing.T) {
	_, err := Watch(1<<30, time.Hour)
	require.ErrorContains(t, err, "process 1073741824")
}
