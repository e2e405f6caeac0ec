// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/pullbatch/batcherexporter/bench/internal/input"
	"github.com/pullbatch/batcherexporter/bench/internal/subject"
)

// Pace is a load that arrives at a steady rate.
type Pace struct {
	Template any // copied for each request, as a receiver makes new data
	Every    time.Duration
	Requests int
	Stamped  bool // measure the latency of each request, which must be of logs
	Refusals bool // requests may be refused
}

// tick is how often the producer looks what is due. A shorter one would measure
// timers.
const tick = 500 * time.Microsecond

// Paced puts a steady load through a subject. The garbage collector runs as it
// does in production.
func Paced(ctx context.Context, m subject.Maker, set subject.Setup, p Pace) (Result, error) {
	var l latencies
	if p.Stamped {
		set.Sink.Each = l.note
	}
	s, err := m.Open(ctx, set)
	if err != nil {
		return Result{}, err
	}
	refused := 0
	Quiet()()
	usage, err := Region(func() error {
		var err error
		if refused, err = p.produce(ctx, s); err != nil {
			return err
		}
		return s.Shutdown(ctx)
	})
	want := (p.Requests - refused) * input.Items(p.Template)
	if err == nil && set.Sink.Items() != want {
		err = fmt.Errorf("%d of %d items arrived", set.Sink.Items(), want)
	}
	r := Result{Usage: usage, Items: set.Sink.Items(), Batches: set.Sink.Batches(), Values: map[string]float64{"refused": float64(refused)}}
	r.P50, r.P99 = l.quantile(0.5), l.quantile(0.99)
	return r, err
}

// produce hands over what is due at each tick, and tells how much was refused.
func (p Pace) produce(ctx context.Context, s subject.Subject) (refused int, err error) {
	ticker := time.NewTicker(max(tick, p.Every))
	defer ticker.Stop()
	began := time.Now()
	for sent := 0; sent < p.Requests; <-ticker.C {
		for due := min(p.Requests, int(time.Since(began)/p.Every)+1); sent < due; sent++ {
			data := input.Clone(p.Template)
			if p.Stamped {
				input.Stamp(data, pcommon.NewTimestampFromTime(time.Now()))
			}
			err := s.Consume(ctx, data)
			switch {
			case err != nil && !p.Refusals:
				return refused, err
			case err != nil:
				refused++
			}
		}
	}
	return refused, nil
}

// latencies are the times from Consume to the sink.
type latencies struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *latencies) note(data any) error {
	now := pcommon.NewTimestampFromTime(time.Now())
	l.mu.Lock()
	defer l.mu.Unlock()
	input.Stamps(data, func(sent pcommon.Timestamp) {
		l.all = append(l.all, time.Duration(now)-time.Duration(sent)) //nolint:gosec // both are of this century
	})
	return nil
}

func (l *latencies) quantile(q float64) float64 { return Quantile(l.all, q) }

// Quantile sorts durations and returns a quantile of them in milliseconds.
func Quantile(all []time.Duration, q float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return float64(all[int(q*float64(len(all)-1))]) / 1e6
}
