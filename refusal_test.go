// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	errContent = consumererror.NewPermanent(status.Error(codes.InvalidArgument, "bad record"))
	errLogin   = consumererror.NewPermanent(status.Error(codes.Unauthenticated, "key expired"))
)

// wholeBatches makes one batch of n items.
func wholeBatches(n int) queueSettings {
	return queueSettings{
		unit: unitItems, slots: 1, waitForResult: true,
		batch: batchSettings{unit: unitItems, minSize: int64(n), maxItems: int64(n), flushTimeout: time.Hour},
	}
}

// callers offers n requests of one item each and returns their errors, once all
// have one.
func callers(s *sender[*load], n int) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			w, err := s.q.offer(context.Background(), numbers(i, 1))
			if err == nil {
				err = s.q.await(context.Background(), w)
			}
			errs[i] = err
		})
		synctest.Wait()
	}
	wg.Wait()
	return errs
}

// One bad record of 8,192 costs itself, in at most 2*log2(8192)+2 calls.
func TestRefusedRecordIsFound(t *testing.T) {
	for _, bad := range []int{0, 4711, 8191} {
		synctest.Test(t, func(t *testing.T) {
			p := &pushes{answer: func(_ context.Context, _ int, ids []int) error {
				if slices.Contains(ids, bad) {
					return errContent
				}
				return nil
			}}
			s := fakeSender(wholeBatches(8192), configretry.BackOffConfig{}, p)
			s.isolation = &isolation{on: true, maxCalls: 64}
			defer s.stop()
			w, err := s.q.offer(context.Background(), numbers(0, 8192))
			require.NoError(t, err)
			err = s.q.await(context.Background(), w)
			assert.True(t, consumererror.IsPermanent(err))
			assert.Len(t, p.ids(), 8191)
			assert.NotContains(t, p.ids(), bad)
			assert.LessOrEqual(t, p.calls(), 2*13+2)
			assert.EqualValues(t, 1, s.q.mu.dropped)
			assert.EqualValues(t, 8191, s.q.mu.sent)
		})
	}
}

// Ten callers, one bad record: its caller gets the error, nine get success.
func TestRefusedRecordCostsItsOwnCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(_ context.Context, _ int, ids []int) error {
			if slices.Contains(ids, 3) {
				return errContent
			}
			return nil
		}}
		s := fakeSender(wholeBatches(10), configretry.BackOffConfig{}, p)
		s.isolation = &isolation{on: true, maxCalls: 64}
		defer s.stop()
		for i, err := range callers(s, 10) {
			if i == 3 {
				assert.True(t, consumererror.IsPermanent(err), "%v", err)
			} else {
				assert.NoError(t, err, i)
			}
		}
	})
}

// A backend that refuses everything costs seven calls, when all four quarters
// have failed alike, and halving pauses for a minute.
func TestIsolationGivesUpAndPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(_ context.Context, call int, _ []int) error {
			return consumererror.NewPermanent(status.Error(codes.InvalidArgument, fmt.Sprintf("request %d is bad", call)))
		}}
		s := fakeSender(wholeBatches(100), configretry.BackOffConfig{}, p)
		s.isolation = &isolation{on: true, maxCalls: 64}
		defer s.stop()
		send := func() int {
			before := p.calls()
			w, err := s.q.offer(context.Background(), numbers(0, 100))
			require.NoError(t, err)
			assert.True(t, consumererror.IsPermanent(s.q.await(context.Background(), w)))
			return p.calls() - before
		}
		assert.Equal(t, 7, send())
		assert.Equal(t, 1, send(), "paused")
		time.Sleep(isolationPause)
		assert.Equal(t, 7, send())
		assert.EqualValues(t, 300, s.q.mu.dropped)
	})
}

// The budget bounds the calls of a batch with many bad records, and what is not
// sent because of it is counted.
func TestIsolationHasABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(_ context.Context, _ int, ids []int) error {
			for _, id := range ids {
				if id%10 == 0 {
					return consumererror.NewPermanent(status.Error(codes.InvalidArgument, fmt.Sprintf("%c is bad", 'a'+len(ids)%26)))
				}
			}
			return nil
		}}
		s := fakeSender(wholeBatches(1000), configretry.BackOffConfig{}, p)
		s.isolation = &isolation{on: true, maxCalls: 64}
		defer s.stop()
		w, err := s.q.offer(context.Background(), numbers(0, 1000))
		require.NoError(t, err)
		require.Error(t, s.q.await(context.Background(), w))
		assert.LessOrEqual(t, p.calls(), 64)
		assert.EqualValues(t, 1000, s.q.mu.sent+s.q.mu.dropped)
		assert.EqualValues(t, len(p.ids()), s.q.mu.sent)
	})
}

