// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"fmt"
	"time"
)

// keptWorkers is how many workers wait for the next batch instead of ending: a
// worker that waits costs a goroutine, one that starts costs about a microsecond.
const keptWorkers = 4

const (
	// pressureRoom: with less than 1/pressureRoom of the capacity left, what
	// lingers is in the way of what arrives.
	pressureRoom = 8
	// pressureHeld: what leaves early because of that must hold 1/pressureHeld of
	// the capacity, or batches would shrink just when the backend is slow.
	pressureHeld = 16
)

// dueLocked says what makes p due, if anything does.
func (q *queue[T]) dueLocked(p *partition[T], now instant) (trigger, bool) {
	c := p.front()
	switch {
	case c == nil:
		return 0, false
	case c.epoch != q.mu.current:
		return q.dueBySealLocked(c), true
	case q.set.batch.full(p.held):
		return triggerSize, true
	case c.entries[c.from].at.after(q.set.batch.flushTimeout) <= now:
		return triggerTimeout, true
	}
	return 0, false
}

// dueBySealLocked says what makes a partition due that begins with c, which a
// flush or a stop covers: the size, if what is covered is a full batch.
func (q *queue[T]) dueBySealLocked(c *chunk[T]) trigger {
	var covered totals
	for ep := c.epoch; c != nil && c.epoch == ep; c = c.next {
		if covered.add(c.held); q.set.batch.full(covered) {
			return triggerSize
		}
	}
	if q.mu.stopping {
		return triggerShutdown
	}
	return triggerFlush
}

// makeDueLocked gives p its turn, unless its backoffs hold it back.
func (q *queue[T]) makeDueLocked(p *partition[T], why trigger) {
	p.due, p.trigger = true, why
	if p.position >= 0 {
		q.mu.lingering.remove(p.position)
	}
	q.resumeLocked(p)
}

// resumeLocked puts p into the ring if it is due and not held back.
func (q *queue[T]) resumeLocked(p *partition[T]) {
	if p.due && !p.inTurn && !q.heldBackLocked(p) {
		p.inTurn = true
		q.mu.due.push(p)
	}
}

// placeLocked puts p where it belongs after a batch was taken from it: into the
// ring if it is due still, else among those that linger, if it holds anything.
func (q *queue[T]) placeLocked(p *partition[T]) {
	q.armExpiryLocked(p)
	if why, ok := q.dueLocked(p, q.now()); ok {
		q.makeDueLocked(p, why)
		return
	}
	p.due = false
	switch c := p.front(); {
	case c != nil:
		q.lingerLocked(p, c.entries[c.from].at)
	case p.position >= 0:
		q.mu.lingering.remove(p.position)
	}
}

// lingerLocked makes p wait for more, until its oldest request, accepted at `at`,
// has waited flush_timeout.
func (q *queue[T]) lingerLocked(p *partition[T], at instant) {
	p.deadline = at.after(q.set.batch.flushTimeout)
	if p.position >= 0 {
		q.mu.lingering.fix(p.position)
	} else {
		q.mu.lingering.insert(p)
	}
	q.armLocked(p.deadline)
}

// relieveLocked ends the linger of the partitions with the oldest heads when the
// room left is too small for what arrives and slotFree says that a batch could
// leave at once. It reports whether it made one due.
func (q *queue[T]) relieveLocked(slotFree bool) bool {
	if !slotFree || q.mu.lingering.Len() == 0 {
		return false
	}
	need := max(share(q.set.capacity, pressureRoom), q.mu.recent.max()) - (q.set.capacity - q.mu.used)
	if w := q.mu.waiters.first(); w != nil {
		need = max(need, q.mu.used+w.size-q.set.capacity)
	}
	if need <= 0 {
		return false
	}
	for _, p := range q.mu.due.all() {
		if need -= p.held.size; need <= 0 {
			return false
		}
	}
	made := false
	for need > 0 && q.mu.lingering.Len() > 0 {
		p := q.mu.lingering.first()
		if p.held.size < share(q.set.capacity, pressureHeld) && len(q.mu.active) > q.mu.waiting {
			break
		}
		need -= p.held.size
		q.makeDueLocked(p, triggerPressure)
		made = true
	}
	return made
}

// share is 1/n of a capacity, rounded up.
func share(capacity, n int64) int64 { return capacity/n + min(capacity%n, 1) }

// slotFreeLocked says whether another call into the wrapped exporter may run.
func (q *queue[T]) slotFreeLocked() bool {
	return q.mu.running-(q.mu.parked-q.mu.signaled) < q.set.slots
}

// wakeLocked finds a worker for what has become due. One is enough: a worker that
// leaves something due behind wakes the next.
func (q *queue[T]) wakeLocked() {
	switch {
	case q.mu.ready.len() == 0 && q.mu.due.len() == 0, q.mu.halted:
	case q.mu.parked > q.mu.signaled:
		q.mu.signaled++
		q.parked.Signal()
	case q.mu.running < q.set.slots:
		q.mu.running++
		go q.work()
	}
}

