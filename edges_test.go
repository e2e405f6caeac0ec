// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What happens at the edges of the queue: where a caller leaves at the wrong moment,
// a call hangs, or two things end at once.

// unheard makes batches of n items, for which no caller waits.
func unheard(n int) queueSettings {
	set := wholeBatches(n)
	set.waitForResult = false
	return set
}

// hangs answers when its context ends.
func hangs(ctx context.Context, _ int, _ []int) error {
	<-ctx.Done()
	return ctx.Err()
}

// hangsAfterFirst fails once, and hangs from then on.
func hangsAfterFirst(ctx context.Context, call int, ids []int) error {
	if call == 1 {
		return errAway
	}
	return hangs(ctx, call, ids)
}

// awaits offers one item for a caller who waits until ctx ends.
func awaits(t *testing.T, s *sender[*load], ctx context.Context, id int) <-chan error { //nolint:revive // the test comes first
	t.Helper()
	w, err := s.q.offer(ctx, numbers(id, 1))
	require.NoError(t, err)
	result := make(chan error, 1)
	go func() { result <- s.q.await(ctx, w) }()
	return result
}

// A caller leaves while the stop is between two steps:
//
//	stop:   halt; the call returns, its worker parks the batch for abandon
//	caller: its context ends; the batch is idle, and in no list to take it from
//	stop:   abandon, which gives it up
func TestEdge_CallerLeavesBetweenHaltAndAbandon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakeSender(wholeBatches(1), steadyRetry, &pushes{answer: hangsAfterFirst})
		ctx, cancel := context.WithCancel(t.Context())
		result := awaits(t, s, ctx, 0)
		runFor(5 * time.Second) // in its second attempt
		s.q.halt()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-result, context.Canceled)
		s.stop()
		assert.Equal(t, account{accepted: 1, dropped: 1}, s.q.account())
	})
}

// A caller whose context has ended asks for the outcome after the queue was
// abandoned, whose lists are gone.
func TestEdge_CallerLeavesAfterAbandon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retry := steadyRetry
		retry.InitialInterval = time.Minute
		s := fakeSender(wholeBatches(1), retry, &pushes{answer: func(context.Context, int, []int) error { return errAway }})
		w, err := s.q.offer(t.Context(), numbers(0, 1))
		require.NoError(t, err)
		runFor(5 * time.Second)
		s.stop()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 { // select takes either of two that are ready
			require.Error(t, s.q.await(ctx, w))
		}
		assert.Equal(t, account{accepted: 1, dropped: 1}, s.q.account())
	})
}

// throttlesFirst asks for an hour's delay at the first call, and takes all others.
func throttlesFirst(_ context.Context, call int, _ []int) error {
	if call == 1 {
		return exporterhelper.NewThrottleRetry(errAway, time.Hour)
	}
	return nil
}

// What a batch in backoff holds back leaves when the callers of that batch have gone:
// its end is no worker's, so it has to wake one.
func TestEdge_EndOfABatchInBackoffWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: throttlesFirst}
		s := fakeSender(wholeBatches(1), steadyRetry, p)
		defer s.stop()
		ctx, cancel := context.WithCancel(t.Context())
		gone := awaits(t, s, ctx, 0)
		runFor(time.Second)
		first := awaits(t, s, t.Context(), 1)
		cancel()
		require.Error(t, <-gone)
		runFor(time.Second)
		second := awaits(t, s, t.Context(), 2)
		require.NoError(t, <-first)
		require.NoError(t, <-second)
		assert.Equal(t, []int{1, 2}, p.ids())
	})
}

// The same for one that has become too old.
func TestEdge_ExpiryOfABatchInBackoffWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: throttlesFirst}
		set := unheard(1)
		set.maxAge = 10 * time.Minute
		s := fakeSender(set, steadyRetry, p)
		defer s.stop()
		offer(t, s, 0, 1)
		runFor(9 * time.Minute)
		offer(t, s, 1, 1)
		runFor(20 * time.Minute)
		assert.Equal(t, []int{1}, p.ids())
		assert.Equal(t, account{accepted: 2, sent: 1, dropped: 1}, s.q.account())
	})
}

// What is due, and has no slot because all calls hang, becomes too old like all else.
func TestEdge_MaxAgeOfWhatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := unheard(1)
		set.maxAge = 10 * time.Minute
		s := fakeSender(set, steadyRetry, &pushes{answer: hangs})
		defer s.stop()
		offer(t, s, 0, 1)
		offer(t, s, 1, 1)
		runFor(time.Hour)
		assert.EqualValues(t, 1, s.q.account().dropped)
	})
}

