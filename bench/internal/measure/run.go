// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/pullbatch/batcherexporter/bench/internal/subject"
)

// Load is what one run puts through a subject.
type Load struct {
	Requests  func() []any // makes new ones: a run changes them
	Items     int          // in all of them
	Producers int
	Profile   func() (stop func()) // around the region; nil: none
}

// Through puts a load through a subject as fast as it takes it. The region lasts
// from the first request until the subject is shut down, when everything has
// reached the sink; a run of which not every item did is an error. The requests are
// made while the garbage collector is kept away, which has collected those of the
// run before: so there is one load in memory at a time, and little to look through.
func Through(ctx context.Context, m subject.Maker, set subject.Setup, load Load) (Result, error) {
	s, err := m.Open(ctx, set)
	if err != nil {
		return Result{}, err
	}
	defer Quiet()()
	requests := load.Requests()
	if load.Profile != nil {
		defer load.Profile()()
	}
	usage, err := Region(func() error {
		return errors.Join(produce(ctx, s, load.Producers, requests), s.Shutdown(ctx))
	})
	if err == nil && set.Sink.Items() != load.Items {
		err = fmt.Errorf("%d of %d items arrived", set.Sink.Items(), load.Items)
	}
	return Result{Usage: usage, Items: load.Items, Batches: set.Sink.Batches()}, err
}

// produce hands over all requests, each producer an equal part of them.
func produce(ctx context.Context, s subject.Subject, producers int, requests []any) error {
	if producers <= 1 {
		return each(ctx, s, requests)
	}
	errs := make([]error, producers)
	var wg sync.WaitGroup
	for i := range producers {
		from := i * len(requests) / producers
		to := (i + 1) * len(requests) / producers
		wg.Go(func() { errs[i] = each(ctx, s, requests[from:to]) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func each(ctx context.Context, s subject.Subject, requests []any) error {
	for _, data := range requests {
		if err := s.Consume(ctx, data); err != nil {
			return err
		}
	}
	return nil
}
