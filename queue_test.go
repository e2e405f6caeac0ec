// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"pgregory.net/rapid"
)

// queueModel is a queue as a slice: what is queued, in order, and what has left.
type queueModel struct {
	q       *queue[*load]
	queued  []int // items in the order of their acceptance
	batches []*batch[*load]

	request   []int // of each item, the number of its request
	size      []int // of each request
	unsettled []int // of each request
	accepted  int
	settled   int
}

// used is the capacity that requests take: each counts whole until its last
// item is settled.
func (m *queueModel) used() int {
	n := 0
	for r, left := range m.unsettled {
		if left > 0 {
			n += m.size[r]
		}
	}
	return n
}

// The queue against a slice: whatever is offered, pulled, flushed and settled,
// in whatever order, items leave in the order of their acceptance, no batch is
// above its bound, a batch below min_size has a reason, and the account is right
// after each step.
func TestQueueAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		minSize := rapid.IntRange(0, 20).Draw(rt, "min_size")
		maxItems := rapid.SampledFrom([]int{0, minSize + rapid.IntRange(1, 10).Draw(rt, "above")}).Draw(rt, "max_size")
		set := queueSettings{
			unit: unitItems, capacity: 200, slots: 1 << 30,
			batch: batchSettings{unit: unitItems, minSize: int64(minSize), maxItems: int64(maxItems), flushTimeout: time.Hour},
		}
		m := &queueModel{q: newQueue(set, fakeSignal{}, fakeMerger{}, func() {})}
		rt.Repeat(map[string]func(*rapid.T){
			"offer":  m.offer,
			"pull":   m.pull,
			"settle": m.settle,
			"flush":  func(*rapid.T) { m.q.beginFlush() },
			"":       m.check,
		})
		m.drain(rt)
	})
}

func (m *queueModel) offer(rt *rapid.T) {
	n := rapid.IntRange(0, 60).Draw(rt, "items")
	first := len(m.request)
	_, err := m.q.offer(context.Background(), numbers(first, n))
	if m.used()+n > int(m.q.set.capacity) {
		require.ErrorIs(rt, err, exporterhelper.ErrQueueIsFull)
		return
	}
	require.NoError(rt, err)
	m.queued = append(m.queued, numbers(first, n).ids...)
	m.request = append(m.request, slices.Repeat([]int{len(m.size)}, n)...)
	m.size = append(m.size, n)
	m.unsettled = append(m.unsettled, n)
	m.accepted += n
}

func (m *queueModel) pull(rt *rapid.T) {
	m.q.mu.Lock()
	b := m.q.tryNextLocked(&batch[*load]{})
	m.q.mu.Unlock()
	if b == nil {
		return
	}
	m.q.form(b)
	ids := b.content.data.ids
	require.Len(rt, ids, b.items)
	require.Equal(rt, m.queued[:len(ids)], ids, "out of order")
	m.queued = m.queued[len(ids):]
	set := &m.q.set.batch
	if set.maxItems > 0 {
		require.LessOrEqual(rt, int64(len(ids)), set.maxItems)
	}
	if int64(len(ids)) < set.minSize {
		require.Contains(rt, []trigger{triggerFlush, triggerPressure, triggerSize}, b.trigger)
	}
	m.batches = append(m.batches, b)
}

func (m *queueModel) settle(rt *rapid.T) {
	if len(m.batches) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.batches)-1).Draw(rt, "batch")
	b := m.batches[i]
	m.batches = slices.Delete(m.batches, i, i+1)
	require.True(rt, m.q.settle(b, outcome{sent: b.items}))
	require.False(rt, m.q.settle(b, outcome{sent: b.items}), "settled twice")
	m.settled += b.items
	for _, id := range b.content.data.ids {
		m.unsettled[m.request[id]]--
	}
}

func (m *queueModel) check(rt *rapid.T) {
	m.q.mu.Lock()
	defer m.q.mu.Unlock()
	mu := &m.q.mu
	require.EqualValues(rt, m.accepted, mu.accepted)
	require.EqualValues(rt, m.accepted-m.settled, mu.pending)
	require.Equal(rt, mu.accepted, mu.sent+mu.dropped+mu.pending)
	require.EqualValues(rt, m.used(), mu.used)
	held := 0
	for _, p := range mu.partitions {
		held += p.held.items
		require.Equal(rt, p.held.requests == 0, p.front() == nil)
		lingers := p.held.requests > 0 && !p.due
		require.Equal(rt, lingers, p.position >= 0)
	}
	require.Equal(rt, len(m.queued), held)
}

