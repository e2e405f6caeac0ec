// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"fmt"
)

// epoch counts the requests that were accepted between two flushes and are not
// settled. A flush seals the current epoch and begins another: what it covers is
// then known without a mark on any request, it can be waited for, and once it is
// settled nothing of the flush is left. Guarded by the queue's mutex.
type epoch struct {
	pending int
	next    *epoch
	lost    int64         // items of it that were given up
	cause   error         // of the last of them
	done    chan struct{} // closed when this and all earlier ones are settled
}

func newEpoch() *epoch { return &epoch{done: make(chan struct{})} }

// lose notes that items of the epoch were given up.
func (e *epoch) lose(items int64, cause error) {
	if items > 0 {
		e.lost, e.cause = e.lost+items, cause
	}
}

// snapshot is what a flush covers: the epochs from the first to the last. nil covers
// nothing.
type snapshot struct {
	first, last *epoch
	lost        int64 // of them before the flush
}

// lostLocked is how many items of the epochs were given up, and why the last were.
func (s *snapshot) lostLocked() (items int64, cause error) {
	for e := s.first; ; e = e.next {
		if items += e.lost; e.lost > 0 {
			cause = e.cause
		}
		if e == s.last {
			return items, cause
		}
	}
}

// flush makes all that is queued or in flight leave now, in capped batches, and
// returns when that is settled, with ctx's error when ctx ends first (the data goes
// on leaving then), or with an error that says how much of it was given up, and why.
// What is offered after the call neither delays it nor leaves early because of it.
func (q *queue[T]) flush(ctx context.Context) error {
	covered := q.beginFlush()
	if err := covered.wait(ctx); err != nil || covered == nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if lost, cause := covered.lostLocked(); lost > covered.lost {
		return fmt.Errorf("data that the flush covers was given up: %w", cause)
	}
	return nil
}

// beginFlush is flush without the wait.
func (q *queue[T]) beginFlush() *snapshot {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sealCurrentLocked(triggerFlush)
}

// beginStop makes what is queued or in flight leave, since a stop has begun that
// will come to this queue. lastAttempts says that the backend is away: each batch
// is then sent once more, and no longer held back for others.
func (q *queue[T]) beginStop(lastAttempts bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.halted {
		return
	}
	q.mu.stopBegan, q.mu.lastAttempts = q.now(), lastAttempts
	q.hurryAllLocked()
	q.sealCurrentLocked(triggerFlush)
}

// wait returns when what is covered is settled, or with ctx's error.
func (s *snapshot) wait(ctx context.Context) error {
	if s == nil {
		return nil
	}
	select {
	case <-s.last.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// sealCurrentLocked ends the current epoch, makes due all that is queued, and
// returns what is covered by that; nil if nothing is pending.
func (q *queue[T]) sealCurrentLocked(why trigger) *snapshot {
	if q.mu.current.pending > 0 {
		sealed := q.mu.current
		q.mu.current = newEpoch()
		sealed.next = q.mu.current
		q.mu.lastSealed = sealed
	}
	for q.mu.lingering.Len() > 0 {
		q.makeDueLocked(q.mu.lingering.first(), why)
	}
	for _, p := range q.mu.partitions {
		q.resumeLocked(p)
	}
	q.wakeLocked()
	if q.mu.lastSealed == nil {
		return nil
	}
	covered := &snapshot{first: q.mu.oldest, last: q.mu.lastSealed}
	covered.lost, _ = covered.lostLocked()
	return covered
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

// attemptsLast says whether the backend was away when a stop began, and nothing has
// passed since.
func (q *queue[T]) attemptsLast() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.lastAttempts
}

// stop ends admission and makes all that is queued leave. It returns what to wait
// for, nil if nothing is pending, and the batches that have had their last attempt
// already.
func (q *queue[T]) stop() (covered *snapshot, spent []*batch[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refuseLocked()
	covered = q.sealCurrentLocked(triggerShutdown)
	for b := range q.mu.active {
		if q.mu.lastAttempts && b.idle && b.began >= q.mu.stopBegan {
			spent = append(spent, b)
		}
	}
	for _, b := range spent {
		q.takeIdleLocked(b)
	}
	q.hurryAllLocked()
	return covered, spent
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
	for _, p := range q.mu.partitions {
		p.forget() // a call that hangs still knows its partition
	}
	clear(q.mu.partitions)
	clear(q.mu.active)
	q.mu.due, q.mu.ready = ring[*partition[T]]{}, ring[*batch[T]]{}
	q.mu.lingering.list, q.mu.backoff.list = nil, nil
	if left > 0 {
		q.mu.oldest.lose(left, errStopping)
	}
	for e := q.mu.oldest; e != nil; e = e.next {
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