// The oldest makes room only for what then gets in.
func TestEdge_NothingIsEvictedForARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := unheard(10)
		set.capacity, set.dropOldest = 100, true
		s := fakeSender(set, steadyRetry, &pushes{answer: hangs})
		defer s.stop()
		for i := range 10 {
			offer(t, s, 10*i, 10)
		}
		synctest.Wait()
		_, err := s.q.offer(t.Context(), numbers(1000, 95)) // 10 are in flight: 90 is the most there can be
		require.ErrorIs(t, err, exporterhelper.ErrQueueIsFull)
		assert.Zero(t, s.q.account().dropped)
		offer(t, s, 2000, 90)
		assert.EqualValues(t, 90, s.q.account().dropped)
	})
}

// A retry that hangs and another batch that fails hold back nothing that would pass.
func TestEdge_HungRetryAndAFailingBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var once sync.Once
		p := &pushes{}
		p.answer = func(ctx context.Context, call int, ids []int) error {
			switch ids[0] {
			case 0:
				err := error(nil)
				once.Do(func() { err = errAway })
				if err != nil {
					return err
				}
				return hangs(ctx, call, ids)
			case 1:
				return errAway
			}
			return nil
		}
		set := unheard(1)
		set.slots = 2
		s := fakeSender(set, steadyRetry, p)
		defer s.stop()
		offer(t, s, 0, 1)
		offer(t, s, 1, 1)
		synctest.Wait()
		offer(t, s, 2, 1)
		offer(t, s, 3, 1)
		runFor(time.Hour)
		assert.Equal(t, []int{2, 3}, p.ids())
	})
}

// stopAll stops the queue as an exporter does, and waits for what is left.
func (s *sender[T]) stopAll(limit time.Duration) error {
	covered, spent := s.q.stop()
	s.q.giveUpAll(spent, dropShutdown, errStopping)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return covered.wait(ctx)
}

// A batch whose call is under way when the stop begins has its last attempt after
// that: its call began when nobody knew of the stop.
func TestEdge_CallUnderWayWhenTheStopBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(context.Context, int, []int) error {
			time.Sleep(time.Second)
			return errAway
		}}
		retry := steadyRetry
		retry.InitialInterval, retry.MaxInterval = time.Minute, time.Minute
		s := fakeSender(unheard(1), retry, p)
		defer s.stop()
		offer(t, s, 0, 1)
		time.Sleep(500 * time.Millisecond)
		s.q.beginStop(true)
		runFor(2 * time.Second)
		began := time.Now()
		require.NoError(t, s.stopAll(30*time.Second))
		assert.Equal(t, 2, p.calls())
		assert.LessOrEqual(t, time.Since(began), 2*time.Second)
	})
}

// A part that was delivered long before the stop does not tell that the backend is
// there: each batch has its last attempt, and the stop ends.
func TestEdge_PartDeliveredBeforeTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{}
		p.answer = func(_ context.Context, call int, ids []int) error {
			if call == 1 {
				return partialError{left: ids[5:]}
			}
			time.Sleep(time.Duration(ids[0]+1) * 10 * time.Millisecond)
			return errAway
		}
		set := unheard(10)
		set.slots = 2
		retry := steadyRetry
		retry.InitialInterval, retry.MaxInterval = 20*time.Second, 20*time.Second
		s := fakeSender(set, retry, p)
		defer s.stop()
		offer(t, s, 0, 10)
		offer(t, s, 10, 10)
		runFor(15 * time.Second)
		s.q.beginStop(true)
		require.NoError(t, s.stopAll(5*time.Second))
		assert.Equal(t, account{accepted: 20, sent: 5, dropped: 15}, s.q.account())
	})
}

// Shutdown with a context that has ended stops all the same.
func TestEdge_ShutdownWithAnEndedContext(t *testing.T) {
	for range 10 { // select takes either of two that are ready
		synctest.Test(t, func(t *testing.T) {
			r := startRig(t, kindLogs, &sink{}, "drain_timeout: 1s")
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.NoError(t, r.stopWithin(ctx))
			require.ErrorIs(t, r.send(kindLogs.simple(1, 0)), errStopping)
		})
	}
}

// One that asks for all others, has delivered a part and is refused for good passes
// the question on: what is kept leaves as soon as the destination accepts.
func TestEdge_OneThatAsksIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, up := time.Now(), false
		var at []time.Duration
		p := &pushes{}
		p.answer = func(_ context.Context, _ int, ids []int) error {
			switch {
			case up && ids[0] >= 10:
				at = append(at, time.Since(began))
				return nil
			case up:
				return errBad
			case len(ids) == 10 && ids[0] == 0:
				return consumererror.NewPermanent(status.Error(codes.ResourceExhausted, "grpc: received message larger than max (104 vs. 60)"))
			case ids[0] == 0:
				return nil
			}
			return errLogin
		}
		set := unheard(10)
		set.slots = 2
		s := fakeSender(set, configretry.BackOffConfig{Enabled: true, InitialInterval: time.Second, Multiplier: 1, MaxInterval: time.Hour}, p)
		defer s.stop()
		offer(t, s, 0, 10)
		runFor(100 * time.Millisecond)
		offer(t, s, 10, 10)
		runFor(100 * time.Millisecond)
		require.NotNil(t, s.q.only.prober)
		up, began = true, time.Now()
		offer(t, s, 20, 10)
		runFor(50 * time.Minute)
		require.GreaterOrEqual(t, len(at), 2)
		assert.LessOrEqual(t, at[len(at)-1], time.Second)
		assert.Zero(t, s.q.account().pending)
	})
}

