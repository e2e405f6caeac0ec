// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"sync"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/pullbatch/batcherexporter/bench/internal/input"
)

// passthrough hands every request to the sink.
type passthrough struct{ sink *Sink }

func openPassthrough(_ context.Context, s Setup) (Subject, error) { return passthrough{s.Sink}, nil }

func (p passthrough) Consume(_ context.Context, data any) error { return p.sink.take(data) }
func (passthrough) Shutdown(context.Context) error              { return nil }

// floor is the least that batching can cost: requests are moved into a batch under
// one mutex, and the caller whose request fills it hands it over. It never cuts,
// has no queue, no bound, no retries and no telemetry.
type floor[T any] struct {
	sink    *Sink
	max     int
	inBytes bool
	empty   func() T
	move    func(from, to T)

	mu    sync.Mutex
	batch T
	held  int
}

func newFloor[T any](s Setup, empty func() T, move func(from, to T)) Subject {
	return &floor[T]{sink: s.Sink, max: s.Max, inBytes: s.InBytes, empty: empty, move: move, batch: empty()}
}

func openFloor(_ context.Context, s Setup) (Subject, error) {
	switch s.Signal {
	case input.Traces:
		return newFloor(s, ptrace.NewTraces, func(from, to ptrace.Traces) { from.ResourceSpans().MoveAndAppendTo(to.ResourceSpans()) }), nil
	case input.Metrics:
		return newFloor(s, pmetric.NewMetrics, func(from, to pmetric.Metrics) { from.ResourceMetrics().MoveAndAppendTo(to.ResourceMetrics()) }), nil
	default:
		return newFloor(s, plog.NewLogs, func(from, to plog.Logs) { from.ResourceLogs().MoveAndAppendTo(to.ResourceLogs()) }), nil
	}
}

func (f *floor[T]) Consume(_ context.Context, data any) error {
	size := 0
	if f.inBytes {
		size = input.Bytes(data)
	} else {
		size = input.Items(data)
	}
	f.mu.Lock()
	f.move(data.(T), f.batch)
	f.held += size
	if f.held < f.max {
		f.mu.Unlock()
		return nil
	}
	full := f.batch
	f.batch, f.held = f.empty(), 0
	f.mu.Unlock()
	return f.sink.take(full)
}

func (f *floor[T]) Shutdown(context.Context) error {
	if f.held == 0 {
		return nil
	}
	return f.sink.take(f.batch)
}
