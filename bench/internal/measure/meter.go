// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package measure runs subjects in turn and says how sure their figures are.
package measure

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"time"
)

// Usage is what a region of a run took.
type Usage struct {
	CPU, Wall, MutexWait time.Duration
	Allocations, Bytes   uint64
}

// meter measures a region of the process. Only one may run at a time.
type meter struct {
	began     time.Time
	cpu       time.Duration
	mutexWait time.Duration
	heap      runtime.MemStats
}

// start begins a region. What is slow to read is read first.
func start() *meter {
	m := &meter{mutexWait: mutexWait()}
	runtime.ReadMemStats(&m.heap)
	m.cpu = cpuTime()
	m.began = time.Now()
	return m
}

func (m *meter) stop() Usage {
	u := Usage{Wall: time.Since(m.began), CPU: cpuTime() - m.cpu}
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	u.MutexWait = mutexWait() - m.mutexWait
	u.Allocations = heap.Mallocs - m.heap.Mallocs
	u.Bytes = heap.TotalAlloc - m.heap.TotalAlloc
	return u
}

// cpuTime is what the process has used so far, in user and system mode.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// mutexWait is how long goroutines have waited for mutexes so far.
func mutexWait() time.Duration {
	s := []metrics.Sample{{Name: "/sync/mutex/wait/total:seconds"}}
	metrics.Read(s)
	return time.Duration(s[0].Value.Float64() * float64(time.Second))
}

// Quiet collects garbage and keeps the collector away until the returned function
// is called: its work would be charged to whoever happens to run.
func Quiet() (restore func()) {
	runtime.GC()
	before := debug.SetGCPercent(-1)
	return func() { debug.SetGCPercent(before) }
}

// Region measures f.
func Region(f func() error) (Usage, error) {
	m := start()
	err := f()
	return m.stop(), err
}
