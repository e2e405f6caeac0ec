// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pullbatch/batcherexporter/internal/payload/payloadtest"
)

// Without a queue, without batches, with callers that wait, and in front of an
// exporter that changes its data.

const (
	noQueue = "sending_queue: {enabled: false}\nretry_on_failure: {initial_interval: 1s, max_interval: 1s, randomization_factor: 0}"
	noBatch = "sending_queue: {batch: {enabled: false}}\nretry_on_failure: {initial_interval: 1s, max_interval: 1s, randomization_factor: 0}"
	waiting = "sending_queue: {wait_for_result: true, batch: {min_size: 10, max_size: 10, flush_timeout: 1h}}\nretry_on_failure: {initial_interval: 1s, max_interval: 1s, randomization_factor: 0}"
)

// awayFor is a backend that is away for the first n calls.
func awayFor(n int64) func(context.Context, *call) error {
	var left atomic.Int64
	left.Store(n)
	return func(context.Context, *call) error {
		if left.Add(-1) >= 0 {
			return errAway
		}
		return nil
	}
}

// Without a queue a request is sent as it is, with the context of its caller, who
// gets the outcome, and as many at a time as there are callers.
func TestNoQueue_StraightToTheSender(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		var tenants []string
		s := &sink{answer: func(ctx context.Context, c *call) error {
			time.Sleep(time.Second)
			if c.ids[0] == 0 {
				tenants = client.FromContext(ctx).Metadata.Get("tenant")
				return errBad
			}
			return nil
		}}
		r := startRig(t, k, s, noQueue)
		assert.False(t, r.exporter.consumer.Capabilities().MutatesData)
		ctx := client.NewContext(t.Context(), client.Info{Metadata: client.NewMetadata(map[string][]string{"tenant": {"acme"}})})
		began := time.Now()
		results := make([]error, 50)
		for i := range results {
			go func() { results[i] = r.exporter.consume(ctx, k.simple(2, int64(2*i))) }()
		}
		runFor(time.Second)
		for i, err := range results {
			assert.Equal(t, i == 0, err != nil)
		}
		require.ErrorIs(t, results[0], errBad)
		assert.True(t, consumererror.IsPermanent(results[0]))
		assert.Equal(t, time.Second, time.Since(began))
		assert.Len(t, r.sizes(), 49)
		assert.Equal(t, []string{"acme"}, tenants)
		assert.EqualValues(t, 2, r.metric("batcher_dropped_items", reasonIs(dropPermanent)))
	})
}

// Retries are as configured, and the caller waits for their end.
func TestNoQueue_Retries(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := startRig(t, k, &sink{answer: awayFor(3)}, noQueue)
		began := time.Now()
		r.mustSend(k.simple(4, 0))
		assert.Equal(t, 3*time.Second, time.Since(began))
		assert.Equal(t, []int{4}, r.sizes())
	})
}

// The end of the caller's context ends the attempt, and there is no other.
func TestNoQueue_CallerEndsTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen error
		r := startRig(t, kindLogs, &sink{answer: func(ctx context.Context, _ *call) error {
			<-ctx.Done()
			seen = ctx.Err()
			return consumererror.NewPermanent(seen)
		}}, noQueue)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		err := r.exporter.consume(ctx, logsOf(4, 0))
		assert.Equal(t, 5*time.Second, time.Since(began))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.False(t, consumererror.IsPermanent(err))
		runFor(time.Hour)
		require.Error(t, seen)
		assert.Len(t, r.calls(), 1)
		assert.EqualValues(t, 4, r.metric("batcher_dropped_items", reasonIs(dropCallersGone)))
	})
}