// What a stopped queue gave up is free.
func TestEdge_WhatAStopGaveUpIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakeSender(unheard(10), steadyRetry, &pushes{answer: func(context.Context, int, []int) error { return errAway }})
		w := offerWeakly(t, s, 10)
		runFor(1500 * time.Millisecond)
		s.q.abandon()
		s.closeGiven()
		<-s.q.ended
		s.telemetry.close()
		runtime.GC()
		runtime.GC()
		assert.Nil(t, w.Value())
		runtime.KeepAlive(s)
	})
}

// Without a queue, what its only caller leaves is said to be lost for that reason.
func TestEdge_OnlyCallerLeaves(t *testing.T) {
	for name, yaml := range map[string]string{
		"retries": noQueue, "no retries": "sending_queue: {enabled: false}\nretry_on_failure: {enabled: false}",
	} {
		inBubble(t, name, func(t *testing.T) {
			r := startRig(t, kindLogs, &sink{answer: func(ctx context.Context, _ *call) error {
				<-ctx.Done()
				return ctx.Err()
			}}, yaml)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			require.Error(t, r.exporter.consume(ctx, logsOf(4, 0)))
			synctest.Wait()
			assert.EqualValues(t, 4, r.metric("batcher_dropped_items", reasonIs(dropCallersGone)))
		})
	}
}

// Requests whose callers have gone keep no room while the calls hang.
func TestEdge_QueuedRequestsOfCallersThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := wholeBatches(1)
		set.capacity = 5
		s := fakeSender(set, steadyRetry, &pushes{answer: hangs})
		defer s.stop()
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 5 {
			awaits(t, s, ctx, i)
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		assert.EqualValues(t, 1, s.q.account().used, "what is in flight")
	})
}

// A backend that was away when the stop of another batcher began, and is back before
// its own, gets the rest: there is time left for it.
func TestEdge_BackendIsBackBeforeItsOwnStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const yaml = "drain_timeout: 20s\nretry_on_failure: {initial_interval: 1s, max_interval: 1s, randomization_factor: 0, max_elapsed_time: 0}\n" +
			"sending_queue: {num_consumers: 1, batch: {min_size: 1, max_size: 1}}"
		began := time.Now()
		all := newInstances(nil)
		slow := newRig(t, kindLogs, &sink{answer: func(context.Context, *call) error {
			time.Sleep(3 * time.Second)
			return nil
		}}, yaml).in(all)
		back := newRig(t, kindLogs, &sink{answer: func(context.Context, *call) error {
			if time.Since(began) < 2*time.Minute+time.Second {
				return errAway
			}
			time.Sleep(100 * time.Millisecond)
			return nil
		}}, yaml).in(all)
		slow.start()
		back.start()
		for i := range int64(150) {
			back.mustSend(logsOf(1, i))
		}
		time.Sleep(2 * time.Minute)
		for i := range int64(3) {
			slow.mustSend(logsOf(1, i))
		}
		require.NoError(t, slow.stop()) // takes 9 s
		require.NoError(t, back.stop())
		assert.Equal(t, account{accepted: 150, sent: 150}, back.exporter.account())
	})
}

// An odd 413 is forgotten within a few batches, however often they come.
func TestEdge_OneOddRefusalForSize(t *testing.T) {
	for _, every := range []time.Duration{100 * time.Millisecond, time.Second, 2 * time.Minute} {
		for _, at := range []int{1, 20} {
			inBubble(t, fmt.Sprint("call ", at, ", one every ", every), func(t *testing.T) {
				whole, cut := 0, 0
				r := startRig(t, kindLogs, &sink{answer: func(_ context.Context, c *call) error {
					if len(c.ids) < 1000 {
						cut++
						return nil
					}
					if whole++; whole == at {
						return tooLarge["otlp_http"]
					}
					return nil
				}}, "sending_queue: {batch: {min_size: 1000, max_size: 1000}}")
				for i := range int64(50) {
					r.mustSend(logsOf(1000, 1000*i))
					runFor(every)
				}
				assert.LessOrEqual(t, cut, 12)
				assert.Equal(t, account{accepted: 50_000, sent: 50_000}, r.exporter.account())
			})
		}
	}
}