// wake finds a worker for what is due, for who is none.
func (q *queue[T]) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeLocked()
}

// next waits for the next batch that may be sent and returns it; the caller has
// a slot until it calls next again. A new batch is made in fresh. next returns
// nil when the worker must end.
func (q *queue[T]) next(fresh *batch[T]) *batch[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.mu.halted {
		if b := q.tryNextLocked(fresh); b != nil {
			q.wakeLocked()
			return b
		}
		if q.mu.parked >= keptWorkers {
			break
		}
		q.mu.parked++
		q.parked.Wait()
		q.mu.parked--
		q.mu.signaled = max(q.mu.signaled-1, 0)
	}
	q.mu.running--
	q.endLocked()
	return nil
}

// tryNextLocked returns a batch that may be sent now, if there is one: a retry
// first, then what is due, then what is in the way of others.
func (q *queue[T]) tryNextLocked(fresh *batch[T]) *batch[T] {
	if b := q.readyLocked(); b != nil {
		return b
	}
	for {
		if b := q.pullLocked(fresh); b != nil {
			return b
		}
		if !q.relieveLocked(true) {
			return nil
		}
	}
}

// endLocked tells when the last worker of a halted queue has ended.
func (q *queue[T]) endLocked() {
	if q.mu.halted && q.mu.running == 0 && !q.workersEnded() {
		close(q.ended)
	}
}

// readyLocked returns the batch whose backoff ended first, if there is one. It
// goes ahead of new pulls, or a steady load would starve it.
func (q *queue[T]) readyLocked() *batch[T] {
	for q.mu.ready.len() > 0 {
		b := q.mu.ready.pop()
		if !b.idle {
			continue // it was given up
		}
		q.claimLocked(b)
		q.watchRetryLocked(b)
		q.resumeLocked(b.part)
		return b
	}
	return nil
}

// pullLocked takes a batch of the partition whose turn it is, if one is due.
func (q *queue[T]) pullLocked(b *batch[T]) *batch[T] {
	for q.mu.due.len() > 0 {
		p := q.mu.due.pop()
		p.inTurn = false
		if q.heldBackLocked(p) || !p.due {
			continue
		}
		b.trigger = p.trigger
		q.takeLocked(p, b)
		q.placeLocked(p)
		p.active++
		p.pulledAt, p.mayTry = q.now(), false
		q.mu.active[b] = struct{}{}
		return b
	}
	return nil
}

// armLocked makes the timer fire at `at` or before. It is not moved to later: it
// then fires once for nothing, which is cheaper than to move it with each batch.
func (q *queue[T]) armLocked(at instant) {
	if q.mu.timerAt != 0 && q.mu.timerAt <= at || q.mu.halted {
		return
	}
	q.mu.timerAt = at
	d := time.Duration(at - q.now())
	if q.mu.timer == nil {
		q.mu.timer = time.AfterFunc(d, q.onTimer)
		return
	}
	q.mu.timer.Reset(d)
}

// onTimer ends what lasts until a moment that has come.
func (q *queue[T]) onTimer() { q.giveUpAll(q.endTimed(), dropExpired, errExpired) }

// endTimed ends the linger and the backoffs whose time has come, and the patience
// with calls that hang. It returns what has become too old.
func (q *queue[T]) endTimed() []*batch[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.halted {
		return nil
	}
	q.mu.timerAt = 0
	now := q.now()
	for q.mu.lingering.Len() > 0 && q.mu.lingering.first().deadline <= now {
		q.makeDueLocked(q.mu.lingering.first(), triggerTimeout)
	}
	for q.mu.backoff.Len() > 0 && q.mu.backoff.first().retryAt <= now {
		if b := q.mu.backoff.first(); !q.yieldsLocked(b, now) {
			q.mu.backoff.remove(b.position)
			q.mu.ready.push(b)
		}
	}
	q.endPatienceLocked(now)
	expired := q.expireLocked(now)
	q.wakeLocked()
	if q.mu.lingering.Len() > 0 {
		q.armLocked(q.mu.lingering.first().deadline)
	}
	if q.mu.backoff.Len() > 0 {
		q.armLocked(q.mu.backoff.first().retryAt)
	}
	return expired
}

// awaitWorkers waits for the workers of a halted queue to end. Its error says
// how many calls into the wrapped exporter have not returned when ctx ends.
func (q *queue[T]) awaitWorkers(ctx context.Context) error {
	select {
	case <-q.ended:
		return nil
	case <-ctx.Done():
	}
	if q.workersEnded() {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	calls := "1 call"
	if q.mu.running != 1 {
		calls = fmt.Sprintf("%d calls", q.mu.running)
	}
	return fmt.Errorf("%s into the wrapped exporter: cancelled, and still running", calls)
}

// workersEnded says whether the workers of a halted queue have ended.
func (q *queue[T]) workersEnded() bool {
	select {
	case <-q.ended:
		return true
	default:
		return false
	}
}
