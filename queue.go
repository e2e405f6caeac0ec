// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/xpdata/pref"

	"github.com/pullbatch/batcherexporter/internal/payload"
)

// errStopping answers requests that come after Shutdown has begun. It is
// retryable: another collector may take the data.
var errStopping = errors.New("the exporter is stopping")

// instant is a moment, in nanoseconds since the queue was made.
type instant int64

// after returns the moment d later. A backend may ask for a delay of centuries,
// which must not come round to the past.
func (t instant) after(d time.Duration) instant {
	if d > time.Duration(math.MaxInt64-int64(t)) {
		return math.MaxInt64
	}
	return t + instant(max(d, 0))
}

// unit is what a size counts.
type unit uint8

const (
	unitRequests unit = iota
	unitItems
	unitBytes
)

func (u unit) String() string { return [...]string{"requests", "items", "bytes"}[u] }

// queueSettings are what a queue runs with; they come from the configuration
// after hoisting.
type queueSettings struct {
	unit            unit          // of capacity
	capacity        int64         // in unit
	slots           int           // calls into the wrapped exporter at the same time
	patience        time.Duration // after which a call that hangs holds back nothing: the longest backoff
	maxAge          time.Duration // after which data is given up; 0: never
	dropOldest      bool          // new data takes the room of the oldest
	blockOnOverflow bool
	waitForResult   bool
	batch           batchSettings
}

// queue is the pull-based queue of one signal. It admits requests, decides when
// a batch is due and who may send it, and accounts for every request until it is
// settled.
//
// Invariants, at every moment that the lock is free:
//
//  1. A batch is formed when it can be sent: a pull happens when a partition is
//     due and a slot is free, both decided under the one lock. Nobody holds a
//     slot while waiting for data.
//  2. No batch is above its bounds, on any path, but one of a single item.
//  3. A request counts against the capacity from offer until it is settled, and
//     nothing is held outside that account.
//  4. accepted = sent + dropped + pending, in items.
//  5. A request is settled once, when its last piece is.
//
// A worker per partition with a channel was the simpler design: it forms batches
// before anyone can send them, which is memory without a bound while the backend
// is slow, and it needs a goroutine and a timer per partition.
//
// Lock order: nothing is called under the queue's mutex that takes another lock.
type queue[T any] struct {
	// Fixed after construction.
	set    queueSettings
	signal payload.Signal[T]
	merger payload.Merger[T]
	base   time.Time
	pooled bool            // data kept after Consume has to be referenced
	life   context.Context // ends when the queue is halted
	end    context.CancelFunc
	work   func() // what a worker runs: it calls next until that returns nil
	// giveUp settles a batch that is not sent; set once, by who made the queue.
	giveUp func(b *batch[T], why dropReason, err error)
	ended  chan struct{} // closed when the queue is halted and the last worker has ended
	over   chan struct{} // closed when the queue is abandoned
	only   *partition[T] // the one without a key

	mu struct {
		mutex

		used     int64 // capacity taken, in set.unit
		accepted int64 // items, ever
		sent     int64
		dropped  int64
		pending  int64 // items
		recent   recentMax
		waiters  waitList // offers that wait for room

		partitions map[string]*partition[T]
		due        ring[*partition[T]]      // those whose turn comes
		lingering  deadlines[*partition[T]] // those with requests that are not due
		ready      ring[*batch[T]]          // batches whose backoff is over
		backoff    deadlines[*batch[T]]     // batches that wait
		active     map[*batch[T]]struct{}   // batches that are not settled
		waiting    int                      // those of them that wait for their next attempt
		patient    []*partition[T]          // those held back by a call that has time left to answer

		running  int // workers, the parked ones included
		parked   int // workers that wait for work; every other one has a slot
		signaled int // parked workers that were woken and have not run yet

		timer   *time.Timer
		timerAt instant // when the timer fires; 0: it does not

		current    *epoch // of requests that are offered now
		oldest     *epoch // with pending requests, or current
		lastSealed *epoch // the newest that a flush sealed; nil: none

		// A stop has begun while the backend is away: what is queued has one more
		// attempt each. Until something is delivered.
		lastAttempts bool
		stopBegan    instant // 0: it has not
		stopping     bool    // nothing is admitted
		halted       bool    // nothing is sent
		abandoned    bool    // nothing is pending
	}
	parked sync.Cond // on mu: workers wait for work

	// Set by abandon, then its caller's: batches that no worker will see again, and
	// how many items of all that were given up had been delivered.
	given     []*batch[T]
	delivered int64

	spare  atomic.Pointer[chunk[T]] // a large one; atomic, so that it is refilled without the lock
	small  atomic.Pointer[chunk[T]] // the same of firstEntries
	chunks sync.Pool                // of large *chunk[T] that are used up
}

