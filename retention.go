// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"errors"
	"math"
)

// What is given up before it is sent: what became too old, what is in the way of
// new data, and what nobody waits for any more. It is on one path: an ordinary
// pull, or a batch that waits for its next attempt, whose loss is decided
// beforehand. It takes no slot, since all may hang.

var (
	errExpired     = errors.New("the data is older than `sending_queue::max_age`")
	errEvicted     = errors.New("the queue is full, and its oldest data makes room for new data")
	errUnreachable = errors.New("the queue is full, and the destination refuses what is in it:" +
		" the oldest makes room for new data, as without a queue it would have been dropped at once")
)

// giveUpAll gives up batches that their takers own.
func (q *queue[T]) giveUpAll(batches []*batch[T], why dropReason, err error) {
	for _, b := range batches {
		q.giveUp(b, why, err)
	}
}

// expireLocked takes what has reached `max_age`. A batch goes once all of it has.
func (q *queue[T]) expireLocked(now instant) (expired []*batch[T]) {
	if q.set.maxAge == 0 {
		return nil
	}
	cutoff := now - instant(q.set.maxAge)
	for _, p := range q.mu.partitions {
		for c := p.front(); c != nil && c.entries[c.from].at <= cutoff; c = p.front() {
			expired = append(expired, q.takeDoomedLocked(p, &batch[T]{}, math.MaxInt64, cutoff))
		}
		for p.ages.Len() > 0 && p.ages.first().newest <= cutoff {
			b := p.ages.first().batch
			q.takeIdleLocked(b)
			expired = append(expired, b)
		}
		q.armExpiryLocked(p)
	}
	return expired
}

// armExpiryLocked makes the timer fire when the oldest of p has reached `max_age`.
func (q *queue[T]) armExpiryLocked(p *partition[T]) {
	if q.set.maxAge == 0 {
		return
	}
	if c := p.front(); c != nil {
		q.armLocked(c.entries[c.from].at.after(q.set.maxAge))
	}
	if p.ages.Len() > 0 {
		q.armLocked(p.ages.first().newest.after(q.set.maxAge))
	}
}

// evictsLocked says whether new data has a right to the room of what is oldest in
// p, and why.
//
// While the destination refuses us the plain exporter would have dropped that at
// once, so we must not refuse callers for its sake, unless they wait anyhow.
func (q *queue[T]) evictsLocked(p *partition[T]) (dropReason, error) {
	switch {
	case q.set.dropOldest:
		return dropEvicted, errEvicted
	case p.refusing && !q.set.blockOnOverflow && !q.set.waitForResult:
		return dropDestination, errUnreachable
	}
	return "", nil
}

// makeRoom gives up the oldest data that no worker has, until size fits or nothing
// of that is left. It reports whether it gave up anything.
func (q *queue[T]) makeRoom(size int64) bool {
	fresh := &batch[T]{}
	q.mu.Lock()
	b, why, err := q.evictLocked(fresh, q.mu.used+size-q.set.capacity)
	q.mu.Unlock()
	if b == nil {
		return false
	}
	q.giveUp(b, why, err)
	return true
}

// evictLocked takes what is oldest, as much as is needed: of what is queued only
// that, in whole requests, and a batch that waits as a whole.
func (q *queue[T]) evictLocked(fresh *batch[T], need int64) (*batch[T], dropReason, error) {
	p := q.only
	why, err := q.evictsLocked(p)
	if err == nil || q.mu.abandoned || need > p.held.size+p.idleSize {
		return nil, "", nil // what is being sent keeps its room, so nothing must be lost for nothing
	}
	c := p.front()
	if p.ages.Len() > 0 {
		if b := p.ages.first().batch; c == nil || b.oldest <= c.entries[c.from].at {
			q.takeIdleLocked(b)
			return b, why, err
		}
	}
	if c == nil {
		return nil, "", nil
	}
	return q.takeDoomedLocked(p, fresh, max(need, 1), math.MaxInt64), why, err
}

