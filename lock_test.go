// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

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

// Under the build tag invariants the queue's mutex counts how often it is taken.

// lockMeter tells how often the lock of a queue was taken since the last time it
// was asked.
type lockMeter struct {
	q    *queue[*load]
	last int
}

func (m *lockMeter) taken() int {
	m.q.mu.Lock()
	defer m.q.mu.Unlock()
	since := m.q.mu.taken - m.last - 1 // less its own
	m.last = m.q.mu.taken
	return since
}

// The lock is taken once per offer, once per pull and once per settle, however
// many requests a batch is made of, and in whatever way: the only worker is
// busy while the requests arrive and then sends all of it, batch after batch.
func TestLock_OncePerPullAndSettle(t *testing.T) {
	thousands := batchSettings{unit: unitItems, minSize: 1000, maxItems: 1000, flushTimeout: time.Hour}
	unbounded := batchSettings{unit: unitItems, minSize: 1000, flushTimeout: time.Hour}
	for name, tc := range map[string]struct {
		set             batchSettings
		requests, items int // items of each request
		wantBatches     int
		waitForResult   bool
	}{
		"one whole run":                 {set: thousands, requests: 1000, items: 1, wantBatches: 1},
		"ten whole runs":                {set: thousands, requests: 10_000, items: 1, wantBatches: 10},
		"without a bound":               {set: unbounded, requests: 3000, items: 1, wantBatches: 3},
		"a request of one batch":        {set: thousands, requests: 5, items: 1000, wantBatches: 5},
		"a cut at each boundary":        {set: thousands, requests: 3000, items: 3, wantBatches: 9},
		"cuts into many batches":        {set: thousands, requests: 2, items: 10_000, wantBatches: 20},
		"callers that wait":             {set: thousands, requests: 3000, items: 1, wantBatches: 3, waitForResult: true},
		"callers that wait for pieces":  {set: thousands, requests: 3000, items: 3, wantBatches: 9, waitForResult: true},
		"callers that wait for batches": {set: thousands, requests: 2, items: 10_000, wantBatches: 20, waitForResult: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				p := &pushes{answer: func(_ context.Context, call int, _ []int) error {
					if call == 1 {
						<-gate
					}
					return nil
				}}
				set := queueSettings{unit: unitItems, slots: 1, waitForResult: tc.waitForResult, batch: tc.set}
				s := fakeSender(set, configretry.BackOffConfig{}, p)
				defer s.stop()
				offer(t, s, 0, 1000) // keeps the only worker busy
				synctest.Wait()

				m := lockMeter{q: s.q}
				m.taken()
				for range tc.requests {
					w, err := s.q.offer(t.Context(), numbers(0, tc.items))
					require.NoError(t, err)
					if tc.waitForResult {
						go func() { assert.NoError(t, s.q.await(t.Context(), w)) }()
					}
				}
				synctest.Wait()
				assert.Equal(t, tc.requests, m.taken(), "one for each offer")

				close(gate)
				synctest.Wait()
				require.Len(t, p.sizes(), 1+tc.wantBatches)
				const settleFirst, park = 1, 1
				assert.Equal(t, settleFirst+2*tc.wantBatches+park, m.taken(), "two for each batch")
			})
		})
	}
}

// While the load is low a worker waits for each batch: the offer that makes it
// due wakes the worker, which takes the lock to pull, to settle, and to wait again.
func TestLock_IdleWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakeSender(hundreds, configretry.BackOffConfig{}, &pushes{})
		defer s.stop()
		m := lockMeter{q: s.q}
		m.taken()
		for range 5 {
			for i := range 100 {
				offer(t, s, i, 1)
			}
			synctest.Wait()
			assert.Equal(t, 100+3, m.taken())
		}
	})
}

// A linger that ends takes the lock once for the timer, whatever has gathered. A
// backoff takes it once to begin and once to end, and to get its slot again.
func TestLock_Timers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: func(_ context.Context, call int, _ []int) error {
			if call == 2 {
				return errAway
			}
			return nil
		}}
		set := hundreds
		set.batch.flushTimeout = time.Second
		s := fakeSender(set, steadyRetry, p)
		defer s.stop()
		m := lockMeter{q: s.q}
		m.taken()
		for i := range 50 {
			offer(t, s, i, 1)
		}
		runFor(time.Second)
		assert.Equal(t, 50+1+3, m.taken(), "linger")

		for i := range 100 {
			offer(t, s, i, 1)
		}
		synctest.Wait()
		assert.Equal(t, 100+3, m.taken(), "pull, backoff, wait")
		runFor(time.Second)
		assert.Equal(t, 1+3, m.taken(), "timer, slot, settle, wait")
		assert.Equal(t, []int{50, 100}, p.sizes())
	})
}

// Joining makes a batch smaller, and what that saved is filled up: that is a few
// more for each batch, and not one for each request that is taken in addition.
func TestLock_Refill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := hundreds
		set.batch.minSize, set.batch.maxItems = 0, 0
		set.batch.maxBytes = 100 * (headerBytes + itemBytes)
		gate := make(chan struct{})
		p := &pushes{answer: func(_ context.Context, call int, _ []int) error {
			if call == 1 {
				<-gate
			}
			return nil
		}}
		s := fakeSender(set, configretry.BackOffConfig{}, p)
		defer s.stop()
		offer(t, s, 0, 1)
		synctest.Wait()
		for i := range 1000 {
			offer(t, s, i, 1)
		}
		m := lockMeter{q: s.q}
		m.taken()
		close(gate)
		synctest.Wait()
		assert.Len(t, p.sizes(), 1+8, "ten without filling up")
		assert.LessOrEqual(t, m.taken(), 1+4*8+1)
	})
}
