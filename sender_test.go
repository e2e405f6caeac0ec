// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/pullbatch/batcherexporter/internal/metadata"
	"github.com/pullbatch/batcherexporter/internal/metadatatest"
)

var (
	errAway = errors.New("backend is away")
	errBad  = consumererror.NewPermanent(errors.New("bad request"))
)

// single sends every request at once, as a batch of its own.
var single = queueSettings{unit: unitItems, slots: 1, batch: batchSettings{unit: unitItems}}

// doubling is a backoff of 1, 2, 4, 4, … seconds.
var doubling = configretry.BackOffConfig{
	Enabled: true, InitialInterval: time.Second, Multiplier: 2, MaxInterval: 4 * time.Second,
}

// watchedSender is a fakeSender whose log, metrics and spans are kept.
type watchedSender struct {
	*sender[*load]
	logs *observer.ObservedLogs
	tt   *componenttest.Telemetry
}

func watch(t *testing.T, set queueSettings, retry configretry.BackOffConfig, p *pushes) watchedSender {
	t.Helper()
	s := fakeSender(set, retry, p)
	s.telemetry.close()
	var tt *componenttest.Telemetry
	s.telemetry, tt = startTelemetry(t, pipeline.SignalLogs, s.q.stats)
	s.tracer = metadata.Tracer(metadatatest.NewSettings(tt).TelemetrySettings)
	core, logs := observer.New(zap.DebugLevel)
	s.logger = zap.New(core)
	s.report.logger = s.logger
	t.Cleanup(s.stop)
	return watchedSender{s, logs, tt}
}

// calls are when the wrapped exporter was called, and with what.
type calls struct {
	began time.Time
	at    []time.Duration
	ids   [][]int
}

func (c *calls) note(ids []int) {
	if c.began.IsZero() {
		c.began = time.Now()
	}
	c.at = append(c.at, time.Since(c.began))
	c.ids = append(c.ids, slices.Clone(ids))
}

func seconds(n ...float64) []time.Duration {
	all := make([]time.Duration, 0, len(n))
	for _, s := range n {
		all = append(all, time.Duration(s*float64(time.Second)))
	}
	return all
}

// runFor lets a time go by and everything settle that is due by then.
func runFor(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// script answers the calls with errs, in order, and with success after that.
func script(c *calls, errs ...error) *pushes {
	return &pushes{answer: func(_ context.Context, call int, ids []int) error {
		c.note(ids)
		if call <= len(errs) {
			return errs[call-1]
		}
		return nil
	}}
}

func TestSender_BackoffGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c calls
		s := watch(t, single, doubling, script(&c, errAway, errAway, errAway, errAway))
		offer(t, s.sender, 0, 3)
		runFor(time.Minute)
		assert.Equal(t, seconds(0, 1, 3, 7, 11), c.at)
		for _, ids := range c.ids {
			assert.Equal(t, []int{0, 1, 2}, ids)
		}
		metadatatest.AssertEqualExporterSentLogRecords(t, s.tt, points(point(3)), noTimestamp)
		metadatatest.AssertEqualExporterBatcherFailedAttempts(t, s.tt,
			points(point(4, attrLogs, attribute.String("class", "retryable"))), noTimestamp)
	})
}

// With jitter no interval is outside of what the factor allows.
func TestSender_BackoffJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c calls
		retry := doubling
		retry.Multiplier, retry.RandomizationFactor = 1, 0.5
		s := watch(t, single, retry, script(&c, slices.Repeat([]error{errAway}, 200)...))
		offer(t, s.sender, 0, 1)
		runFor(time.Hour)
		require.Len(t, c.at, 201)
		distinct := map[time.Duration]bool{}
		for i := range 200 {
			d := c.at[i+1] - c.at[i]
			distinct[d] = true
			assert.GreaterOrEqual(t, d, 500*time.Millisecond)
			assert.LessOrEqual(t, d, 1500*time.Millisecond+1)
		}
		assert.Greater(t, len(distinct), 100)
	})
}