// Without isolation a refusal is final, after one call.
func TestWithoutIsolationARefusalIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(context.Context, int, []int) error { return errContent }}
		s := fakeSender(wholeBatches(10), configretry.BackOffConfig{}, p)
		defer s.stop()
		for _, err := range callers(s, 10) {
			assert.True(t, consumererror.IsPermanent(err))
		}
		assert.Equal(t, 1, p.calls())
	})
}

// A piece that fails for another reason while a batch is being halved waits and
// is tried again, and nothing that was delivered is sent twice.
func TestBackoffWhileHalving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(_ context.Context, call int, ids []int) error {
			switch {
			case slices.Contains(ids, 5):
				return errContent
			case call%3 == 0:
				return errors.New("away")
			}
			return nil
		}}
		s := fakeSender(wholeBatches(64), steadyRetry, p)
		s.isolation = &isolation{on: true, maxCalls: 64}
		defer s.stop()
		w, err := s.q.offer(context.Background(), numbers(0, 64))
		require.NoError(t, err)
		require.Error(t, s.q.await(context.Background(), w))
		ids := p.ids()
		slices.Sort(ids)
		assert.Equal(t, slices.Concat(numbers(0, 5).ids, numbers(6, 58).ids), ids)
	})
}

// A destination that refuses the exporter for a minute loses nothing: one batch
// asks again, the others wait for its answer.
func TestDestinationIsProbedWithOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := &pushes{answer: func(context.Context, int, []int) error {
			if time.Since(began) < time.Minute {
				return errLogin
			}
			return nil
		}}
		set := wholeBatches(10)
		set.slots, set.waitForResult = 4, false
		s := fakeSender(set, steadyRetry, p)
		var told []error
		s.report.status = func(err error) { told = append(told, err) }
		defer s.stop()
		for i := range 20 {
			offer(t, s, 10*i, 10)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		// At most four batches meet the refusal at once, and one more tells whether it is
		// they only. Then one asks each second, by turns one of them and a new one.
		assert.LessOrEqual(t, p.calls(), 4+1+30)
		assert.LessOrEqual(t, s.q.stats().BackoffBatches, int64(5+15))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.ElementsMatch(t, numbers(0, 200).ids, p.ids())
		require.Len(t, told, 2)
		assert.Error(t, told[0])
		assert.NoError(t, told[1])
	})
}

// The prober's end without an answer lets the next one ask.
func TestProberIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := &pushes{answer: func(context.Context, int, []int) error {
			if time.Since(began) < 10*time.Second {
				return errLogin
			}
			return nil
		}}
		set := wholeBatches(10)
		set.slots, set.waitForResult = 3, false
		retry := steadyRetry
		retry.MaxElapsedTime = 5 * time.Second
		s := fakeSender(set, retry, p)
		defer s.stop()
		for i := range 10 {
			offer(t, s, 10*i, 10)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.EqualValues(t, 100, s.q.mu.sent+s.q.mu.dropped)
		assert.Positive(t, s.q.mu.sent)
		assert.Zero(t, s.q.stats().BackoffBatches)
	})
}

// A batch that always fails does not stop its partition for ever: after some
// failures of all that wait, others are tried besides it.
func TestStubbornBatchDoesNotStopItsPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(_ context.Context, _ int, ids []int) error {
			if ids[0] < 20 {
				return errors.New("never")
			}
			return nil
		}}
		set := wholeBatches(10)
		set.slots, set.waitForResult = 2, false
		s := fakeSender(set, steadyRetry, p)
		defer s.stop()
		for i := range 50 {
			offer(t, s, 10*i, 10)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.ElementsMatch(t, numbers(20, 480).ids, p.ids())
		calls := p.calls()
		assert.Less(t, calls, 48+2*65, "nor is it tried all the time")
	})
}

// The first success ends the backoffs of its partition, two by two, but for
// those that the backend asked for.
func TestSuccessWakesBackoffs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		at := map[int]time.Duration{}
		var mu sync.Mutex
		p := &pushes{}
		p.answer = func(_ context.Context, _ int, ids []int) error {
			if time.Since(began) < time.Second {
				return errors.New("away")
			}
			mu.Lock()
			defer mu.Unlock()
			at[ids[0]] = time.Since(began)
			return nil
		}
		set := wholeBatches(10)
		set.slots, set.waitForResult = 20, false
		retry := steadyRetry
		retry.InitialInterval, retry.MaxInterval = time.Hour, time.Hour
		s := fakeSender(set, retry, p)
		defer s.stop()
		for i := range 10 {
			offer(t, s, 10*i, 10)
		}
		time.Sleep(2 * time.Second)
		offer(t, s, 1000, 10)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Len(t, p.ids(), 110)
	})
}