// takeDoomedLocked takes requests from the head of p for b, as a pull does, until
// they have the size, and those only that were accepted until `until`.
func (q *queue[T]) takeDoomedLocked(p *partition[T], b *batch[T], size int64, until instant) *batch[T] {
	for c := p.front(); c != nil && (b.epoch == nil || c.epoch == b.epoch); c = p.front() {
		e := &c.entries[c.from]
		if b.held.size >= size || e.at > until {
			break
		}
		if b.epoch == nil {
			b.begin(p, c)
		}
		if s := e.rare; s != nil && s.taken > 0 {
			b.pieces = append(b.pieces, piece[T]{of: s, from: s.taken, to: s.items})
			q.freeRestLocked(b, s)
			b.items += s.items - s.taken
			s.taken = s.items
			p.shift(c, e.totals())
			*e = entry[T]{}
			continue
		}
		b.took(p.takeFirst(c, &b.run))
	}
	q.placeLocked(p)
	p.active++
	q.mu.active[b] = struct{}{}
	return b
}

// freeRestLocked gives back the room of the rest of a request that is cut, with b: who
// has the other pieces may take long. A request counts as one until it is settled.
func (q *queue[T]) freeRestLocked(b *batch[T], s *settlement[T]) {
	if q.set.unit == unitRequests {
		return
	}
	free := s.size * int64(s.items-s.taken) / int64(s.items)
	s.size -= free
	b.held.size += free
}

// discard lets go of the data of a batch that was taken to be given up, and finds
// out who waits for it.
func (q *queue[T]) discard(b *batch[T]) {
	for e := range b.run.all {
		if e.items == 0 {
			continue // it was taken back
		}
		if e.rare != nil {
			e.rare.chunk.Store(nil)
		}
		if e.rare != nil && e.rare.done != nil {
			b.waiting = append(b.waiting, waitedFor[T]{of: e.rare})
		}
		if q.pooled {
			q.signal.Unref(e.data)
		}
		*e = entry[T]{}
	}
	q.recycle(&b.run)
	b.run = run[T]{}
}

// leaves notes that the caller of s has gone, and takes the batches that nobody
// waits for any more.
func (q *queue[T]) leaves(s *settlement[T]) (gone []*batch[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s.gone.Store(true)
	if q.mu.halted {
		return nil // a stop gives up all of it
	}
	for _, b := range s.waitsIn {
		if b.callers--; b.callers == 0 && b.idle {
			gone = append(gone, b)
		}
	}
	for _, b := range gone {
		q.takeIdleLocked(b)
	}
	if b := q.takeBackLocked(s); b != nil {
		gone = append(gone, b)
	}
	return gone
}

// takeBackLocked takes the request of s out of its partition, as a batch of its own,
// if it is queued as a whole.
func (q *queue[T]) takeBackLocked(s *settlement[T]) *batch[T] {
	c := s.chunk.Load()
	if c == nil || s.taken > 0 || s.at < c.from || s.at >= c.to || c.entries[s.at].rare != s {
		return nil
	}
	p := q.only
	b := &batch[T]{part: p, epoch: c.epoch, position: -1, place: -1, oldest: c.entries[s.at].at, newest: c.entries[s.at].at}
	b.took(p.takeBack(c, s))
	b.waiting = append(b.waiting, waitedFor[T]{of: s})
	b.completed = append(b.completed, s) // which gives its data back
	s.chunk.Store(nil)
	q.placeLocked(p)
	p.active++
	q.mu.active[b] = struct{}{}
	return b
}

// goneLocked says whether nobody waits any more for b, which is about to wait for
// its next attempt. From then on its callers know where to tell that they have
// gone: there are many who never have to.
func (q *queue[T]) goneLocked(b *batch[T]) bool {
	if !q.set.waitForResult {
		return false
	}
	if !b.watched {
		b.watched = true
		for s := range b.requests {
			s.waitsIn = append(s.waitsIn, b)
			if !s.gone.Load() {
				b.callers++
			}
		}
	}
	return b.callers == 0
}

// requests yields what is known of the requests that b has a part of, where callers
// wait or requests are cut.
func (b *batch[T]) requests(yield func(*settlement[T]) bool) {
	for _, w := range b.waiting {
		if !yield(w.of) {
			return
		}
	}
	for _, p := range b.pieces {
		if !yield(p.of) {
			return
		}
	}
}
