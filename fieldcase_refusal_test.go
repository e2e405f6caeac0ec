// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/plog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// tooLarge are the shapes in which exporters report that a request is too large.
var tooLarge = map[string]error{
	"typed http":    consumererror.NewOTLPHTTPError(errors.New("payload too large"), 413),
	"otlp_http":     consumererror.NewPermanent(status.Error(codes.Unknown, "request to http://b:4318/v1/logs responded with HTTP Status Code 413")),
	"otlp_http 400": consumererror.NewPermanent(status.Error(codes.InvalidArgument, "request to http://b:4318/v1/logs responded with HTTP Status Code 400, Message=http: request body too large, Details=[]")),
	"otlp_grpc":     consumererror.NewPermanent(status.Error(codes.ResourceExhausted, "grpc: received message larger than max (5242880 vs. 4194304)")),
}

// A batch of eight that the backend takes three of at the most arrives in pieces,
// with retries on and off, in at most 2*8-1 calls.
func TestFieldCase07_TooLargeIsCutUntilItPasses(t *testing.T) {
	for name, refusal := range tooLarge {
		inBubble(t, name, func(t *testing.T) {
			for _, retries := range []bool{false, true} {
				r := startRig(t, kindLogs, &sink{answer: func(_ context.Context, c *call) error {
					if len(c.ids) > 3 {
						return refusal
					}
					return nil
				}}, fmt.Sprintf("retry_on_failure: {enabled: %v}\nsending_queue: {num_consumers: 1, batch: {min_size: 8}}", retries))
				r.mustSend(logsOf(8, 0))
				require.NoError(t, r.stop())
				assert.Equal(t, sequence(0, 8), r.ids(), "in order")
				assert.LessOrEqual(t, len(r.calls()), 15)
				assert.LessOrEqual(t, r.metric("batcher_failed_attempts"), int64(3), "refusals, each of which teaches")
				assert.Positive(t, r.metric("batcher_splits"))
			}
		})
	}
}

// bodies is a request of n log records of that many bytes each.
func bodies(n int, first int64, size int) plog.Logs {
	ld := logsOf(n, first)
	for _, rec := range ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
		rec.Body().SetStr(string(make([]byte, size)))
	}
	return ld
}

// The size that was refused is remembered: of five batches of 400 kB only the first
// meets the limit of 100 kB, and the metric and one log line tell it. An item that
// is too large alone is tried once and teaches nothing.
func TestFieldCase08_RefusedSizeIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 100_000
		var refused atomic.Int64
		r := startRig(t, kindLogs, &sink{answer: func(_ context.Context, c *call) error {
			if c.bytes > limit {
				refused.Add(1)
				return tooLarge["typed http"]
			}
			return nil
		}}, "sending_queue: {num_consumers: 1, batch: {min_size: 400, max_size: 400, flush_timeout: 50ms}}")
		for i := range int64(5) {
			r.mustSend(bodies(400, 400*i, 900))
			runFor(time.Second)
			if i == 0 {
				refused.Store(0)
			}
		}
		assert.Zero(t, refused.Load(), "refused calls of the batches 2 to 5")
		ceiling := r.metric("batcher_size_ceiling")
		assert.Positive(t, ceiling)
		assert.LessOrEqual(t, ceiling, int64(limit))
		r.mustSend(bodies(1, 9999, 150_000))
		runFor(time.Minute)
		assert.EqualValues(t, 1, refused.Load(), "calls with an item that is too large alone")
		assert.Equal(t, ceiling, r.metric("batcher_size_ceiling"))
		assert.EqualValues(t, 1, r.metric("batcher_dropped_items", reasonIs(dropTooLarge)))
		require.NoError(t, r.stop())
		assert.Equal(t, sequence(0, 2000), r.ids())
		assert.Len(t, r.logged.FilterMessageSnippet("max_bytes").All(), 1)
	})
}

// A backend that takes one record at a time gets all eight, in at most 15 calls.
func TestProbe09_BackendThatTakesOneRecordOnly(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := startRig(t, k, &sink{answer: func(_ context.Context, c *call) error {
			if len(c.ids) > 1 {
				return tooLarge["otlp_http"]
			}
			return nil
		}}, "sending_queue: {num_consumers: 1, batch: {min_size: 8}}")
		r.mustSend(k.simple(8, 0))
		require.NoError(t, r.stop())
		assert.Equal(t, sequence(0, 8), r.ids())
		assert.LessOrEqual(t, len(r.calls()), 15)
	})
}