// Once every caller has gone no further attempt is started.
func TestNoAttemptForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(context.Context, int, []int) error { return errors.New("away") }}
		s := fakeSender(wholeBatches(1), steadyRetry, p)
		defer s.stop()
		ctx, cancel := context.WithTimeout(context.Background(), 2500*time.Millisecond)
		defer cancel()
		w, err := s.q.offer(ctx, numbers(0, 1))
		require.NoError(t, err)
		assert.ErrorIs(t, s.q.await(ctx, w), context.DeadlineExceeded)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 3, p.calls())
		assert.EqualValues(t, 1, s.q.mu.dropped)
	})
}

// oneByOne sends batches of n items, one after the other, and returns how many
// calls each cost.
func oneByOne(t *testing.T, s *sender[*load], p *pushes, batches, n int) []int {
	t.Helper()
	var cost []int
	for i := range batches {
		before := p.calls()
		w, err := s.q.offer(context.Background(), numbers(i*n, n))
		require.NoError(t, err)
		_ = s.q.await(context.Background(), w)
		cost = append(cost, p.calls()-before)
	}
	return cost
}

// A batch of one bad record is no reason to stop halving: the next batch with one
// bad record loses that one.
func TestSingleBadRecordDoesNotPauseIsolation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(_ context.Context, _ int, ids []int) error {
			if slices.Contains(ids, 0) {
				return errContent
			}
			return nil
		}}
		set := wholeBatches(100)
		set.batch.minSize = 0
		s := fakeSender(set, configretry.BackOffConfig{}, p)
		s.isolation = &isolation{on: true, maxCalls: 64}
		defer s.stop()
		oneByOne(t, s, p, 1, 1)
		oneByOne(t, s, p, 1, 100)
		assert.Len(t, p.ids(), 99)
	})
}

// Failures for another reason do not use up the budget of calls.
func TestRetriesDoNotSpendTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(_ context.Context, call int, ids []int) error {
			switch {
			case call > 1 && call < 100:
				return errAway
			case slices.Contains(ids, 5):
				return errContent
			}
			return nil
		}}
		s := fakeSender(wholeBatches(64), steadyRetry, p)
		s.isolation = &isolation{on: true, maxCalls: 64}
		defer s.stop()
		oneByOne(t, s, p, 1, 64)
		assert.Len(t, p.ids(), 63)
	})
}

// However the texts differ, halving costs no more calls than the budget.
func TestBudgetHoldsWithDifferentTexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(_ context.Context, call int, ids []int) error {
			if len(ids) > 1 {
				return consumererror.NewPermanent(status.Error(codes.InvalidArgument, string(rune('a'+call%26))+" is bad"))
			}
			return nil
		}}
		s := fakeSender(wholeBatches(256), configretry.BackOffConfig{}, p)
		s.isolation = &isolation{on: true, maxCalls: 64}
		defer s.stop()
		assert.LessOrEqual(t, oneByOne(t, s, p, 1, 256)[0], 64)
		assert.EqualValues(t, 256, s.q.mu.sent+s.q.mu.dropped)
	})
}

// One batch that the destination refuses for what is in it holds nothing up for
// long: others are tried besides it, and once they pass it is on its own.
func TestRefusedBatchDoesNotHoldItsPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(_ context.Context, _ int, ids []int) error {
			if ids[0] == 0 {
				return errLogin
			}
			return nil
		}}
		set := wholeBatches(10)
		set.slots, set.waitForResult = 2, false
		s := fakeSender(set, steadyRetry, p)
		defer s.stop()
		for i := range 30 {
			offer(t, s, 10*i, 10)
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Len(t, p.ids(), 290)
	})
}

// A prober that fails in another way no longer speaks for the others.
func TestProberThatFailsOtherwiseLetsTheOthersGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := &pushes{answer: func(_ context.Context, _ int, ids []int) error {
			switch {
			case time.Since(began) < 10*time.Second:
				return errLogin
			case ids[0] < 40:
				return errAway
			}
			return nil
		}}
		set := wholeBatches(10)
		set.slots, set.waitForResult = 8, false
		s := fakeSender(set, steadyRetry, p)
		defer s.stop()
		for i := range 20 {
			offer(t, s, 10*i, 10)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Len(t, p.ids(), 160)
	})
}

// The collector hears that the destination accepts again, also if the refused
// batch is gone by then.
func TestHealthRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(_ context.Context, _ int, ids []int) error {
			if ids[0] == 0 {
				return errLogin
			}
			return nil
		}}
		s := fakeSender(wholeBatches(10), configretry.BackOffConfig{}, p)
		var told []error
		s.report.status = func(err error) { told = append(told, err) }
		defer s.stop()
		oneByOne(t, s, p, 2, 10)
		synctest.Wait()
		require.Len(t, told, 2)
		assert.ErrorIs(t, told[0], errLogin)
		assert.NoError(t, told[1])
	})
}