func newQueue[T any](set queueSettings, signal payload.Signal[T], merger payload.Merger[T], work func()) *queue[T] {
	q := &queue[T]{
		set:    set,
		signal: signal,
		merger: merger,
		base:   time.Now(),
		pooled: pref.UseProtoPooling.IsEnabled(),
		work:   work,
		ended:  make(chan struct{}),
		over:   make(chan struct{}),
	}
	q.life, q.end = context.WithCancel(context.Background())
	q.parked.L = &q.mu.mutex
	q.only = &partition[T]{position: -1}
	q.mu.partitions = map[string]*partition[T]{"": q.only}
	q.mu.active = map[*batch[T]]struct{}{}
	q.mu.current = newEpoch()
	q.mu.oldest = q.mu.current
	q.refillSpare()
	return q
}

func (q *queue[T]) now() instant { return instant(time.Since(q.base)) + 1 }

// offer admits a request. With wait_for_result it returns what to await.
//
// The error says that the request was not admitted. It is permanent if the
// request is larger than the queue, and retryable if the queue is full, if ctx
// ended while waiting for room, or if the exporter stops.
func (q *queue[T]) offer(ctx context.Context, data T) (*settlement[T], error) {
	// The clock comes first: reading it waits for all loads before it, and those of
	// data that is in no cache must be free to overlap with what follows.
	e := entry[T]{data: data, ctx: ctx, at: q.now()}
	if e.items = q.signal.Items(data); e.items == 0 {
		return nil, nil
	}
	q.measure(&e)
	if e.size > q.set.capacity {
		return nil, consumererror.NewPermanent(fmt.Errorf(
			"a request of %d %s can never fit a `queue_size` of %d: raise it, or send smaller requests",
			e.size, q.set.unit, q.set.capacity))
	}
	if q.pooled {
		q.signal.Ref(data)
	}
	if err := q.admit(ctx, e); err != nil {
		if q.pooled {
			q.signal.Unref(data)
		}
		return nil, err
	}
	q.refillSpare()
	if q.set.waitForResult {
		return e.rare, nil
	}
	return nil, nil
}

// indexAbove and indexAboveBytes are the numbers of items and bytes above which a
// request brings its index of sizes with it. Smaller ones are sized under the lock,
// and only if they become the boundary of a batch, which is cheaper than an index
// for each.
//
// What counts is how long others wait for the lock then, whatever the request holds.
// An index of 32 KiB of usual records takes 5 µs, and one of the worst content, which
// is scopes and resources without anything in them, of two bytes each, a third of a
// millisecond. Half as much would have usual requests of a hundred items sized twice.
const (
	indexAbove      = 128
	indexAboveBytes = 32 << 10
)

// measure sets the sizes of e, in its caller and while its data is in the cache.
// Its bytes are counted once, whoever asks for them, but for profiles and for few
// large items: that is most of what an offer costs.
func (q *queue[T]) measure(e *entry[T]) {
	var sizes *payload.Index
	if q.set.batch.countsBytes() {
		sizes, e.cost = q.sizesOf(e)
	}
	switch q.set.unit {
	case unitRequests:
		e.size = 1
	case unitItems:
		e.size = int64(e.items)
	case unitBytes:
		if e.size = int64(e.cost); e.size == 0 || !q.signal.ExactCost() {
			e.size = int64(q.signal.Bytes(e.data))
		}
	}
	if sizes == nil && !q.set.waitForResult {
		return
	}
	e.rare = &settlement[T]{data: e.data, ctx: e.ctx, items: e.items, size: e.size, sizes: sizes}
	if q.set.waitForResult {
		e.rare.done = make(chan struct{})
	}
}

// sizesOf returns the cost of e, and its index if that must not be made under the
// lock. Where the cost is not that of the bytes alone, because a dictionary is shared,
// no number bounds what an index takes, so all have it made here.
func (q *queue[T]) sizesOf(e *entry[T]) (*payload.Index, int) {
	limit := toInt(q.set.batch.maxBytes)
	if limit > 0 && (e.items > indexAbove || !q.signal.ExactCost()) {
		ix := q.signal.Index(e.data, true, limit)
		cost := ix.Whole()
		return ix, cost
	}
	cost := q.signal.Cost(e.data, limit)
	if limit > 0 && cost > indexAboveBytes && e.items > 1 {
		return q.signal.Index(e.data, true, limit), cost
	}
	return nil, cost
}