// Ten callers, one bad record: its caller gets a permanent error and nine get
// success, also where their resources are joined.
func TestProbe10_BadRecordCostsItsOwnCaller(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		for _, join := range []bool{true, false} {
			r := startRig(t, k, &sink{answer: func(_ context.Context, c *call) error {
				if slices.Contains(c.ids, 3) {
					return errContent
				}
				return nil
			}}, fmt.Sprintf("refusals: {isolate: always}\nsending_queue: {wait_for_result: true, batch: {min_size: 10, flush_timeout: 1h, merge_resources: %v}}", join))
			var wg sync.WaitGroup
			for i := range int64(10) {
				wg.Go(func() {
					err := r.send(k.simple(1, i))
					if i == 3 {
						assert.True(t, consumererror.IsPermanent(err), "%v", err)
					} else {
						assert.NoError(t, err, i)
					}
				})
			}
			wg.Wait()
			require.NoError(t, r.stop())
			assert.Len(t, r.ids(), 9)
			assert.LessOrEqual(t, len(r.calls()), 19)
			assert.EqualValues(t, 1, r.metric("batcher_dropped_items", reasonIs(dropRefused)))
		}
	})
}

// Half a minute of outage under constant load: producers get retryable errors
// above queue_size, and after it the queue empties by itself, within seconds of
// the next attempt, which is at most three seconds away with these intervals.
func TestFieldCase29_RecoversAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := startRig(t, kindLogs, &sink{answer: func(context.Context, *call) error {
			if time.Since(began) < 30*time.Second {
				return errAway
			}
			return nil
		}}, "retry_on_failure: {initial_interval: 1s, max_interval: 2s, max_elapsed_time: 0s}\nsending_queue: {queue_size: 100, num_consumers: 4, batch: {min_size: 10, max_size: 10, flush_timeout: 20ms}}")
		accepted, refused := int64(0), 0
		for i := range int64(3000) {
			if err := r.send(logsOf(2, 2*i)); err == nil {
				accepted += 2
			} else {
				require.ErrorIs(t, err, exporterhelper.ErrQueueIsFull)
				require.False(t, consumererror.IsPermanent(err))
				refused++
			}
			time.Sleep(10 * time.Millisecond)
		}
		assert.Positive(t, refused)
		runFor(35*time.Second - time.Since(began))
		assert.Zero(t, r.metric("queue_size"))
		assert.Equal(t, accepted, r.metric("sent_log_records"))
		assert.Zero(t, r.metric("batcher_backoff_batches"))
	})
}

// A stop with a deadline of one second returns in 1.2 although the calls hang,
// whether they heed their context or not; the error and the count say what is
// left, and no goroutine is once the calls let go.
func TestFieldCase52_StopObeysItsDeadline(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("deaf %v", deaf), func(t *testing.T) {
			letGo := make(chan struct{})
			var cancelled atomic.Int64
			r := startRig(t, kindLogs, &sink{answer: func(ctx context.Context, _ *call) error {
				if deaf {
					<-letGo
					return nil
				}
				<-ctx.Done()
				cancelled.Add(1)
				return consumererror.NewPermanent(ctx.Err()) // some exporters call it so
			}}, "sending_queue: {num_consumers: 2, batch: {min_size: 1, max_size: 1}}")
			r.mustSend(logsOf(5, 0))
			synctest.Wait()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			began := time.Now()
			require.NoError(t, r.stopWithin(ctx))
			assert.LessOrEqual(t, time.Since(began), 1200*time.Millisecond)
			assert.EqualValues(t, 5, r.metric("batcher_dropped_items", reasonIs(dropShutdown)))
			if deaf {
				assert.Len(t, r.logged.FilterMessageSnippet("calls have not come back").All(), 1)
			} else {
				assert.EqualValues(t, 2, cancelled.Load())
			}
			close(letGo) // the bubble fails if a goroutine stays
		})
	}
}

