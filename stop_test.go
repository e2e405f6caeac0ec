// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/zap"
)

func logsOf(n int, first int64) plog.Logs       { return kindLogs.simple(n, first).(plog.Logs) }
func tracesOf(n int, first int64) ptrace.Traces { return kindTraces.simple(n, first).(ptrace.Traces) }

// losesAtStop stops the exporter, which must give up a number of items: they are
// counted and logged, and no error.
func (r *rig) losesAtStop(ctx context.Context, items int) {
	r.t.Helper()
	require.NoError(r.t, r.stopWithin(ctx))
	require.EqualValues(r.t, items, r.metric("batcher_dropped_items", reasonIs(dropShutdown)))
	lines := r.logged.FilterMessage(dropMessages[dropShutdown]).All()
	require.Len(r.t, lines, 1)
	require.EqualValues(r.t, items, lines[0].ContextMap()["dropped_items"])
}

// startEnds starts a batcher for logs in front of e.
func startEnds(t *testing.T, e *ends, yaml string) *rig {
	t.Helper()
	r := newRig(t, kindLogs, e.sink, yaml)
	require.NoError(t, r.exporter.Start(t.Context(), hostOf(e.logsFactory())))
	r.started = true
	return r
}

// A stop sends what is queued, with retries as configured: the backend comes back
// in time, and nothing is lost.
func TestStop_RetriesAsConfigured(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		began := time.Now()
		s := &sink{answer: func(context.Context, *call) error {
			if time.Since(began) < 5*time.Second {
				return errAway
			}
			return nil
		}}
		r := startRig(t, k, s, patient+"\nretry_on_failure: {initial_interval: 1s, max_interval: 1s, randomization_factor: 0}")
		r.mustSend(k.simple(3, 0))
		require.NoError(t, r.stop())
		assert.Equal(t, 5*time.Second, time.Since(began))
		assert.Equal(t, sequence(0, 3), r.ids())
	})
}

// What the time to drain does not suffice for is counted, and logged once with its
// number: in flight, in backoff, and never sent.
func TestStop_ReportsWhatIsLeft(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := &sink{answer: func(ctx context.Context, c *call) error {
			if c.ids[0] == 0 {
				return errAway
			}
			<-ctx.Done()
			return ctx.Err()
		}}
		r := startRig(t, k, s, "drain_timeout: 3s\nretry_on_failure: {initial_interval: 1h, max_interval: 1h, max_elapsed_time: 0s}\nsending_queue: {num_consumers: 2, batch: {min_size: 10, max_size: 10}}")
		r.mustSend(k.simple(10, 0)) // into backoff
		synctest.Wait()
		r.mustSend(k.simple(35, 10)) // two in flight, the rest waits
		synctest.Wait()
		began := time.Now()
		require.NoError(t, r.stop(), "what is given up is no error of Shutdown")
		assert.Equal(t, 3*time.Second, time.Since(began))
		assert.EqualValues(t, 45, r.metric("batcher_dropped_items", reasonIs(dropShutdown)))
		lines := r.logged.FilterMessage("Dropping data that was not delivered before the stop.").All()
		require.Len(t, lines, 1)
		assert.Equal(t, zap.ErrorLevel, lines[0].Level)
		assert.EqualValues(t, 45, lines[0].ContextMap()["dropped_items"])
		assert.Equal(t, "shutdown", lines[0].ContextMap()["reason"])
		assert.Contains(t, lines[0].ContextMap()["error"], "45 items of "+k.name)
		assert.Contains(t, lines[0].ContextMap()["error"], "`drain_timeout`")
		assert.Zero(t, r.metric("in_flight_requests"), "nothing is under way any more")
		assert.Len(t, r.telemetry.SpanRecorder.Ended(), len(r.telemetry.SpanRecorder.Started()), "every span has ended")
	})
}

// The deadline of the context counts if it is the earlier one.
func TestStop_EndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindLogs, &sink{}, patient)
		r.hold()
		r.mustSend(logsOf(3, 0))
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		began := time.Now()
		r.losesAtStop(ctx, 3)
		assert.Equal(t, 4*time.Second, time.Since(began))
	})
}

