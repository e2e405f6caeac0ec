// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configretry"
)

// hundreds are batches of exactly 100 items that never leave by time.
var hundreds = queueSettings{
	unit:  unitItems,
	slots: 1,
	batch: batchSettings{unit: unitItems, minSize: 100, maxItems: 100, flushTimeout: 24 * time.Hour},
}

func offer(t *testing.T, s *sender[*load], first, n int) {
	t.Helper()
	_, err := s.q.offer(context.Background(), numbers(first, n))
	require.NoError(t, err)
}

// 250 items, at most 100 in a batch: Flush returns after the third batch is
// settled, not after the first.
func TestFlushReturnsAfterTheLastChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(context.Context, int, []int) error {
			time.Sleep(time.Second)
			return nil
		}}
		s := fakeSender(hundreds, configretry.BackOffConfig{}, p)
		defer s.stop()
		offer(t, s, 0, 250)
		require.NoError(t, s.q.flush(context.Background()))
		assert.Equal(t, []int{100, 100, 50}, p.sizes())
		assert.Equal(t, numbers(0, 250).ids, p.ids())
	})
}

// What arrives after a flush is not covered: it stays until it is due by itself,
// however many flushes have completed before, and while one is held up.
func TestFlushLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		p := &pushes{answer: func(_ context.Context, call int, _ []int) error {
			if call == 4 {
				<-gate
			}
			return nil
		}}
		s := fakeSender(hundreds, configretry.BackOffConfig{}, p)
		defer s.stop()
		for i := range 3 {
			offer(t, s, 10*i, 10)
			require.NoError(t, s.q.flush(context.Background()))
		}
		require.Equal(t, []int{10, 10, 10}, p.sizes())
		offer(t, s, 30, 10)
		flushed := make(chan error)
		go func() { flushed <- s.q.flush(context.Background()) }()
		synctest.Wait()
		offer(t, s, 40, 60) // the wrapped exporter is held inside call 4
		close(gate)
		require.NoError(t, <-flushed)
		synctest.Wait()
		assert.Equal(t, []int{10, 10, 10, 10}, p.sizes(), "60 items are below min_size")
		offer(t, s, 100, 40)
		synctest.Wait()
		assert.Equal(t, []int{10, 10, 10, 10, 100}, p.sizes(), "and now they are not")
	})
}

// A flush under a producer that never stops returns: what arrives after it does
// not delay it.
func TestFlushReturnsUnderSteadyLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(context.Context, int, []int) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		}}
		s := fakeSender(hundreds, configretry.BackOffConfig{}, p)
		defer s.stop()
		ctx, stop := context.WithCancel(context.Background())
		go func() { // a hundred items in the time of a batch: the backlog never shrinks
			for i := 0; ctx.Err() == nil; i++ {
				_, _ = s.q.offer(ctx, numbers(1000+10*i, 10))
				time.Sleep(time.Millisecond)
			}
		}()
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(t, s.q.flush(context.Background()))
		assert.Less(t, time.Since(began), 100*time.Millisecond)
		stop()
		synctest.Wait()
	})
}

func TestFlushOfNothingReturns(t *testing.T) {
	s := fakeSender(hundreds, configretry.BackOffConfig{}, &pushes{})
	defer s.stop()
	require.NoError(t, s.q.flush(context.Background()))
	assert.Nil(t, s.q.mu.lastSealed)
}

// Flushes that overlap each wait for what they cover, and one that gives up
// leaves the others and the data alone.
func TestFlushesOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(context.Context, int, []int) error {
			time.Sleep(time.Second)
			return nil
		}}
		s := fakeSender(hundreds, configretry.BackOffConfig{}, p)
		defer s.stop()
		var took [3]time.Duration
		began := time.Now()
		for i := range took {
			offer(t, s, 10*i, 10)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), 2500*time.Millisecond)
				defer cancel()
				if err := s.q.flush(ctx); err != nil {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
				}
				took[i] = time.Since(began)
			}()
			synctest.Wait()
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Equal(t, [3]time.Duration{time.Second, 2 * time.Second, 2500 * time.Millisecond}, took)
		assert.Equal(t, []int{10, 10, 10}, p.sizes())
	})
}