// A caller that goes during a backoff gets no further attempt: it was told that
// its data was not delivered, and may have sent it elsewhere.
func TestNoQueue_CallerEndsTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindLogs, &sink{answer: func(context.Context, *call) error { return errAway }}, noQueue)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2500*time.Millisecond, cancel)
		began := time.Now()
		err := r.exporter.consume(ctx, logsOf(4, 0))
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 2500*time.Millisecond, time.Since(began))
		runFor(time.Hour)
		assert.Len(t, r.calls(), 3, "at 0, 1 and 2 seconds")
		assert.EqualValues(t, 4, r.metric("batcher_dropped_items"))
	})
}

// A caller whose context ends before the next attempt could begin does not have to
// wait for that.
func TestNoQueue_DeadlineBeforeTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindLogs, &sink{answer: func(context.Context, *call) error { return errAway }}, noQueue)
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, r.exporter.consume(ctx, logsOf(4, 0)), errAway)
		assert.Equal(t, 2*time.Second, time.Since(began))
		assert.Len(t, r.calls(), 3, "at 0, 1 and 2 seconds")
	})
}

// A stop ends what runs without a queue too, and reports it.
func TestNoQueue_Stop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindLogs, &sink{}, noQueue+"\ndrain_timeout: 3s")
		r.hold()
		result := make(chan error, 1)
		go func() { result <- r.send(logsOf(4, 0)) }()
		synctest.Wait()
		r.losesAtStop(context.Background(), 4)
		err := <-result
		require.Error(t, err)
		assert.False(t, consumererror.IsPermanent(err))
		require.ErrorIs(t, r.send(logsOf(1, 4)), errStopping)
	})
}

// Without batches every request is one, in order, however small, large or late.
func TestNoBatch_RequestsStayAsTheyAre(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := startRig(t, k, &sink{keep: true}, noBatch)
		assert.False(t, r.exporter.consumer.Capabilities().MutatesData)
		r.hold()
		var want [][]string
		for i, n := range []int{1, 500, 3, 2000, 2} {
			data := k.simple(n, int64(100_000*i))
			want = append(want, k.flatten(data))
			r.mustSend(data)
		}
		synctest.Wait()
		r.release()
		synctest.Wait()
		var got [][]string
		for _, c := range r.taken() {
			got = append(got, c.lines)
		}
		assert.ElementsMatch(t, want, got)
	})
}

// What others read as well is not changed, whether or not the wrapped exporter
// changes what it gets, and each attempt gets all of it.
func TestNoBatch_SharedDataIsNotChanged(t *testing.T) {
	for _, mutates := range []bool{false, true} {
		for _, yaml := range []string{noBatch, noQueue, "sending_queue: {enabled: false}\nretry_on_failure: {enabled: false}"} {
			eachKind(t, func(t *testing.T, k kind) {
				r := startRig(t, k, &sink{mutates: mutates, keep: true, answer: awayFor(2)}, yaml)
				data := k.simple(7, 0)
				want := k.flatten(data)
				data.(interface{ MarkReadOnly() }).MarkReadOnly()
				_ = r.send(data)
				runFor(time.Minute)
				assert.Equal(t, want, k.flatten(data))
				for _, c := range r.calls() {
					assert.Equal(t, want, c.lines)
				}
			})
		}
	}
}

// What is not batched is its caller's as well, who may send it elsewhere when it
// gets an error: it stays as it was, though it is copied and cut when the backend
// refuses it.
func TestNoBatch_RequestsStayTheirCallers(t *testing.T) {
	refusals := map[string]func(ids []int64) error{
		"size": func(ids []int64) error {
			if len(ids) > 1 {
				return status.Error(codes.ResourceExhausted, "message larger than max")
			}
			return nil
		},
		"content": func(ids []int64) error {
			if slices.Contains(ids, 3) {
				return consumererror.NewPermanent(status.Error(codes.InvalidArgument, "bad"))
			}
			return nil
		},
	}
	for _, yaml := range []string{noBatch, noQueue, "sending_queue: {enabled: false}\nretry_on_failure: {enabled: false}"} {
		for name, refuse := range refusals {
			for _, mutates := range []bool{false, true} {
				eachKind(t, func(t *testing.T, k kind) {
					s := &sink{mutates: mutates, answer: func(_ context.Context, c *call) error { return refuse(c.ids) }}
					r := startRig(t, k, s, yaml+"\nrefusals: {isolate: always}")
					data := k.simple(7, 0)
					want := k.flatten(data)
					_ = r.send(data)
					runFor(time.Minute)
					assert.Equal(t, want, k.flatten(data))
					assert.Subset(t, r.ids(), []int64{0, 1, 2, 4, 5, 6}, name)
					single := k.simple(1, 7)
					want = k.flatten(single)
					_ = r.send(single)
					runFor(time.Minute)
					assert.Equal(t, want, k.flatten(single))
				})
			}
		}
	}
}