// A context that is cancelled, by a second signal to the collector say, ends the
// stop as well, also with a wrapped exporter that does not listen.
func TestStop_EndsWithACancelledContext(t *testing.T) {
	for name, listens := range map[string]bool{"exporter listens": true, "exporter hangs": false} {
		inBubble(t, name, func(t *testing.T) {
			gate := make(chan struct{})
			r := startRig(t, kindLogs, &sink{answer: func(ctx context.Context, _ *call) error {
				if listens {
					<-ctx.Done()
					return ctx.Err()
				}
				<-gate
				return nil
			}}, patient)
			defer synctest.Wait()
			defer close(gate)
			r.mustSend(logsOf(3, 0))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(2*time.Second, cancel)
			began := time.Now()
			r.losesAtStop(ctx, 3)
			assert.LessOrEqual(t, time.Since(began), 2*time.Second+2*stopGrace)
		})
	}
}

// With drain_timeout 0 a stop sends nothing more.
func TestStop_WithoutTimeToDrain(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := startRig(t, k, &sink{}, "drain_timeout: 0s\nsending_queue: {batch: {min_size: 1000, flush_timeout: 24h}}")
		r.hold()
		r.mustSend(k.simple(3, 0))
		began := time.Now()
		r.losesAtStop(context.Background(), 3)
		assert.Zero(t, time.Since(began))
	})
}

// A wrapped exporter that ignores its context does not make Shutdown hang: it
// returns in time, and the log says so. When the call returns nothing is left of it, and
// its outcome changes no number.
func TestStop_HangingConsume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := startRig(t, kindLogs, &sink{answer: func(context.Context, *call) error {
			<-gate
			return nil
		}}, patient)
		r.mustSend(logsOf(3, 0))
		began := time.Now()
		r.losesAtStop(context.Background(), 3)
		assert.LessOrEqual(t, time.Since(began), 20*time.Second+2*stopGraceUnhurried)
		stuck := r.logged.FilterMessageSnippet("calls have not come back").All()
		require.Len(t, stuck, 1)
		assert.Contains(t, stuck[0].ContextMap()["error"], "1 call into the wrapped exporter")
		before := r.exporter.account()
		close(gate)
		synctest.Wait() // a goroutine that is left fails the test
		assert.Equal(t, before, r.exporter.account())
		assert.Zero(t, r.metric("sent_log_records"))
	})
}

// A wrapped exporter whose Shutdown hangs is left behind in time, with a line in the
// log: a collector that reloads its configuration would end at an error.
func TestStop_HangingShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		e := &ends{sink: &sink{}, shutdown: func(context.Context) error {
			<-gate
			return nil
		}}
		r := startEnds(t, e, patient)
		r.mustSend(logsOf(3, 0))
		began := time.Now()
		require.NoError(t, r.stop())
		assert.LessOrEqual(t, time.Since(began), 20*time.Second)
		assert.Len(t, r.logged.FilterMessageSnippet("has not stopped in time").All(), 1)
		assert.Equal(t, []int{3}, r.sizes())
		close(gate)
		synctest.Wait()
	})
}

// The wrapped exporter stops after its last call has returned, once, within a
// deadline, and what it returns is passed on.
func TestStop_WrappedExporterStopsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		sorry := errors.New("flush to disk failed")
		e := &ends{sink: &sink{answer: func(context.Context, *call) error {
			running.Add(1)
			time.Sleep(5 * time.Second)
			running.Add(-1)
			return nil
		}}}
		e.shutdown = func(ctx context.Context) error {
			assert.Zero(t, running.Load())
			_, limited := ctx.Deadline()
			assert.True(t, limited)
			require.NoError(t, ctx.Err())
			return sorry
		}
		r := startEnds(t, e, "sending_queue: {num_consumers: 3, batch: {max_size: 1, min_size: 1}}")
		r.mustSend(logsOf(5, 0))
		require.ErrorIs(t, r.stop(), sorry)
		assert.Len(t, r.ids(), 5)
		assert.Equal(t, 1, e.shutdowns)
	})
}

// A call that was cancelled at the end of the time, and delivers all the same, has
// delivered: its items are not reported as lost.
func TestStop_CancelledCallThatSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindLogs, &sink{answer: func(ctx context.Context, _ *call) error {
			<-ctx.Done()
			return nil
		}}, patient)
		r.mustSend(logsOf(3, 0))
		require.NoError(t, r.stop())
		assert.EqualValues(t, 3, r.metric("sent_log_records"))
	})
}

