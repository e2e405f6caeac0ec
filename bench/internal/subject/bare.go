// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
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
//
// That of profiles is no lower bound. It merges dictionaries as exporterhelper
// does, with what the library has for that, which looks at the whole dictionary of
// the batch for each request.
type floor[T any] struct {
	sink *Sink
	max  int
	size func(data any) int
	move func(from, to T) error

	mu    sync.Mutex
	batch T // the first request, into which the others are moved
	held  int
}

func newFloor[T any](s Setup, move func(from, to T) error) Subject {
	size := input.Items
	if s.InBytes {
		size = input.Bytes
	}
	return &floor[T]{sink: s.Sink, max: s.Max, size: size, move: move}
}

func openFloor(_ context.Context, s Setup) (Subject, error) {
	switch s.Signal {
	case input.Traces:
		return newFloor(s, func(from, to ptrace.Traces) error {
			from.ResourceSpans().MoveAndAppendTo(to.ResourceSpans())
			return nil
		}), nil
	case input.Metrics:
		return newFloor(s, func(from, to pmetric.Metrics) error {
			from.ResourceMetrics().MoveAndAppendTo(to.ResourceMetrics())
			return nil
		}), nil
	case input.Profiles:
		return newFloor(s, pprofile.Profiles.MergeTo), nil
	default:
		return newFloor(s, func(from, to plog.Logs) error {
			from.ResourceLogs().MoveAndAppendTo(to.ResourceLogs())
			return nil
		}), nil
	}
}

func (f *floor[T]) Consume(_ context.Context, data any) error {
	var err error
	size := f.size(data)
	f.mu.Lock()
	if f.held == 0 {
		f.batch = data.(T)
	} else {
		err = f.move(data.(T), f.batch)
	}
	f.held += size
	if f.held < f.max {
		f.mu.Unlock()
		return err
	}
	full := f.batch
	f.held = 0
	f.mu.Unlock()
	return errors.Join(err, f.sink.take(full))
}

func (f *floor[T]) Shutdown(context.Context) error {
	if f.held == 0 {
		return nil
	}
	return f.sink.take(f.batch)
}
