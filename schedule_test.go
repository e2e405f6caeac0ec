// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
)

var steadyRetry = configretry.BackOffConfig{
	Enabled: true, InitialInterval: time.Second, MaxInterval: time.Second, Multiplier: 1,
}

// A partial batch leaves when its oldest request has waited flush_timeout, not
// before, and what arrives later does not put that off.
func TestPartialBatchLeavesAfterFlushTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := hundreds
		set.batch.flushTimeout = 200 * time.Millisecond
		var ages []time.Duration
		oldest := time.Now()
		p := &pushes{answer: func(context.Context, int, []int) error {
			ages = append(ages, time.Since(oldest))
			return nil
		}}
		s := fakeSender(set, configretry.BackOffConfig{}, p)
		defer s.stop()
		offer(t, s, 0, 10)
		time.Sleep(150 * time.Millisecond)
		offer(t, s, 10, 10)
		time.Sleep(49 * time.Millisecond)
		synctest.Wait()
		assert.Empty(t, p.sizes())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, []int{20}, p.sizes())
		time.Sleep(time.Hour)
		synctest.Wait()
		oldest = time.Now()
		offer(t, s, 20, 1)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []int{20, 1}, p.sizes())
		assert.Equal(t, []time.Duration{200 * time.Millisecond, 200 * time.Millisecond}, ages)
	})
}

// The slots bound the calls exactly, and a batch in backoff has none.
func TestSlotsBoundCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		p := &pushes{answer: func(context.Context, int, []int) error { <-gate; return nil }}
		set := queueSettings{unit: unitRequests, slots: 10, batch: batchSettings{unit: unitItems, maxItems: 1}}
		s := fakeSender(set, configretry.BackOffConfig{}, p)
		defer s.stop()
		for i := range 1000 {
			offer(t, s, i, 1)
		}
		synctest.Wait()
		assert.Equal(t, 10, p.calls())
		close(gate)
		synctest.Wait()
		assert.Equal(t, 10, p.mu.most)
		assert.Len(t, p.ids(), 1000)
	})
}

// Ten thousand batches in backoff cost no goroutine.
func TestBackoffCostsNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const batches = 10_000
		var up atomic.Bool
		p := &pushes{answer: func(context.Context, int, []int) error {
			if !up.Load() {
				return errors.New("away")
			}
			return nil
		}}
		set := queueSettings{unit: unitRequests, slots: batches, batch: batchSettings{unit: unitItems, maxItems: 1}}
		s := fakeSender(set, steadyRetry, p)
		defer s.stop()
		before := runtime.NumGoroutine()
		for i := range batches {
			offer(t, s, i, 1)
			synctest.Wait()
		}
		require.EqualValues(t, batches, s.q.stats().BackoffBatches)
		assert.LessOrEqual(t, runtime.NumGoroutine(), before+keptWorkers)
		up.Store(true)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Len(t, p.ids(), batches)
	})
}

// A retry whose time has come goes ahead of new pulls, under a load that would
// keep the only slot busy for ever.
func TestRetryIsNotStarvedByPulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var retried time.Duration
		began := time.Now()
		p := &pushes{}
		p.answer = func(_ context.Context, _ int, ids []int) error {
			time.Sleep(100 * time.Millisecond)
			if ids[0] == 0 && time.Since(began) < 500*time.Millisecond {
				return exporterhelper.NewThrottleRetry(errors.New("busy"), time.Second)
			}
			if ids[0] == 0 {
				retried = time.Since(began)
			}
			return nil
		}
		set := queueSettings{unit: unitRequests, slots: 2, batch: batchSettings{unit: unitItems, maxItems: 1}}
		s := fakeSender(set, steadyRetry, p)
		defer s.stop()
		for i := range 1000 {
			offer(t, s, i, 1)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.GreaterOrEqual(t, retried, time.Second, "the backoff")
		assert.LessOrEqual(t, retried, 1500*time.Millisecond)
	})
}

// With one slot nothing overtakes a batch that waits out its backoff: order.
func TestOneSlotKeepsOrderOverBackoffs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(_ context.Context, call int, _ []int) error {
			if call%3 != 0 {
				return errors.New("away")
			}
			return nil
		}}
		s := fakeSender(hundreds, steadyRetry, p)
		defer s.stop()
		for i := range 50 {
			offer(t, s, 20*i, 20)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, numbers(0, 1000).ids, p.ids())
	})
}

// A lingering batch does not hold the capacity that others are refused, as long
// as a slot is free: all 30 requests get in, and the first leaves when the room
// gets scarce and not by its timeout.
func TestPressureEndsLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := queueSettings{
			unit: unitRequests, capacity: 10, slots: 10,
			batch: batchSettings{unit: unitItems, minSize: 1000, flushTimeout: 2 * time.Second},
		}
		p := &pushes{}
		s := fakeSender(set, configretry.BackOffConfig{}, p)
		defer s.stop()
		began := time.Now()
		for i := range 30 {
			offer(t, s, i, 1)
			time.Sleep(5 * time.Millisecond)
		}
		require.NotEmpty(t, p.sizes())
		assert.Less(t, time.Since(began), time.Second)
		assert.GreaterOrEqual(t, p.sizes()[0], 9, "only when the room is scarce")
	})
}

// While every slot is busy, what lingers stays and grows: there is nobody to
// send it.
func TestNoPressureWithoutSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		set := queueSettings{
			unit: unitRequests, capacity: 32, slots: 1,
			batch: batchSettings{unit: unitItems, minSize: 1000, flushTimeout: time.Hour},
		}
		p := &pushes{answer: func(context.Context, int, []int) error { <-gate; return nil }}
		s := fakeSender(set, configretry.BackOffConfig{}, p)
		defer s.stop()
		for i := range 32 {
			offer(t, s, i, 1)
			synctest.Wait()
		}
		assert.Equal(t, 1, p.calls())
		first := 29 // when less than an eighth of 32 is left
		close(gate)
		synctest.Wait()
		assert.Equal(t, first, p.sizes()[0])
	})
}

// A steady trickle, an item every 50 microseconds, makes full batches and one last
// partial one, whatever the number of slots: 1,200,000 items in 2,048s are 585
// full batches and one more.
func TestTrickleMakesFullBatches(t *testing.T) {
	for slots, items := range map[int]int{1: 120_000, 10: 1_200_000} {
		synctest.Test(t, func(t *testing.T) {
			full := items / 2048
			set := queueSettings{
				unit: unitItems, capacity: 100_000, slots: slots,
				batch: batchSettings{unit: unitItems, minSize: 2048, maxItems: 2048, flushTimeout: 5 * time.Second},
			}
			p := &pushes{}
			s := fakeSender(set, configretry.BackOffConfig{}, p)
			defer s.stop()
			for i := range items {
				offer(t, s, i, 1)
				time.Sleep(50 * time.Microsecond)
			}
			require.NoError(t, s.q.flush(context.Background()))
			sizes := p.sizes()
			require.Len(t, sizes, full+1)
			for _, n := range sizes[:full] {
				require.Equal(t, 2048, n)
			}
			assert.Equal(t, items-full*2048, sizes[full])
		})
	}
}