// The backend's own delay is honoured where it is longer than the backoff, also
// behind wrapping and joining, and does not shorten it.
func TestSender_ThrottleDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c calls
		s := watch(t, single, doubling, script(&c,
			exporterhelper.NewThrottleRetry(errAway, 30*time.Second),
			exporterhelper.NewThrottleRetry(errAway, 10*time.Millisecond), // the backoff is 2 s by now
			fmt.Errorf("sending: %w", errors.Join(errAway, exporterhelper.NewThrottleRetry(errAway, 20*time.Second))),
		))
		offer(t, s.sender, 0, 1)
		runFor(time.Hour)
		assert.Equal(t, seconds(0, 30, 32, 52), c.at)
		metadatatest.AssertEqualExporterBatcherFailedAttempts(t, s.tt,
			points(point(3, attrLogs, attribute.String("class", "throttled"))), noTimestamp)
	})
}

// dropped checks that a batch was given up: once in the log, with its reason and
// number, and in the metrics.
func (s watchedSender) dropped(t *testing.T, reason dropReason, items int, text string) {
	t.Helper()
	lines := s.logs.FilterMessage(dropMessages[reason]).All()
	if assert.Len(t, lines, 1) {
		assert.Equal(t, zap.ErrorLevel, lines[0].Level)
		fields := lines[0].ContextMap()
		assert.EqualValues(t, items, fields["dropped_items"])
		assert.Equal(t, string(reason), fields["reason"])
		assert.Contains(t, fields["error"], text)
	}
	metadatatest.AssertEqualExporterBatcherDroppedItems(t, s.tt, droppedPoints(map[dropReason]int64{reason: int64(items)}), noTimestamp)
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	assert.EqualValues(t, items, s.q.mu.dropped)
	assert.Zero(t, s.q.mu.pending)
	assert.Zero(t, s.q.mu.used)
}

// No attempt is begun after max_elapsed_time, counted from the first.
func TestSender_MaxElapsedTime(t *testing.T) {
	for elapsed, want := range map[time.Duration][]time.Duration{
		10 * time.Second: seconds(0, 1, 3, 7),
		11 * time.Second: seconds(0, 1, 3, 7, 11),
		0:                seconds(0, 1, 3, 7, 11, 15, 19),
	} {
		synctest.Test(t, func(t *testing.T) {
			var c calls
			retry := doubling
			retry.MaxElapsedTime = elapsed
			s := watch(t, single, retry, script(&c, slices.Repeat([]error{errAway}, 6)...))
			offer(t, s.sender, 0, 5)
			runFor(time.Minute)
			assert.Equal(t, want, c.at)
			if elapsed > 0 {
				s.dropped(t, dropRetriesExhausted, 5, "no more retries left: backend is away")
			}
		})
	}
}

// A delay that the backend asks for beyond max_elapsed_time ends the retries at
// once: there is no point in waiting.
func TestSender_ThrottleBeyondMaxElapsedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c calls
		retry := doubling
		retry.MaxElapsedTime = 10 * time.Second
		s := watch(t, single, retry, script(&c, exporterhelper.NewThrottleRetry(errAway, time.Minute)))
		offer(t, s.sender, 0, 2)
		synctest.Wait()
		assert.Len(t, c.at, 1)
		s.dropped(t, dropRetriesExhausted, 2, "no more retries left")
	})
}

func TestSender_RetriesOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c calls
		s := watch(t, single, configretry.BackOffConfig{}, script(&c, errAway))
		offer(t, s.sender, 0, 7)
		runFor(time.Hour)
		assert.Len(t, c.at, 1)
		s.dropped(t, dropRetriesExhausted, 7, "backend is away")
	})
}

func TestSender_Permanent(t *testing.T) {
	for name, err := range map[string]error{"permanent": errBad, "wrapped": fmt.Errorf("sending: %w", errBad)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c calls
				s := watch(t, single, doubling, script(&c, errAway, err))
				offer(t, s.sender, 0, 4)
				runFor(time.Hour)
				assert.Equal(t, seconds(0, 1), c.at)
				s.dropped(t, dropPermanent, 4, "not retryable error: ")
				assert.Len(t, s.logs.FilterMessage("Exporting failed. Will retry the batch after interval.").All(), 1)
			})
		})
	}
}

