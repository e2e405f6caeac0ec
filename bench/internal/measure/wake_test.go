// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// The work of a producer for a batch, and that of the worker which it wakes.
const (
	producing = 200 * time.Microsecond
	working   = 20 * time.Microsecond
)

// BenchmarkWake is what it costs beyond their work when one goroutine wakes another,
// whose core has gone to sleep since: the price of a batch that is not sent by its
// producer.
func BenchmarkWake(b *testing.B) {
	if runtime.GOMAXPROCS(0) < 2 {
		b.Skip("one core does not wake another")
	}
	var w waker
	w.cond.L = &w.mu
	var worker sync.WaitGroup
	worker.Go(w.work)
	var signals time.Duration
	before := cpuTime()
	for range b.N {
		busy(producing)
		began := time.Now()
		w.signal(false)
		signals += time.Since(began)
	}
	w.signal(true)
	worker.Wait()
	spent := (cpuTime() - before) / time.Duration(b.N)
	b.ReportMetric(float64((spent - producing - working).Nanoseconds()), "cpu-ns/wake")
	b.ReportMetric(float64(signals.Nanoseconds())/float64(b.N), "signal-ns/wake")
}

// waker wakes a worker as the batcher does.
type waker struct {
	cond sync.Cond

	mu      sync.Mutex
	waiting bool // something is
	ended   bool
}

func (w *waker) signal(end bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting, w.ended = true, end
	w.cond.Signal()
}

func (w *waker) work() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.ended {
		for !w.waiting {
			w.cond.Wait()
		}
		w.waiting = false
		w.mu.Unlock()
		busy(working)
		w.mu.Lock()
	}
}

// busy uses a core for a while.
func busy(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
	}
}
