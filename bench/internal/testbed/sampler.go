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
	read  func() (sample, error)
	every time.Duration
	first sample

	stop    chan struct{}
	stopped chan struct{} // closed when the goroutine has ended, which owns what follows

	last    sample
	cpuMax  float64
	memory  memory
	samples int
	err     error
}

// memory is in bytes, so that it adds up exactly: an average of floats may be a bit
// above the largest of them.
type memory struct{ sum, most uint64 }

// sample is a reading of the counters.
type sample struct {
	at  time.Time
	cpu time.Duration
	rss uint64 // bytes
}

// Watch begins to sample a process.
func Watch(pid int, every time.Duration) (*Sampler, error) {
	p, err := process.NewProcess(int32(pid)) //nolint:gosec // no system has larger ones
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	s, err := newSampler(func() (sample, error) { return read(p) }, every)
	if err != nil {
		return nil, err
	}
	go s.run()
	return s, nil
}

func newSampler(read func() (sample, error), every time.Duration) (*Sampler, error) {
	first, err := read()
	return &Sampler{
		read: read, every: every, first: first, last: first,
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}, err
}

func read(p *process.Process) (sample, error) {
	times, err := p.Times()
	if err != nil {
		return sample{}, fmt.Errorf("CPU of process %d: %w", p.Pid, err)
	}
	at := time.Now()
	memory, err := p.MemoryInfo()
	if err != nil {
		return sample{}, fmt.Errorf("memory of process %d: %w", p.Pid, err)
	}
	cpu := time.Duration((times.User + times.System) * float64(time.Second))
	return sample{at, cpu, memory.RSS}, nil
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
	s.samples++
	s.memory.sum += now.rss
	s.memory.most = max(s.memory.most, now.rss)
	interval := now.at.Sub(s.last.at)
	// What is left after the last tick may be too short for the counters, which
	// step by ten milliseconds.
	if interval >= s.every/2 || s.samples == 1 {
		s.cpuMax = max(s.cpuMax, 100*float64(now.cpu-s.last.cpu)/float64(interval))
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
	return s.usage(), nil
}

// usage is that of the samples so far, of which there is one at least.
func (s *Sampler) usage() Usage {
	return Usage{
		CPU: s.last.cpu - s.first.cpu, Wall: s.last.at.Sub(s.first.at),
		CPUBefore: s.first.cpu,
		CPUMax:    s.cpuMax,
		RSSAvg:    float64(s.memory.sum) / float64(s.samples) / mebibyte,
		RSSMax:    float64(s.memory.most) / mebibyte,
	}
}