// An exporter that changes what it gets is given a copy for each attempt that may
// be repeated: also of batches that were merged and cut.
func TestMutatingExporter_RetriesDeliverIntactData(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := startRig(t, k, &sink{mutates: true, keep: true, answer: awayFor(5)}, "retry_on_failure: {initial_interval: 1s, max_interval: 1s}\nsending_queue: {num_consumers: 2, batch: {max_size: 10, min_size: 10, flush_timeout: 1s}}")
		assert.True(t, r.exporter.consumer.Capabilities().MutatesData)
		var want []string
		for i := range int64(5) {
			data := k.simple(7, 7*i)
			want = append(want, k.flatten(data)...)
			r.mustSend(data)
		}
		runFor(time.Minute)
		assert.Equal(t, sorted(want), r.lines())
		assert.Len(t, r.calls(), 4+5)
	})
}

// sendAll sends several requests at once, each by a caller that waits; the outcomes come
// in any order.
func sendAll(r *rig, all ...any) []error {
	results := make([]error, len(all))
	for i, data := range all {
		go func() { results[i] = r.send(data) }()
		synctest.Wait()
	}
	runFor(time.Minute)
	return results
}

// Callers get the outcome of the batches that they are in, each its own.
func TestWaitForResult_Outcomes(t *testing.T) {
	for name, tc := range map[string]struct {
		answer    map[int64]error // by the first item of the batch
		want      []error
		permanent []bool
	}{
		"all well":            {nil, []error{nil, nil, nil, nil}, []bool{false, false, false, false}},
		"one batch refused":   {map[int64]error{10: errBad}, []error{nil, errBad, errBad, nil}, []bool{false, true, true, false}},
		"one batch exhausted": {map[int64]error{10: errAway}, []error{nil, errAway, errAway, nil}, []bool{false, false, false, false}},
		"both ends fail": {
			map[int64]error{10: errAway, 20: errBad},
			[]error{nil, errAway, errors.Join(errAway, errBad), errBad},
			[]bool{false, false, true, true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				s := &sink{answer: func(_ context.Context, c *call) error { return tc.answer[c.ids[0]] }}
				r := startRig(t, k, s, "retry_on_failure: {enabled: false}\nsending_queue: {wait_for_result: true, num_consumers: 1, batch: {min_size: 10, max_size: 10, flush_timeout: 1h}}")
				got := sendAll(r, k.simple(10, 0), k.simple(5, 10), k.simple(7, 15), k.simple(8, 22))
				for i, err := range got {
					if tc.want[i] == nil {
						require.NoError(t, err)
						continue
					}
					for _, part := range []error{errAway, errBad} {
						assert.Equal(t, errors.Is(tc.want[i], part), errors.Is(err, part), "request %d: %v", i, err)
					}
					assert.Equal(t, tc.permanent[i], consumererror.IsPermanent(err), "request %d: %v", i, err)
				}
			})
		})
	}
}