// refillSpare makes the chunks that the next offers may need. Allocating them under
// the lock would make every producer wait for the page faults of one.
func (q *queue[T]) refillSpare() {
	if q.small.Load() == nil {
		q.small.CompareAndSwap(nil, newChunk[T](firstEntries))
	}
	if q.spare.Load() != nil {
		return
	}
	c, _ := q.chunks.Get().(*chunk[T])
	if c == nil {
		c = newChunk[T](chunkEntries)
	}
	if !q.spare.CompareAndSwap(nil, c) {
		q.chunks.Put(c) // another producer was faster
	}
}

// takeSpareLocked returns an empty chunk for p.
func (q *queue[T]) takeSpareLocked(p *partition[T]) *chunk[T] {
	spare, entries := &q.small, firstEntries
	if p.grows() {
		spare, entries = &q.spare, chunkEntries
	}
	if c := spare.Swap(nil); c != nil {
		return c
	}
	return newChunk[T](entries) // other producers were faster than the refill
}

// recycle keeps the chunks of a run, whose entries have moved, for other requests:
// all but the first and the last, which other runs may have a part of, and which
// may not be used up. Fresh memory costs a small request a twentieth of its offer.
func (q *queue[T]) recycle(r *run[T]) {
	if q.set.waitForResult {
		return // a caller that leaves may still look at where its request was
	}
	for c := r.first; c != r.last; {
		next := c.next
		if c != r.first && len(c.entries) == chunkEntries {
			c.from, c.to, c.held, c.epoch, c.next = 0, 0, totals{}, nil, nil
			q.chunks.Put(c)
		}
		c = next
	}
}

// admit appends e as soon as there is room: it makes some where new data has a
// right to it, or waits, if the queue blocks.
func (q *queue[T]) admit(ctx context.Context, e entry[T]) error {
	w, err := q.tryAdmit(e, true)
	for errors.Is(err, exporterhelper.ErrQueueIsFull) && q.makeRoom(e.size) {
		w, err = q.tryAdmit(e, false)
	}
	if w != nil {
		return q.waitForRoom(ctx, w, e)
	}
	return err
}

// tryAdmit appends e if there is room. If not, the queue is full, or the caller has
// to wait if the queue blocks. first says that the request has not been seen before.
func (q *queue[T]) tryAdmit(e entry[T], first bool) (*waiter, error) {
	q.mu.Lock()
	if q.mu.stopping {
		q.mu.Unlock()
		return nil, errStopping
	}
	if first {
		q.mu.recent.note(e.size)
	}
	if q.mu.used+e.size <= q.set.capacity && q.mu.waiters.empty() {
		q.mu.used += e.size
		q.appendLocked(e)
		q.mu.Unlock()
		return nil, nil
	}
	if q.relieveLocked(q.slotFreeLocked()) {
		q.wakeLocked()
	}
	if !q.set.blockOnOverflow {
		used := q.mu.used
		q.mu.Unlock()
		return nil, fmt.Errorf("%w: %d of %d %s are taken and the request needs %d",
			exporterhelper.ErrQueueIsFull, used, q.set.capacity, q.set.unit, e.size)
	}
	w := &waiter{size: e.size, wake: make(chan struct{})}
	q.mu.waiters.push(w)
	q.mu.Unlock()
	return w, nil
}

// waitForRoom waits until settle grants w its room.
//
// Walk of the race that the second look guards: settle grants w the room, then
// this goroutine sees ctx end. Without the look the room would be lost for ever.
func (q *queue[T]) waitForRoom(ctx context.Context, w *waiter, e entry[T]) error {
	select {
	case <-w.wake:
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case !w.granted:
		q.mu.waiters.remove(w)
		q.grantLocked() // w may have been what held up the others
		if q.mu.stopping {
			return errStopping
		}
		return fmt.Errorf("%w: gave up waiting for room for %d %s: %w",
			exporterhelper.ErrQueueIsFull, e.size, q.set.unit, context.Cause(ctx))
	case q.mu.abandoned:
		return errStopping
	case q.mu.stopping:
		q.mu.used -= e.size
		return errStopping
	}
	e.at = q.now()
	q.appendLocked(e)
	return nil
}

// await returns the outcome of a request: the error that it was settled with, or
// ctx's own if that ends first, while the request goes on.
func (q *queue[T]) await(ctx context.Context, s *settlement[T]) error {
	select {
	case <-s.done:
	case <-ctx.Done():
		q.giveUpAll(q.leaves(s), dropCallersGone, fmt.Errorf("%w: %w", errCallersGone, context.Cause(ctx)))
		return s.errOr(ctx.Err())
	case <-q.over:
		return s.errOr(errStopping)
	}
	return s.err
}