// The first retry is logged with its interval and the items that it is about, at a
// level below warning: nothing is lost yet. The next ones are for debugging, since
// a line sums them up later: here the one that it is over.
func TestSender_LogsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c calls
		s := watch(t, single, doubling, script(&c, errAway, partialError{[]int{1}}))
		offer(t, s.sender, 0, 4)
		runFor(time.Hour)
		lines := s.logs.All()
		require.Len(t, lines, 3)
		assert.Equal(t, "The backend takes data again.", lines[2].Message)
		for i, want := range []struct {
			level    zapcore.Level
			interval string
			items    int
			cause    string
		}{{zap.InfoLevel, "1s", 4, "backend is away"}, {zap.DebugLevel, "2s", 1, "partial failure"}} {
			fields := lines[i].ContextMap()
			assert.Equal(t, want.level, lines[i].Level)
			assert.Equal(t, want.interval, fields["interval"])
			assert.EqualValues(t, want.items, fields["items"])
			assert.Equal(t, want.cause, fields["error"])
		}
	})
}

// Every attempt has the whole timeout, and a deadline only if there is one.
func TestSender_TimeoutIsPerAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left []time.Duration
		p := &pushes{}
		p.answer = func(ctx context.Context, call int, _ []int) error {
			d, ok := ctx.Deadline()
			require.True(t, ok)
			left = append(left, time.Until(d))
			if call < 4 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		s := watch(t, single, doubling, p)
		s.set.timeout = 5 * time.Second
		offer(t, s.sender, 0, 1)
		began := time.Now()
		require.NoError(t, s.q.flush(t.Context()))
		assert.Equal(t, seconds(5, 5, 5, 5), left)
		assert.Equal(t, 5*time.Second+1*time.Second+5*time.Second+2*time.Second+5*time.Second+4*time.Second, time.Since(began))
		metadatatest.AssertEqualExporterBatcherFailedAttempts(t, s.tt,
			points(point(3, attrLogs, attribute.String("class", "unknown"))), noTimestamp)
	})
}

func TestSender_NoTimeoutNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		has := true
		p := &pushes{answer: func(ctx context.Context, _ int, _ []int) error {
			_, has = ctx.Deadline()
			return nil
		}}
		s := watch(t, single, doubling, p)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.q.offer(ctx, numbers(0, 1))
		require.NoError(t, err)
		synctest.Wait()
		assert.False(t, has, "the deadline of a caller must not end the sending of accepted data")
	})
}

// What a wrapped exporter calls permanent after its attempt was cancelled or
// timed out by us says nothing about the data.
func TestSender_OwnCancellationIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(ctx context.Context, call int, _ []int) error {
			if call <= 2 {
				<-ctx.Done()
				return consumererror.NewPermanent(ctx.Err())
			}
			return nil
		}}
		s := watch(t, single, doubling, p)
		s.set.timeout = time.Second
		offer(t, s.sender, 0, 3)
		runFor(time.Minute)
		assert.Equal(t, 3, p.calls())
		assert.Equal(t, []int{0, 1, 2}, p.ids())
		metadatatest.AssertEqualExporterBatcherFailedAttempts(t, s.tt,
			points(point(2, attrLogs, attribute.String("class", "unknown"))), noTimestamp)
		metadatatest.AssertEqualExporterBatcherDroppedItems(t, s.tt, droppedPoints(nil), noTimestamp)
	})
}

// A batch of 10 of two callers, of which 4 items are left and then taken: both
// callers hear nothing of it.
func TestSender_PartialFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c calls
		set := hundreds
		set.waitForResult, set.batch.minSize, set.batch.maxItems = true, 10, 10
		s := watch(t, set, doubling, script(&c, fmt.Errorf("sending: %w", partialError{[]int{3, 5, 7, 8}})))
		results := make(chan error, 2)
		for i := range 2 {
			go func() { results <- s.consume(t.Context(), numbers(5*i, 5)) }()
			synctest.Wait()
		}
		runFor(time.Second)
		assert.Equal(t, [][]int{numbers(0, 10).ids, {3, 5, 7, 8}}, c.ids)
		for range 2 {
			require.NoError(t, <-results)
		}
		metadatatest.AssertEqualExporterSentLogRecords(t, s.tt, points(point(10)), noTimestamp)
	})
}