// A caller that gives up is told so; its data goes on, and the others in the same
// batch hear nothing of it.
func TestWaitForResult_ImpatientCaller(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		began := time.Now()
		r := startRig(t, k, &sink{answer: func(context.Context, *call) error {
			if time.Since(began) < 10*time.Second {
				return errAway
			}
			return nil
		}}, waiting)
		other := make(chan error, 1)
		go func() { other <- r.send(k.simple(4, 0)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.ErrorIs(t, r.exporter.consume(ctx, k.simple(6, 4)), context.DeadlineExceeded)
		assert.Equal(t, 3*time.Second, time.Since(began))
		require.NoError(t, <-other)
		assert.Equal(t, 10*time.Second, time.Since(began))
		assert.Equal(t, sequence(0, 10), r.ids())
	})
}

// A request of many batches is settled with its last one, and as long as that the
// whole of it takes its room.
func TestWaitForResult_SettledWithTheLastPiece(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := startRig(t, k, &sink{answer: func(context.Context, *call) error {
			time.Sleep(time.Second)
			return nil
		}}, "sending_queue: {wait_for_result: true, sizer: items, queue_size: 100, num_consumers: 2, batch: {min_size: 10, max_size: 10, flush_timeout: 1h}}")
		began := time.Now()
		done := make(chan error, 1)
		go func() { done <- r.send(k.simple(70, 0)) }()
		for i := range 4 {
			synctest.Wait()
			assert.EqualValues(t, 70, r.exporter.account().used)
			assert.EqualValues(t, 70-20*i, r.exporter.account().pending)
			if i < 3 {
				time.Sleep(time.Second)
			}
		}
		require.NoError(t, <-done)
		assert.Equal(t, 4*time.Second, time.Since(began))
		assert.Zero(t, r.exporter.account().used)
	})
}

// Only the caller whose item is too large hears of it, once, for good, and with
// the numbers; the neighbours of the item are delivered.
func TestWaitForResult_OversizedItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindLogs, &sink{}, "sending_queue: {wait_for_result: true, num_consumers: 1, batch: {min_size: 0, flush_timeout: 0s, max_bytes: 2000, oversize: drop}}")
		large := payloadtest.SimpleLogs(3, 10)
		large.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(1).Body().SetStr(string(slices.Repeat([]byte("x"), 3000)))
		got := sendAll(r, logsOf(2, 0), large, logsOf(2, 20))
		require.NoError(t, got[0])
		require.NoError(t, got[2])
		require.ErrorIs(t, got[1], errTooLarge)
		assert.True(t, consumererror.IsPermanent(got[1]))
		wantError(t, got[1], "the limit is 2000")
		assert.Equal(t, []int64{0, 1, 10, 12, 20, 21}, r.ids())
		assert.EqualValues(t, 1, r.metric("batcher_dropped_items", reasonIs(dropTooLarge)))
	})
}

// What an exporter calls permanent because we cancelled it is not permanent for the
// caller either, when retries are off and there is no next attempt.
func TestWaitForResult_OwnTimeoutIsNotPermanent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindLogs, &sink{answer: func(ctx context.Context, _ *call) error {
			<-ctx.Done()
			return consumererror.NewPermanent(ctx.Err())
		}}, "timeout: 1s\nretry_on_failure: {enabled: false}\nsending_queue: {wait_for_result: true, batch: {min_size: 1}}")
		err := r.send(logsOf(1, 0))
		require.Error(t, err)
		assert.False(t, consumererror.IsPermanent(err), "%v", err)
	})
}

// An OTLP status that is final is final for the caller too, in the words that the
// collector asks for.
func TestWaitForResult_FinalStatusIsPermanent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindLogs, &sink{answer: func(context.Context, *call) error {
			return consumererror.NewOTLPHTTPError(errors.New("bad request"), 400)
		}}, waiting)
		got := sendAll(r, logsOf(10, 0))
		require.Error(t, got[0])
		assert.Len(t, r.calls(), 1)
		assert.True(t, consumererror.IsPermanent(got[0]), "%v", got[0])
	})
}
