// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"fmt"
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

const mebibyte = 1 << 20

// Usage is what a process used between Watch and Stop.
type Usage struct {
	CPU, Wall      time.Duration
	CPUBefore      time.Duration // since it was started
	CPUMax         float64       // the most of one interval, in percent of a core
	RSSAvg, RSSMax float64       // in MiB
}

// Sampler reads what a process uses, at intervals.
type Sampler struct {
	process *process.Process
	every   time.Duration
	first   sample

	stop    chan struct{}
	stopped chan struct{} // closed when the goroutine has ended, which owns what follows

	last  sample
	usage Usage
	rss   []float64
	err   error
}

// sample is a reading of the counters.
type sample struct {
	at  time.Time
	cpu time.Duration
	rss float64 // MiB
}

// Watch begins to sample a process.
func Watch(pid int, every time.Duration) (*Sampler, error) {
	p, err := process.NewProcess(int32(pid)) //nolint:gosec // no system has larger ones
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	s := &Sampler{process: p, every: every, stop: make(chan struct{}), stopped: make(chan struct{})}
	if s.first, err = s.read(); err != nil {
		return nil, err
	}
	s.last = s.first
	go s.run()
	return s, nil
}

func (s *Sampler) read() (sample, error) {
	times, err := s.process.Times()
	if err != nil {
		return sample{}, fmt.Errorf("CPU of process %d: %w", s.process.Pid, err)
	}
	at := time.Now()
	memory, err := s.process.MemoryInfo()
	if err != nil {
		return sample{}, fmt.Errorf("memory of process %d: %w", s.process.Pid, err)
	}
	cpu := time.Duration((times.User + times.System) * float64(time.Second))
	return sample{at, cpu, float64(memory.RSS) / mebibyte}, nil
}

func (s *Sampler) run() {
	defer close(s.stopped)
	ticker := time.NewTicker(s.every)
	defer ticker.Stop()
	for s.err == nil {
		select {
		case <-ticker.C:
			s.add()
		case <-s.stop:
			s.add()
			return
		}
	}
}

func (s *Sampler) add() {
	now, err := s.read()
	if err != nil {
		s.err = err
		return
	}
	s.rss = append(s.rss, now.rss)
	s.usage.RSSMax = max(s.usage.RSSMax, now.rss)
	interval := now.at.Sub(s.last.at)
	// What is left after the last tick may be too short for the counters, which
	// step by ten milliseconds.
	if interval >= s.every/2 || len(s.rss) == 1 {
		s.usage.CPUMax = max(s.usage.CPUMax, 100*float64(now.cpu-s.last.cpu)/float64(interval))
	}
	s.last = now
}

// Stop ends the sampling.
func (s *Sampler) Stop() (Usage, error) {
	close(s.stop)
	<-s.stopped
	if s.err != nil {
		return Usage{}, s.err
	}
	for _, rss := range s.rss {
		s.usage.RSSAvg += rss / float64(len(s.rss))
	}
	s.usage.CPU, s.usage.Wall = s.last.cpu-s.first.cpu, s.last.at.Sub(s.first.at)
	s.usage.CPUBefore = s.first.cpu
	return s.usage, nil
}
