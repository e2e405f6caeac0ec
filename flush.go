// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
)

// epoch counts the requests that were accepted between two flushes and are not
// settled. A flush seals the current epoch and begins another: what it covers is
// then known without a mark on any request, it can be waited for, and once it is
// settled nothing of the flush is left. Guarded by the queue's mutex.
type epoch struct {
	pending int
	next    *epoch
	dropped bool          // the queue was abandoned before all were settled
	done    chan struct{} // closed when this and all earlier ones are settled
}

func newEpoch() *epoch { return &epoch{done: make(chan struct{})} }

// flush makes all that is queued or in flight leave now, in capped batches, and
// returns when that is settled, with ctx's error when ctx ends first (the data
// goes on leaving then), or with errStopping when a stop drops some of it. What is offered after the call neither delays it
// nor leaves early because of it.
func (q *queue[T]) flush(ctx context.Context) error {
	q.mu.Lock()
	covered := q.sealCurrentLocked(triggerFlush)
	q.mu.Unlock()
	return awaitEpoch(ctx, covered)
}

// beginFlush is flush without the wait.
func (q *queue[T]) beginFlush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sealCurrentLocked(triggerFlush)
}

func awaitEpoch(ctx context.Context, covered *epoch) error {
	if covered == nil {
		return nil
	}
	select {
	case <-covered.done:
		if covered.dropped {
			return errStopping
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// sealCurrentLocked ends the current epoch, makes due all that is queued, and
// returns the newest sealed epoch; nil if nothing is pending.
func (q *queue[T]) sealCurrentLocked(why trigger) *epoch {
	if q.mu.current.pending > 0 {
		sealed := q.mu.current
		q.mu.current = newEpoch()
		sealed.next = q.mu.current
		q.mu.lastSealed = sealed
	}
	for q.mu.lingering.Len() > 0 {
		q.makeDueLocked(q.mu.lingering.first(), why)
	}
	q.wakeLocked()
	return q.mu.lastSealed
}

// sealLocked completes the sealed epochs whose last request was settled, in
// order.
func (q *queue[T]) sealLocked() {
	for q.mu.oldest != q.mu.current && q.mu.oldest.pending == 0 {
		close(q.mu.oldest.done)
		if q.mu.oldest == q.mu.lastSealed {
			q.mu.lastSealed = nil
		}
		q.mu.oldest = q.mu.oldest.next
	}
}

// stop ends admission and makes all that is queued leave. It returns the epoch to
// wait for, nil if nothing is pending.
func (q *queue[T]) stop() *epoch {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refuseLocked()
	return q.sealCurrentLocked(triggerShutdown)
}

// refuseLocked ends admission, for those too who wait for room.
func (q *queue[T]) refuseLocked() {
	q.mu.stopping = true
	for w := q.mu.waiters.first(); w != nil; w = q.mu.waiters.first() {
		q.mu.waiters.remove(w)
		close(w.wake)
	}
}

// halt ends the sending: nothing leaves any more, what is in flight is cancelled,
// and workers end as soon as their calls return. A call that has delivered in
// spite of that is settled; everything else is for abandon.
func (q *queue[T]) halt() {
	defer q.end()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refuseLocked()
	q.mu.halted = true
	if q.mu.timer != nil {
		q.mu.timer.Stop()
	}
	q.parked.Broadcast()
	q.endLocked()
}

// abandon halts the queue and gives up all that is pending. Late outcomes of
// calls that are still in flight are ignored from then on. It returns the number
// of items that it gave up, and must be called once.
func (q *queue[T]) abandon() int64 {
	q.halt()
	defer close(q.over)
	q.mu.Lock()
	defer q.mu.Unlock()
	for b := range q.mu.active {
		if b.idle {
			q.given = append(q.given, b)
		}
		q.delivered += b.work.sent.Load()
	}
	q.mu.sent += q.delivered
	q.mu.pending -= q.delivered
	left := q.mu.pending
	q.mu.abandoned = true
	q.mu.dropped += left
	q.mu.pending, q.mu.used = 0, 0
	clear(q.mu.partitions)
	clear(q.mu.active)
	q.mu.due, q.mu.ready = ring[*partition[T]]{}, ring[*batch[T]]{}
	q.mu.lingering.list, q.mu.backoff.list = nil, nil
	for e := q.mu.oldest; e != nil; e = e.next {
		e.dropped = e.pending > 0
		e.pending = 0
	}
	q.sealLocked()
	return left
}

// park leaves b to abandon. It reports false if that has been.
func (q *queue[T]) park(b *batch[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	b.idle = true
	return !q.mu.abandoned
}