// 1,000 requests of 100 ms each over ten consumers need ten seconds; a stop of two
// sends about 200 of them and counts and logs the rest. A fast backend gets all.
func TestFieldCase53_DrainTimeoutBoundsTheStop(t *testing.T) {
	for export, sent := range map[time.Duration]int{100 * time.Millisecond: 200, time.Millisecond: 1000} {
		inBubble(t, export.String(), func(t *testing.T) {
			r := startRig(t, kindLogs, &sink{answer: func(context.Context, *call) error {
				time.Sleep(export)
				return nil
			}}, "drain_timeout: 2s\nsending_queue: {num_consumers: 10, batch: {min_size: 1, max_size: 1}}")
			for i := range int64(1000) {
				r.mustSend(logsOf(1, i))
			}
			began := time.Now()
			require.NoError(t, r.stop())
			assert.LessOrEqual(t, time.Since(began), 2300*time.Millisecond)
			assert.InDelta(t, sent, len(r.ids()), 20)
			left := 1000 - len(r.ids())
			if left == 0 {
				return
			}
			lines := r.logged.FilterMessageSnippet("before the stop").All()
			require.Len(t, lines, 1)
			assert.EqualValues(t, left, lines[0].ContextMap()["dropped_items"])
		})
	}
}

// A retryable failure is retried, or returned to the caller, or counted and
// logged: never swallowed.
func TestFieldCase66_FailureIsNeverSwallowed(t *testing.T) {
	for _, retries := range []bool{true, false} {
		for _, waits := range []bool{true, false} {
			inBubble(t, fmt.Sprintf("retries %v, wait_for_result %v", retries, waits), func(t *testing.T) {
				var calls atomic.Int64
				r := startRig(t, kindLogs, &sink{answer: func(context.Context, *call) error {
					if calls.Add(1) == 1 {
						return errAway
					}
					return nil
				}}, fmt.Sprintf("retry_on_failure: {enabled: %v}\nsending_queue: {wait_for_result: %v, batch: {min_size: 0}}", retries, waits))
				err := r.send(logsOf(5, 0))
				require.NoError(t, r.stop())
				switch {
				case retries:
					require.NoError(t, err)
					assert.Equal(t, sequence(0, 5), r.ids())
				case waits:
					require.ErrorIs(t, err, errAway)
					assert.False(t, consumererror.IsPermanent(err))
				default:
					require.NoError(t, err)
				}
				if !retries {
					assert.EqualValues(t, 5, r.metric("batcher_dropped_items", reasonIs(dropRetriesExhausted)))
					lines := r.logged.FilterMessageSnippet("Dropping").All()
					require.Len(t, lines, 1)
					assert.EqualValues(t, 5, lines[0].ContextMap()["dropped_items"])
				}
			})
		}
	}
}

// A refusal for good is one attempt; a retryable error stays one, however often
// it comes.
func TestFieldCase68_ErrorClassIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := consumererror.NewPermanent(status.Error(codes.ResourceExhausted, "quota exceeded"))
		r := startRig(t, kindLogs, &sink{answer: func(context.Context, *call) error { return quota }},
			"sending_queue: {wait_for_result: true, batch: {min_size: 0}}")
		assert.True(t, consumererror.IsPermanent(r.send(logsOf(1, 0))))
		runFor(time.Hour)
		assert.Len(t, r.calls(), 1)

		var calls atomic.Int64
		r = startRig(t, kindLogs, &sink{answer: func(context.Context, *call) error {
			if calls.Add(1) < 4 {
				return status.Error(codes.Unavailable, "away")
			}
			return nil
		}}, "sending_queue: {wait_for_result: true, batch: {min_size: 0}}")
		require.NoError(t, r.send(logsOf(1, 0)))
		assert.Len(t, r.calls(), 4)
	})
}

