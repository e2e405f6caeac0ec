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
// what the system says before and after each of its readings.
func TestSamplerReadsThisProcess(t *testing.T) {
	// The sampler adds up two counters, which both step by ten milliseconds.
	const counterSteps = 2 * 10 * time.Millisecond
	var at [4]time.Duration
	at[0] = ownCPU(t)
	s, err := Watch(os.Getpid(), 20*time.Millisecond)
	require.NoError(t, err)
	at[1] = ownCPU(t)
	for ownCPU(t)-at[1] < 100*time.Millisecond {
	}
	at[2] = ownCPU(t)
	u, err := s.Stop()
	require.NoError(t, err)
	at[3] = ownCPU(t)
	assert.GreaterOrEqual(t, u.CPUBefore, at[0]-counterSteps)
	assert.LessOrEqual(t, u.CPUBefore, at[1])
	assert.GreaterOrEqual(t, u.CPU, at[2]-at[1]-counterSteps)
	assert.LessOrEqual(t, u.CPU, at[3]-at[0]+counterSteps)
	assert.Positive(t, u.RSSAvg)
	assert.GreaterOrEqual(t, u.RSSMax, u.RSSAvg)
}

// TestSamplerAddsUp has readings whose averages cannot be written as floats, and a
// last interval that is too short to count for the most.
func TestSamplerAddsUp(t *testing.T) {
	const ms = time.Millisecond
	began := time.Unix(1000, 0)
	readings := []sample{
		{began, 50 * ms, 1},
		{began.Add(20 * ms), 60 * ms, 3},
		{began.Add(40 * ms), 90 * ms, 7 * mebibyte},
		{began.Add(60 * ms), 90 * ms, 3},
		{began.Add(61 * ms), 100 * ms, 1},
	}
	next := 0
	s, err := newSampler(func() (sample, error) {
		next++
		return readings[next-1], nil
	}, 20*ms)
	require.NoError(t, err)
	for next < len(readings) {
		s.add()
	}
	assert.Equal(t, Usage{
		CPU: 50 * ms, Wall: 61 * ms, CPUBefore: 50 * ms,
		CPUMax: 150,
		RSSAvg: (7*mebibyte + 7.0) / 4 / mebibyte, RSSMax: 7,
	}, s.usage())
}

// TestSamplerAverageIsNotAboveTheMost has equal readings of a size that a sum of
// floats rounds up.
func TestSamplerAverageIsNotAboveTheMost(t *testing.T) {
	const rss = 56_901_632 + 1 // about 54 MiB
	for samples := 1; samples < 100; samples++ {
		s, err := newSampler(func() (sample, error) { return sample{rss: rss}, nil }, time.Hour)
		require.NoError(t, err)
		for range samples {
			s.add()
		}
		assert.LessOrEqual(t, s.usage().RSSAvg, s.usage().RSSMax, "of %d", samples)
	}
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