// drain flushes, pulls and settles all; nothing may be left of it.
func (m *queueModel) drain(rt *rapid.T) {
	m.q.beginFlush()
	for range 10_000 {
		before := len(m.queued)
		m.pull(rt)
		if len(m.queued) == before {
			break
		}
	}
	for len(m.batches) > 0 {
		m.settle(rt)
	}
	m.check(rt)
	require.Empty(rt, m.queued)
	require.Zero(rt, m.q.mu.used)
	for _, p := range m.q.mu.partitions {
		require.True(rt, p.idle())
	}
	require.Nil(rt, m.q.mu.lastSealed)
	require.Equal(rt, m.q.mu.oldest, m.q.mu.current)
	require.Zero(rt, m.q.mu.current.pending)
}

func TestOfferRefusesWhatCanNeverFit(t *testing.T) {
	q := newQueue(queueSettings{unit: unitItems, capacity: 10, slots: 1, blockOnOverflow: true}, fakeSignal{}, fakeMerger{}, func() {})
	_, err := q.offer(context.Background(), numbers(0, 11))
	require.True(t, consumererror.IsPermanent(err), "%v", err)
	assert.ErrorContains(t, err, "11 items")
	assert.ErrorContains(t, err, "`queue_size` of 10")
	_, err = q.offer(context.Background(), numbers(0, 10))
	assert.NoError(t, err)
}

func TestOfferOfNothingIsNothing(t *testing.T) {
	q := newQueue(queueSettings{unit: unitRequests, capacity: 1, slots: 1}, fakeSignal{}, fakeMerger{}, func() {})
	for range 3 {
		s, err := q.offer(context.Background(), numbers(0, 0))
		require.NoError(t, err)
		require.Nil(t, s)
	}
	assert.Zero(t, q.stats().Size)
}

// Offers that wait get room in their order: a large one is not overtaken by the
// small ones behind it for ever, and one that gives up lets the next ones in.
func TestBlockedOffersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(queueSettings{
			unit: unitItems, capacity: 10, slots: 1 << 30, blockOnOverflow: true,
			batch: batchSettings{unit: unitItems, minSize: 1, flushTimeout: time.Hour},
		}, fakeSignal{}, fakeMerger{}, func() {})
		pull := func() *batch[*load] {
			q.mu.Lock()
			defer q.mu.Unlock()
			return q.tryNextLocked(&batch[*load]{})
		}
		var order []int
		offer := func(ctx context.Context, id, n int) {
			if _, err := q.offer(ctx, numbers(id, n)); err == nil {
				order = append(order, id)
			} else {
				assert.ErrorIs(t, err, exporterhelper.ErrQueueIsFull)
				assert.False(t, consumererror.IsPermanent(err))
				order = append(order, -id)
			}
		}
		offer(context.Background(), 1, 8)
		impatient, cancel := context.WithCancel(context.Background())
		go offer(impatient, 2, 9)
		synctest.Wait()
		go offer(context.Background(), 3, 10)
		synctest.Wait()
		go offer(context.Background(), 4, 1)
		synctest.Wait()
		assert.Equal(t, []int{1}, order, "4 would fit, but is behind the others")
		cancel()
		synctest.Wait()
		assert.Equal(t, []int{1, -2}, order)
		b := pull()
		q.settle(b, outcome{sent: b.items})
		synctest.Wait()
		assert.Equal(t, []int{1, -2, 3}, order)
		b = pull()
		q.settle(b, outcome{sent: b.items})
		synctest.Wait()
		assert.Equal(t, []int{1, -2, 3, 4}, order)
		q.abandon()
	})
}

func TestStopWakesBlockedOffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(queueSettings{
			unit: unitRequests, capacity: 1, slots: 1, blockOnOverflow: true,
			batch: batchSettings{minSize: 1 << 20, flushTimeout: time.Hour},
		}, fakeSignal{}, fakeMerger{}, func() {})
		_, err := q.offer(context.Background(), numbers(0, 1))
		require.NoError(t, err)
		done := make(chan error)
		go func() {
			_, err := q.offer(context.Background(), numbers(1, 1))
			done <- err
		}()
		synctest.Wait()
		q.stop()
		err = <-done
		require.ErrorIs(t, err, errStopping)
		assert.False(t, consumererror.IsPermanent(err))
		_, err = q.offer(context.Background(), numbers(2, 1))
		assert.ErrorIs(t, err, errStopping)
		assert.EqualValues(t, 1, q.abandon())
	})
}
