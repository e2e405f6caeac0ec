// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
)

// Load is a run of requests of random sizes. The same load always has the same
// requests; only how the workers interleave differs.
type Load struct {
	Signal   otlpdata.Signal
	Items    int // in all; 0: until the context ends or a request fails
	MaxItems int // of one request
	Workers  int
	Seed     uint64

	BodyBytes int             // of each log record; 0: short
	Pause     time.Duration   // of a worker after each request
	End       <-chan struct{} // no request begins after it is closed; nil: never
}

// Outcome is what became of the requests of a load.
type Outcome struct {
	Accepted []otlpdata.Range
	Failed   []otlpdata.Range
	Err      error // of the first that failed
}

// identitiesPerWorker is the room for the identities of one worker: more items
// than any worker sends.
const identitiesPerWorker = 1 << 40

// Run sends the load and returns when all of it was answered.
func (l Load) Run(ctx context.Context, c Client) *Outcome {
	outcomes := make([]Outcome, l.Workers)
	var workers sync.WaitGroup
	for n := range l.Workers {
		workers.Go(func() { l.runWorker(ctx, c, n, &outcomes[n]) })
	}
	workers.Wait()
	all := &Outcome{}
	for _, o := range outcomes {
		all.Accepted = append(all.Accepted, o.Accepted...)
		all.Failed = append(all.Failed, o.Failed...)
		if all.Err == nil {
			all.Err = o.Err
		}
	}
	return all
}

func (l Load) runWorker(ctx context.Context, c Client, n int, outcome *Outcome) {
	random := rand.New(rand.NewPCG(l.Seed, uint64(n)))
	next := uint64(n)*identitiesPerWorker + 1
	endless, left := l.Items == 0, l.share(n)
	for endless || left > 0 {
		r := otlpdata.Range{First: next, Items: 1 + random.IntN(l.MaxItems), BodyBytes: l.BodyBytes}
		if !endless {
			r.Items = min(r.Items, left)
		}
		next += uint64(r.Items)
		left -= r.Items
		err := c.Send(ctx, l.Signal, r)
		outcome.add(r, err)
		if endless && err != nil || !l.goesOn(ctx) {
			return
		}
	}
}

// goesOn reports whether another request may begin, after the pause.
func (l Load) goesOn(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-l.End:
		return false
	default:
	}
	if l.Pause == 0 {
		return true
	}
	pause := time.NewTimer(l.Pause)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-l.End:
		return false
	case <-pause.C:
		return true
	}
}

// share returns how many of the items are those of worker n.
func (l Load) share(n int) int {
	share := l.Items / l.Workers
	if n < l.Items%l.Workers {
		share++
	}
	return share
}

func (o *Outcome) add(r otlpdata.Range, err error) {
	if err == nil {
		o.Accepted = append(o.Accepted, r)
		return
	}
	o.Failed = append(o.Failed, r)
	if o.Err == nil {
		o.Err = fmt.Errorf("request of %d items: %w", r.Items, err)
	}
}

// Items returns how many items the server accepted.
func (o *Outcome) Items() int {
	items := 0
	for _, r := range o.Accepted {
		items += r.Items
	}
	return items
}
