// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
)

// stopRounds is how often a test lets a stop meet what else goes on. `make
// stress` repeats the tests.
const stopRounds = 20

// producers send requests of three items until they are refused because of the
// stop.
type producers struct {
	running  sync.WaitGroup
	next     atomic.Int64
	accepted atomic.Int64
	halfway  chan struct{} // closed when about enough is accepted for a stop in the middle
}

func startProducers(r *rig, n int, halfway int64) *producers {
	p := &producers{halfway: make(chan struct{})}
	for range n {
		p.running.Go(func() {
			for {
				if err := r.send(r.kind.simple(3, p.next.Add(3)-3)); err != nil {
					assert.ErrorIs(r.t, err, errStopping)
					assert.False(r.t, consumererror.IsPermanent(err))
					return
				}
				if now := p.accepted.Add(3); now-3 < halfway && halfway <= now {
					close(p.halfway)
				}
			}
		})
	}
	return p
}

// At a stop under load all that was accepted arrives, and from then on a request
// is refused at once, with a retryable error, and never lost with a nil.
func TestFieldCase54_StopDeliversWhatWasAccepted(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		for range stopRounds {
			r := startRig(t, k, &sink{}, "sending_queue: {block_on_overflow: true, queue_size: 50, num_consumers: 3, batch: {min_size: 7, max_size: 7, flush_timeout: 2ms}}")
			p := startProducers(r, 16, 300)
			<-p.halfway
			require.NoError(t, r.stop())
			before := time.Now()
			require.ErrorIs(t, r.send(k.simple(1, 0)), errStopping)
			assert.Zero(t, time.Since(before))
			p.running.Wait()
			require.Len(t, r.ids(), int(p.accepted.Load()))
		}
	})
}

// A hundred producers, ten that flush and a stop meet: no panic, no race, no
// hang, and every item whose producer was told nil arrives once.
func TestFieldCase57_StopMeetsProducersAndFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range stopRounds {
			r := startRig(t, kindLogs, &sink{}, "sending_queue: {block_on_overflow: true, queue_size: 100, batch: {min_size: 20, max_size: 20}}")
			p := startProducers(r, 100, 1500)
			var flushes sync.WaitGroup
			var stopped atomic.Bool
			for range 10 {
				flushes.Go(func() {
					for !stopped.Load() {
						assert.NoError(t, r.exporter.consumer.Flush(t.Context()))
					}
				})
			}
			<-p.halfway
			require.NoError(t, r.stop())
			stopped.Store(true)
			p.running.Wait()
			flushes.Wait()
			seen := map[int64]bool{}
			for _, id := range r.ids() {
				require.False(t, seen[id], "item %d arrived twice", id)
				seen[id] = true
			}
			require.Len(t, seen, int(p.accepted.Load()))
		}
	})
}

// A call that ignores its context does not hold up a stop beyond its deadline, but
// for the grace; what could not be sent is counted and named.
func TestProbe02_StopObeysItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		s := &sink{answer: func(context.Context, *call) error {
			<-hang
			return nil
		}}
		r := startRig(t, kindLogs, s, "sending_queue: {num_consumers: 1, batch: {min_size: 0, max_size: 1}}")
		r.mustSend(kindLogs.simple(3, 0))
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		began := time.Now()
		require.NoError(t, r.stopWithin(ctx))
		assert.LessOrEqual(t, time.Since(began), 200*time.Millisecond+stopGrace)
		assert.Len(t, r.logged.FilterMessageSnippet("calls have not come back").All(), 1)
		assert.EqualValues(t, 3, r.metric("batcher_dropped_items", reasonIs(dropShutdown)))
		close(hang)
		synctest.Wait()
		assert.EqualValues(t, 0, r.metric("sent_log_records"), "a late success is not counted once more")
	})
}