// The rest of a partial failure fails for good: only the rest is lost, and since
// nobody knows whose it is, both callers hear of it.
func TestSender_RemainderFailsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c calls
		set := hundreds
		set.waitForResult, set.batch.minSize, set.batch.maxItems = true, 10, 10
		s := watch(t, set, doubling, script(&c, partialError{[]int{3, 5, 7, 8}}, partialError{[]int{7, 8}}, errBad))
		results := make(chan error, 2)
		for i := range 2 {
			go func() { results <- s.consume(t.Context(), numbers(5*i, 5)) }()
			synctest.Wait()
		}
		runFor(time.Minute)
		assert.Equal(t, [][]int{numbers(0, 10).ids, {3, 5, 7, 8}, {7, 8}}, c.ids)
		for range 2 {
			err := <-results
			require.ErrorIs(t, err, errBad)
			assert.True(t, consumererror.IsPermanent(err))
		}
		metadatatest.AssertEqualExporterSentLogRecords(t, s.tt, points(point(8)), noTimestamp)
		s.dropped(t, dropPermanent, 2, "not retryable error: ")
	})
}

// A remainder that is no part of the batch is not believed: all of it is sent
// again rather than less.
func TestSender_ImplausibleRemainder(t *testing.T) {
	for name, left := range map[string][]int{"nothing": {}, "more than there was": numbers(0, 4).ids} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c calls
				s := watch(t, single, doubling, script(&c, partialError{left}))
				offer(t, s.sender, 0, 3)
				runFor(time.Minute)
				assert.Equal(t, [][]int{{0, 1, 2}, {0, 1, 2}}, c.ids)
				metadatatest.AssertEqualExporterSentLogRecords(t, s.tt, points(point(3)), noTimestamp)
			})
		})
	}
}

// consume is what an exporter does with a request.
func (s watchedSender) consume(ctx context.Context, l *load) error {
	w, err := s.q.offer(ctx, l)
	if w != nil {
		err = s.q.await(ctx, w)
	}
	return err
}

// A wrapped exporter that changes what it gets is given copies, so that a retry
// sends what was accepted.
func TestSender_MutatingExporterGetsCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c calls
		p := &pushes{}
		s := watch(t, single, doubling, p)
		s.set.mutates = true
		s.set.push = func(_ context.Context, l *load) error {
			c.note(l.ids)
			clear(l.ids)
			if len(c.at) < 3 {
				return errAway
			}
			return nil
		}
		offer(t, s.sender, 5, 3)
		runFor(time.Minute)
		assert.Equal(t, [][]int{{5, 6, 7}, {5, 6, 7}, {5, 6, 7}}, c.ids)
	})
}

// Copies are made only where they are needed: not for an attempt that cannot be
// repeated, unless its data is others' as well.
func TestSender_CopiesOnlyWhatMayBeNeededAgain(t *testing.T) {
	for _, tc := range []struct {
		mutates, retries, readOnly, borrowed, copied bool
		items                                        int
	}{
		{mutates: false, retries: true, readOnly: true, items: 2, copied: false},
		{mutates: true, retries: true, readOnly: false, items: 1, copied: true},
		{mutates: true, retries: false, readOnly: false, items: 2, copied: true}, // it may have to be halved
		{mutates: true, retries: false, readOnly: true, items: 1, copied: true},
		{mutates: true, retries: false, borrowed: true, items: 1, copied: true},
		{mutates: true, retries: false, readOnly: false, items: 1, copied: false},
	} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				retry := doubling
				retry.Enabled = tc.retries
				s := watch(t, single, retry, &pushes{})
				s.set.mutates, s.set.borrowed = tc.mutates, tc.borrowed
				var got *load
				s.set.push = func(_ context.Context, l *load) error {
					got = l
					return nil
				}
				data := numbers(0, tc.items)
				data.readOnly = tc.readOnly
				_, err := s.q.offer(t.Context(), data)
				require.NoError(t, err)
				synctest.Wait()
				assert.Equal(t, tc.copied, got != data)
			})
		})
	}
}

// spanContext is one that a request may come with.
func spanContext(n byte) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{n}, SpanID: trace.SpanID{n}, TraceFlags: trace.FlagsSampled})
}