// A backlog of 3,000 with max 2,048 leaves as 2,048 + 952 at a stop.
func TestStopDrainsInCappedChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		p := &pushes{answer: func(context.Context, int, []int) error { <-gate; return nil }}
		set := hundreds
		set.batch.minSize, set.batch.maxItems = 2048, 2048
		s := fakeSender(set, configretry.BackOffConfig{}, p)
		offer(t, s, 0, 3000)
		synctest.Wait()
		close(gate)
		covered, spent := s.q.stop()
		assert.Empty(t, spent)
		require.NoError(t, covered.wait(context.Background()))
		assert.Equal(t, []int{2048, 952}, p.sizes())
		assert.Zero(t, s.q.abandon())
	})
}

// A flush tells that something which it covers was given up, for whatever reason; of
// what was given up before it says nothing.
func TestFlushTellsOfLosses(t *testing.T) {
	for name, tc := range map[string]struct {
		before bool  // the flush comes after the loss
		first  error // outcome of the batch that ends first
		want   error
	}{
		"refused":        {first: errBad, want: errBad},
		"refused before": {first: errBad, before: true},
		"delivered":      {},
	} {
		inBubble(t, name, func(t *testing.T) {
			gates := []chan struct{}{make(chan struct{}), make(chan struct{})}
			p := &pushes{answer: func(_ context.Context, _ int, ids []int) error {
				<-gates[ids[0]/100]
				if ids[0] == 0 {
					return tc.first
				}
				return nil
			}}
			set := hundreds
			set.slots = 2
			s := fakeSender(set, configretry.BackOffConfig{}, p)
			defer s.stop()
			offer(t, s, 0, 100)
			offer(t, s, 100, 100)
			synctest.Wait()
			if tc.before {
				close(gates[0])
				synctest.Wait()
			}
			flushed := make(chan error, 1)
			go func() { flushed <- s.q.flush(t.Context()) }()
			synctest.Wait()
			if !tc.before {
				close(gates[0])
			}
			close(gates[1])
			if err := <-flushed; tc.want == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, tc.want)
			}
		})
	}
}

// It covers what earlier flushes cover that are not over, and is ended by a stop.
func TestFlushTellsOfLossesOfEarlierFlushes(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(s *sender[*load], gate chan struct{})
		want error
	}{
		"refused": {func(_ *sender[*load], gate chan struct{}) { close(gate) }, errBad},
		"stopped": {func(s *sender[*load], gate chan struct{}) { s.q.abandon(); close(gate) }, errStopping},
	} {
		inBubble(t, name, func(t *testing.T) {
			gate := make(chan struct{})
			p := &pushes{answer: func(_ context.Context, _ int, ids []int) error {
				<-gate
				if ids[0] == 0 {
					return errBad
				}
				return nil
			}}
			set := hundreds
			set.slots = 2
			s := fakeSender(set, configretry.BackOffConfig{}, p)
			flushed := make(chan error, 2)
			for i := range 2 {
				offer(t, s, 10*i, 10)
				go func() { flushed <- s.q.flush(t.Context()) }()
				synctest.Wait()
			}
			tc.end(s, gate)
			require.ErrorIs(t, <-flushed, tc.want)
			require.ErrorIs(t, <-flushed, tc.want)
			synctest.Wait()
			if name == "refused" {
				s.q.abandon()
			}
			<-s.q.ended
			s.telemetry.close()
		})
	}
}

// A flush after each request costs a few entries for each, not a whole chunk.
func TestFlushPerRequestCostsNoChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		s := fakeSender(hundreds, configretry.BackOffConfig{}, &pushes{answer: func(context.Context, int, []int) error {
			<-gate
			return nil
		}})
		defer s.stop()
		defer close(gate)
		for i := range 100 {
			offer(t, s, i, 1)
			s.q.beginFlush()
		}
		synctest.Wait()
		entries := 0
		for c := s.q.only.front(); c != nil; c = c.next {
			entries += len(c.entries)
		}
		assert.LessOrEqual(t, entries, 100*firstEntries)
	})
}