// appendLocked queues e, whose capacity is taken, and wakes a worker if that
// makes its partition due.
func (q *queue[T]) appendLocked(e entry[T]) {
	ep := q.mu.current
	ep.pending++
	q.mu.accepted += int64(e.items)
	q.mu.pending += int64(e.items)
	p := q.only
	if p.needsChunk(ep) {
		p.extend(q.takeSpareLocked(p), ep)
	}
	p.push(e)
	if s := e.rare; s != nil {
		s.epoch, s.at = ep, p.tail.to-1
		s.chunk.Store(p.tail)
	}
	q.armExpiryLocked(p)
	switch {
	case p.due:
		return
	case q.set.batch.full(p.held):
		q.makeDueLocked(p, triggerSize)
	default:
		if p.position < 0 {
			q.lingerLocked(p, e.at)
		}
		if !q.relieveLocked(q.slotFreeLocked()) {
			return
		}
	}
	q.wakeLocked()
}

// grantLocked gives freed capacity to the offers that wait, in order: one that
// does not fit holds up those behind it, so that a large request is not starved.
func (q *queue[T]) grantLocked() {
	for w := q.mu.waiters.first(); w != nil; w = q.mu.waiters.first() {
		if q.mu.used+w.size > q.set.capacity {
			return
		}
		q.mu.used += w.size
		q.mu.waiters.remove(w)
		w.granted = true
		close(w.wake)
	}
}

// settle gives every request of b its outcome and its capacity back, under one
// acquisition of the lock. It reports false if the queue was abandoned while b
// was in flight, which settled it.
func (q *queue[T]) settle(b *batch[T], o outcome) bool {
	o.attribute()
	if q.pooled {
		defer q.unref(b) // after the lock is free: it walks the data
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.mu.active[b]; !ok {
		return false
	}
	delete(q.mu.active, b)
	dropped := o.dropped()
	q.mu.sent += int64(o.sent)
	q.mu.dropped += int64(dropped)
	q.mu.pending -= int64(o.sent + dropped)
	q.mu.used -= b.held.size
	b.epoch.pending -= b.held.requests
	b.epoch.lose(int64(dropped), o.joined)
	for _, w := range b.waiting {
		w.of.waitsIn = nil
		w.of.err = o.errOf(w.source)
		close(w.of.done)
	}
	for _, p := range b.pieces {
		if q.settlePieceLocked(b, p, o.errOf(p.source)) {
			b.completed = append(b.completed, p.of)
		}
	}
	p := b.part
	p.active--
	q.answeredLocked(b, &o)
	q.resumeLocked(p)
	q.sealLocked()
	q.grantLocked()
	return true
}

// callersGone says whether every caller that waited for b has given up, so that
// nobody would learn of its outcome. It is false where nobody waits.
func (q *queue[T]) callersGone(b *batch[T]) bool {
	if !q.set.waitForResult || b.content.sources == 0 {
		return false
	}
	for _, w := range b.waiting {
		if !w.of.gone.Load() {
			return false
		}
	}
	for _, p := range b.pieces {
		if !p.of.gone.Load() {
			return false
		}
	}
	return true
}

// settlePieceLocked gives a piece its outcome, and its request if it is the last,
// which it reports.
func (q *queue[T]) settlePieceLocked(b *batch[T], p piece[T], err error) (last bool) {
	s := p.of
	s.settled += p.to - p.from
	s.errs.add(err)
	s.waitsIn = slices.DeleteFunc(s.waitsIn, func(w *batch[T]) bool { return w == b })
	if s.settled < s.items {
		return false
	}
	s.err, s.errs = s.errs.join(), errorSet{}
	q.mu.used -= s.size
	s.epoch.pending--
	if s.done != nil {
		close(s.done)
	}
	return true
}

// unref gives back the references to the requests that the end of b has settled,
// but for those that were given back when they were merged.
func (q *queue[T]) unref(b *batch[T]) {
	if b.content.kept {
		q.signal.Unref(b.content.keeps)
	}
	for _, s := range b.completed {
		q.signal.Unref(s.data)
	}
}

// stats is a snapshot of the queue, taken under the lock.
func (q *queue[T]) stats() queueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := queueStats{Size: q.mu.used, Capacity: q.set.capacity, Accepted: q.mu.accepted}
	oldest := q.now()
	now := oldest
	for _, p := range q.mu.partitions {
		if !p.idle() {
			s.Partitions++
		}
		s.BackoffBatches += int64(p.backoff)
		if c := p.front(); c != nil {
			oldest = min(oldest, c.entries[c.from].at)
		}
	}
	for b := range q.mu.active {
		oldest = min(oldest, b.oldest)
	}
	s.OldestAge = time.Duration(now - oldest)
	return s
}