// The backend's delay of three seconds is kept, and not stretched by much; in an
// outage the attempts have a bound and vary; a stop cuts the wait.
func TestFieldCase69_ThrottleDelayIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := startRig(t, kindLogs, &sink{answer: func(context.Context, *call) error {
			if time.Since(began) < 3*time.Second {
				return exporterhelper.NewThrottleRetry(errAway, 3*time.Second)
			}
			return nil
		}}, "retry_on_failure: {initial_interval: 100ms}\nsending_queue: {batch: {min_size: 0}}")
		r.mustSend(logsOf(1, 0))
		runFor(time.Minute)
		require.Len(t, r.calls(), 2)
		gap := r.calls()[1].began.Sub(r.calls()[0].began)
		assert.GreaterOrEqual(t, gap, 3*time.Second)
		assert.Less(t, gap, 3500*time.Millisecond)

		r = startRig(t, kindLogs, &sink{answer: func(context.Context, *call) error { return errAway }},
			"drain_timeout: 0s\nretry_on_failure: {initial_interval: 1s, max_interval: 1s, max_elapsed_time: 0s}\nsending_queue: {num_consumers: 10, batch: {min_size: 1, max_size: 1}}")
		for i := range int64(1000) {
			r.mustSend(logsOf(1, i))
		}
		runFor(100 * time.Second)
		// Eleven batches wait at the most, each for half a second at the least.
		assert.LessOrEqual(t, len(r.calls()), 11*200+11)
		gaps := map[time.Duration]bool{}
		byID := map[int64]time.Time{}
		for _, c := range r.calls() {
			if last, again := byID[c.ids[0]]; again {
				gaps[c.began.Sub(last)] = true
			}
			byID[c.ids[0]] = c.began
		}
		assert.Greater(t, len(gaps), 50, "jitter")
		began = time.Now()
		r.losesAtStop(context.Background(), 1000)
		assert.Zero(t, time.Since(began))
	})
}

// Three batches of ten: one passes, one at the third try, one is refused for
// good; a request finds the queue full, and one item is too large.
func TestFieldCase98_CountersTellLossFromRetry(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		var second atomic.Int64
		s := &sink{answer: func(_ context.Context, c *call) error {
			switch {
			case c.ids[0] == 10 && second.Add(1) < 3:
				return errAway
			case c.ids[0] == 20:
				return consumererror.NewPermanent(errors.New("refused for good"))
			case c.ids[0] == 30:
				return tooLarge["otlp_grpc"]
			}
			return nil
		}}
		s.hold()
		r := startRig(t, k, s, "sending_queue: {sizer: items, queue_size: 31, num_consumers: 1, batch: {min_size: 10, max_size: 10, flush_timeout: 1h}}")
		for i := range int64(3) {
			r.mustSend(k.simple(10, 10*i))
		}
		r.mustSend(k.simple(1, 30))
		require.ErrorIs(t, r.send(k.simple(10, 40)), exporterhelper.ErrQueueIsFull)
		s.release()
		runFor(time.Minute)
		require.ErrorContains(t, r.exporter.consumer.Flush(t.Context()), "larger than max")
		synctest.Wait()
		for name, want := range map[string]int64{
			"batcher_accepted_items": 31, "queue_size": 0,
			"sent_" + k.items: 20, "send_failed_" + k.items: 11, "enqueue_failed_" + k.items: 10,
			"batcher_dropped_items": 11,
		} {
			assert.Equal(t, want, r.metric(name), name)
		}
		assert.EqualValues(t, 10, r.metric("batcher_dropped_items", reasonIs(dropPermanent)))
		assert.EqualValues(t, 1, r.metric("batcher_dropped_items", reasonIs(dropTooLarge)))
		assert.EqualValues(t, 4, r.metric("batcher_failed_attempts"), "2 of the second batch, 1 of the third, 1 of the item")
	})
}

// A batch of ten from two callers, of which four come back: the second call has
// exactly those, and both callers get success. If the rest fails for good, six
// were sent, and as nobody can tell whose the rest is, both get the error.
func TestFieldCase100_OnlyTheRemainderIsSentAgain(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		for _, final := range []bool{false, true} {
			r := startRig(t, k, &sink{answer: func(_ context.Context, c *call) error {
				switch {
				case len(c.ids) == 10:
					return partially(errAway, remainder(c.data, 6))
				case final:
					return consumererror.NewPermanent(errors.New("no"))
				}
				return nil
			}}, "sending_queue: {wait_for_result: true, num_consumers: 1, batch: {min_size: 10, flush_timeout: 1h}}")
			var wg sync.WaitGroup
			for i := range int64(2) {
				wg.Go(func() {
					assert.Equal(t, final, r.send(k.simple(5, 5*i)) != nil)
				})
			}
			wg.Wait()
			require.NoError(t, r.stop())
			calls := r.calls()
			require.Len(t, calls, 2)
			assert.Len(t, calls[1].ids, 4)
			assert.Subset(t, calls[0].ids, calls[1].ids)
			want := int64(10)
			if final {
				want = 6
			}
			assert.Equal(t, want, r.metric("sent_"+k.items))
		}
	})
}
