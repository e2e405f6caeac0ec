// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pullbatch/batcherexporter/bench/internal/input"
	"github.com/pullbatch/batcherexporter/bench/internal/measure"
	"github.com/pullbatch/batcherexporter/bench/internal/report"
	"github.com/pullbatch/batcherexporter/bench/internal/subject"
)

const (
	overflowQueue   = 1000
	overflowWaiters = 10
	overflowFlush   = 200 * time.Millisecond
	// overflowSettle is how long waiters get to arrive in the full queue. It is not
	// part of what is measured.
	overflowSettle = 50 * time.Millisecond
)

// overflowTable is T14: callers that wait for room.
func overflowTable(_ context.Context, s Settings) (report.Section, error) {
	sec := report.Section{Title: "Callers that wait for room", Note: "`block_on_overflow` with room for 1000 items, which a request that is being sent has taken. " +
		"Ten callers wait with 100 items each, which all fit once it is done."}
	makers := []subject.Maker{subject.Helper, subject.Batcher}
	series, err := measure.Run(s.Pairs, names(makers), func(name string) (measure.Result, error) {
		return overflow(byName(makers)[name])
	})
	if err != nil {
		return sec, err
	}
	t := &report.Table{Head: []string{"subject", "ms until all are accepted"}}
	for _, m := range makers {
		t.Add(m.Name, series.Of(m.Name, measure.WallMillis).String())
	}
	sec.Judge("T14", "ms until all are accepted", 50, series.Of(batcher, measure.WallMillis))
	sec.Tables = []*report.Table{t}
	s.Log("overflow: done")
	return sec, nil
}

func overflow(m subject.Maker) (measure.Result, error) {
	ctx := context.Background()
	began, release := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() {
		close(began)
		<-release
	})
	sink := &subject.Sink{Each: func(any) error {
		first()
		return nil
	}}
	sub, err := m.Open(ctx, subject.Setup{
		Signal: input.Logs, Sink: sink, Max: overflowQueue, Flush: overflowFlush,
		QueueSize: overflowQueue, QueueSizer: "items", Block: true,
	})
	if err != nil {
		return measure.Result{}, err
	}
	full := input.Spec{Signal: input.Logs, Items: overflowQueue, Total: overflowQueue, Resources: 1}.Requests()
	if err := sub.Consume(ctx, full[0]); err != nil {
		return measure.Result{}, err
	}
	<-began
	usage, err := waitForRoom(ctx, sub, release)
	return measure.Result{Usage: usage, Items: overflowQueue}, errors.Join(err, sub.Shutdown(ctx))
}

// waitForRoom starts the callers, frees the room they wait for, and measures from
// there until all are accepted.
func waitForRoom(ctx context.Context, sub subject.Subject, release chan struct{}) (measure.Usage, error) {
	size := overflowQueue / overflowWaiters
	requests := input.Spec{Signal: input.Logs, Items: size, Total: overflowQueue, Resources: 1}.Requests()
	errs := make([]error, len(requests))
	var callers sync.WaitGroup
	for i, data := range requests {
		callers.Go(func() { errs[i] = sub.Consume(ctx, data) })
	}
	<-time.After(overflowSettle)
	return measure.Region(func() error {
		close(release)
		callers.Wait()
		return errors.Join(errs...)
	})
}