// What a partial failure has delivered is not lost with the rest.
func TestStop_PartlyDelivered(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := startRig(t, k, &sink{answer: func(_ context.Context, c *call) error {
			return partially(errAway, remainder(c.data, 6))
		}}, patient+"\nretry_on_failure: {initial_interval: 1h, max_interval: 1h, max_elapsed_time: 0s}")
		r.mustSend(k.simple(10, 0))
		r.losesAtStop(context.Background(), 4)
		assert.EqualValues(t, 6, r.metric("sent_"+k.items))
		assert.EqualValues(t, 4, r.metric("batcher_dropped_items", reasonIs(dropShutdown)))
	})
}

// An attempt that was never made is not counted as a failed one.
func TestStop_CountsOnlyCallsThatWereMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindLogs, &sink{answer: func(ctx context.Context, _ *call) error {
			<-ctx.Done()
			return ctx.Err()
		}}, "drain_timeout: 1s\nsending_queue: {num_consumers: 1, batch: {max_size: 1, min_size: 1}}")
		r.mustSend(logsOf(50, 0))
		synctest.Wait()
		r.losesAtStop(context.Background(), 50)
		assert.EqualValues(t, len(r.calls()), r.metric("batcher_failed_attempts"))
	})
}

// Data comes until the last moment from many sides while the stop begins: what was
// accepted is sent or reported, what was not is refused, and the numbers add up.
func TestStop_UnderLoad(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := startRig(t, k, &sink{answer: func(context.Context, *call) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		}}, "drain_timeout: 200ms\nsending_queue: {num_consumers: 2, sizer: items, queue_size: 500, block_on_overflow: true, batch: {max_size: 20, min_size: 20, flush_timeout: 50ms}}")
		var accepted atomic.Int64
		for i := range 20 {
			go func() {
				for j := 0; ; j++ {
					n := 1 + (i+j)%7
					switch err := r.send(k.simple(n, int64(1000*i+j))); {
					case err == nil:
						accepted.Add(int64(n))
					case errors.Is(err, errStopping):
						return
					default:
						assert.NoError(t, err)
						return
					}
					time.Sleep(time.Millisecond)
				}
			}()
		}
		time.Sleep(300 * time.Millisecond)
		require.NoError(t, r.stop())
		synctest.Wait()
		a := r.exporter.account()
		assert.Equal(t, accepted.Load(), a.accepted)
		assert.EqualValues(t, len(r.ids()), a.sent)
		assert.Equal(t, a.dropped, r.metric("batcher_dropped_items", reasonIs(dropShutdown)))
	})
}

// Who waits for room when the stop begins hears of it at once, whether or not
// there is time to drain.
func TestStop_WakesBlockedCallers(t *testing.T) {
	for _, drain := range []string{"20s", "0s"} {
		inBubble(t, "drain_timeout "+drain, func(t *testing.T) {
			r := startRig(t, kindLogs, &sink{}, "drain_timeout: "+drain+"\nsending_queue: {queue_size: 1, block_on_overflow: true}")
			r.hold()
			r.mustSend(logsOf(3, 0))
			synctest.Wait()
			result := make(chan error, 1)
			go func() { result <- r.send(logsOf(3, 3)) }()
			synctest.Wait()
			began, stopped := time.Now(), make(chan struct{})
			go func() {
				assert.NoError(t, r.stop())
				close(stopped)
			}()
			select {
			case err := <-result:
				require.ErrorIs(t, err, errStopping)
				assert.Zero(t, time.Since(began))
			case <-time.After(time.Hour):
				t.Error("a caller waits for room that will never come")
			}
			<-stopped
		})
	}
}

// Who waits for a result when the stop ends hears that it may try again.
func TestStop_CallersHearOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindLogs, &sink{}, "drain_timeout: 1s\nsending_queue: {wait_for_result: true}")
		r.hold()
		result := make(chan error, 1)
		go func() { result <- r.send(logsOf(3, 0)) }()
		synctest.Wait()
		require.NoError(t, r.stop())
		err := <-result
		require.Error(t, err)
		assert.False(t, consumererror.IsPermanent(err))
	})
}