// A batch of one request carries the values of its context, and its span is a
// child of the request's; so do the pieces of a request that was cut.
func TestSender_ContextOfOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tenants []string
		p := &pushes{answer: func(ctx context.Context, _ int, _ []int) error {
			tenants = append(tenants, client.FromContext(ctx).Metadata.Get("tenant")...)
			return nil
		}}
		set := single
		set.batch.maxItems = 2
		s := watch(t, set, doubling, p)
		ctx := client.NewContext(t.Context(), client.Info{Metadata: client.NewMetadata(map[string][]string{"tenant": {"acme"}})})
		ctx = trace.ContextWithSpanContext(ctx, spanContext(1))
		_, err := s.q.offer(ctx, numbers(0, 5))
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, []int{2, 2, 1}, p.sizes())
		assert.Equal(t, []string{"acme", "acme", "acme"}, tenants)
		spans := s.tt.SpanRecorder.Ended()
		require.Len(t, spans, 3)
		for _, span := range spans {
			assert.Equal(t, spanContext(1).SpanID(), span.Parent().SpanID())
			assert.Equal(t, spanContext(1).TraceID(), span.SpanContext().TraceID())
			assert.Empty(t, span.Links())
		}
	})
}

// A batch of several requests has a span of its own with a link to each of
// theirs, and the values of none.
func TestSender_ContextOfMergedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tenants []string
		p := &pushes{answer: func(ctx context.Context, _ int, _ []int) error {
			tenants = append(tenants, client.FromContext(ctx).Metadata.Get("tenant")...)
			return nil
		}}
		set := hundreds
		set.batch.minSize, set.batch.maxItems = 4, 4
		s := watch(t, set, doubling, p)
		for i := range byte(3) {
			ctx := client.NewContext(t.Context(), client.Info{Metadata: client.NewMetadata(map[string][]string{"tenant": {"acme"}})})
			_, err := s.q.offer(trace.ContextWithSpanContext(ctx, spanContext(i+1)), numbers(int(i), 1))
			require.NoError(t, err)
		}
		offer(t, s.sender, 3, 1) // without a span
		synctest.Wait()
		assert.Equal(t, []int{4}, p.sizes())
		assert.Empty(t, tenants)
		spans := s.tt.SpanRecorder.Ended()
		require.Len(t, spans, 1)
		assert.False(t, spans[0].Parent().IsValid())
		var linked []trace.SpanContext
		for _, l := range spans[0].Links() {
			linked = append(linked, l.SpanContext)
		}
		assert.Equal(t, []trace.SpanContext{spanContext(1), spanContext(2), spanContext(3)}, linked)
	})
}

// The end of a caller's context ends nothing of what was accepted.
func TestSender_CallersContextEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(ctx context.Context, call int, _ []int) error {
			if call == 1 {
				return errAway
			}
			return ctx.Err()
		}}
		s := watch(t, single, doubling, p)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := s.q.offer(ctx, numbers(0, 1))
		require.NoError(t, err)
		cancel()
		runFor(time.Minute)
		assert.Equal(t, []int{0}, p.ids())
	})
}

// An item above the byte bound goes out alone or is dropped, as the user says;
// either way it is logged once a minute with its size and the limit.
func TestSender_OversizedItem(t *testing.T) {
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprintf("drop=%v", drop), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pushes{}
				set := queueSettings{unit: unitItems, slots: 1, batch: batchSettings{unit: unitItems, maxBytes: headerBytes + itemBytes - 1}}
				s := watch(t, set, doubling, p)
				s.set.dropOversized = drop
				for i := range 3 {
					offer(t, s.sender, i, 1)
					synctest.Wait()
				}
				runFor(time.Minute)
				offer(t, s.sender, 3, 1)
				synctest.Wait()
				lines := s.logs.FilterMessage("An item is larger than a batch may be.").All()
				require.Len(t, lines, 2)
				assert.EqualValues(t, headerBytes+itemBytes, lines[0].ContextMap()["item_bytes"])
				assert.EqualValues(t, headerBytes+itemBytes-1, lines[0].ContextMap()["limit_bytes"])
				assert.EqualValues(t, 2, lines[1].ContextMap()["not_logged_since"])
				if drop {
					assert.Empty(t, p.ids())
					metadatatest.AssertEqualExporterBatcherDroppedItems(t, s.tt,
						droppedPoints(map[dropReason]int64{dropTooLarge: 4}), noTimestamp)
				} else {
					assert.Equal(t, []int{0, 1, 2, 3}, p.ids())
				}
			})
		})
	}
}
