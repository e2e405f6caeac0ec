// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"math"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pullbatch/batcherexporter/internal/payload"
)

// batchSettings are when a batch is due and how large it may be.
type batchSettings struct {
	unit         unit  // of minSize: items or bytes
	minSize      int64 // at or above it a partition is due
	maxItems     int64 // bound in items; 0: none
	maxBytes     int64 // bound in bytes of the export request; 0: none
	flushTimeout time.Duration
}

// countsBytes says whether batches need the bytes of requests.
func (s *batchSettings) countsBytes() bool { return s.unit == unitBytes || s.maxBytes > 0 }

// bounded says whether a batch has a bound at all.
func (s *batchSettings) bounded() bool { return s.maxItems > 0 || s.maxBytes > 0 }

// size is what t measures in the unit of min_size.
func (s *batchSettings) size(t totals) int64 {
	if s.unit == unitBytes {
		return int64(t.cost)
	}
	return int64(t.items)
}

// full says whether a partition that holds t is due by size: it holds min_size,
// or a full batch by any bound.
func (s *batchSettings) full(t totals) bool {
	return t.requests > 0 && s.size(t) >= s.minSize ||
		s.maxItems > 0 && int64(t.items) >= s.maxItems ||
		s.maxBytes > 0 && int64(t.cost) >= s.maxBytes
}

// room is how much more fits a batch.
type room struct{ items, bytes int }

func (s *batchSettings) room() room {
	r := room{math.MaxInt, math.MaxInt}
	if s.maxItems > 0 {
		r.items = toInt(s.maxItems)
	}
	if s.maxBytes > 0 {
		r.bytes = toInt(s.maxBytes)
	}
	return r
}

// toInt is v as an int, which has fewer bits on some machines.
func toInt(v int64) int { return int(min(v, math.MaxInt)) }

func (r room) fits(t totals) bool { return t.items <= r.items && t.cost <= r.bytes }

func (r *room) take(items, cost int) {
	r.items -= items
	r.bytes -= cost
}

// batch is what leaves in one call: a run of whole requests, with a piece of a
// request before and one behind it.
type batch[T any] struct {
	// Set by the pull, then fixed.
	part    *partition[T]
	epoch   *epoch
	trigger trigger
	oldest  instant // when its first request was accepted
	newest  instant // when its last one was, if data has an age limit; else oldest

	// Set by a pull under the lock, and emptied by the worker that forms the
	// batch, in turn.
	run        run[T]
	head, tail piece[T]
	room       room

	// Owned by the worker that runs the batch, and by nobody while it waits.
	held    totals     // of its whole requests: what settle gives back
	pieces  []piece[T] // its parts of requests that are cut
	items   int
	cost    int            // bytes that it has at the most, if bytes are counted
	waiting []waitedFor[T] // its whole requests that callers wait for
	content content[T]
	work    work[T]
	// Set when it is settled: cut requests that it completed.
	completed []*settlement[T]
	retries   retries

	// Guarded by the queue's mutex.
	retryAt   instant
	notBefore instant // the backend asked for that
	idle      bool    // no worker has it
	failures  int     // how often it had to wait
	woken     bool    // a success of another has ended a wait of its
	refusedAt instant // when the destination refused it last; 0: it has not
	outlived  bool    // the destination has accepted a later attempt of another since
	began     instant // its last attempt, once that has failed
	triedAt   instant // when its retry left
	position  int     // in the heap of backoffs; -1 if not there
	place     int     // in its partition's heap of idle batches; -1 if not there
	watched   bool    // its callers know that it waits
	callers   int     // that have not gone, once it is watched
}

// takeLocked moves the longest run from the head of p that fits the bounds to b,
// and cuts the request at the boundary. Without a bound it takes until min_size
// is reached, at least one request.
//
// A run ends where a flush has drawn its line: what is covered leaves without
// waiting for what is not.
func (q *queue[T]) takeLocked(p *partition[T], b *batch[T]) {
	if c := p.front(); c != nil && b.epoch == nil {
		b.begin(p, c)
		b.room = q.set.batch.room()
	}
	for {
		c := p.front()
		if c == nil || c.epoch != b.epoch {
			return
		}
		// A batch that will be refused must leave something to evict: what is being sent
		// keeps its room, and with all of it in flight callers would be refused.
		most := q.set.capacity
		if p.refusing {
			most = share(most, 2)
		}
		if b.held.size >= most {
			return
		}
		if b.held.size+c.held.size <= most && q.takesChunk(c, b) {
			q.agesLocked(b, c.entries[c.to-1].at)
			b.took(p.takeChunk(c, &b.run))
			continue
		}
		if !q.takeRequestLocked(p, c, b) {
			return
		}
	}
}

// agesLocked notes when the newest request of b was accepted, if that matters: to
// know it costs a look at an entry that is in no cache.
func (q *queue[T]) agesLocked(b *batch[T], at instant) {
	if q.set.maxAge > 0 {
		b.newest = max(b.newest, at)
	}
}

// begin makes b one of p, whose front is c.
func (b *batch[T]) begin(p *partition[T], c *chunk[T]) {
	b.part, b.epoch, b.oldest = p, c.epoch, c.entries[c.from].at
	b.newest, b.position, b.place = b.oldest, -1, -1
}

// takesChunk says whether all of c belongs to b, so that no entry has to be
// looked at.
func (q *queue[T]) takesChunk(c *chunk[T], b *batch[T]) bool {
	if r := c.entries[c.from].rare; r != nil && r.taken > 0 {
		return false
	}
	if q.set.batch.bounded() {
		return b.room.fits(c.held)
	}
	t := totals{items: b.items, cost: b.cost}
	t.add(c.held)
	return q.set.batch.size(t) < q.set.batch.minSize
}

// took accounts for whole requests.
func (b *batch[T]) took(t totals) {
	b.held.add(t)
	b.items += t.items
	b.cost += t.cost
	b.room.take(t.items, t.cost)
}

// takeRequestLocked takes the first request of c, or as much of it as fits. It
// reports whether the run may go on.
func (q *queue[T]) takeRequestLocked(p *partition[T], c *chunk[T], b *batch[T]) bool {
	e := &c.entries[c.from]
	if e.rare != nil && e.rare.taken > 0 {
		return q.takePieceLocked(p, c, b)
	}
	q.agesLocked(b, e.at) // one that is not taken only makes b appear younger
	switch bounds := &q.set.batch; {
	case !bounds.bounded():
		b.took(p.takeFirst(c, &b.run))
		return bounds.size(totals{items: b.items, cost: b.cost}) < bounds.minSize
	case b.room.fits(e.totals()), e.items == 1 && b.items == 0:
		b.took(p.takeFirst(c, &b.run))
		return true
	case b.room.items <= 0 || b.room.bytes <= 0:
		return false
	case e.items == 1 && q.signal.ExactCost():
		return false // no index would make it fit
	}
	return q.takePieceLocked(p, c, b)
}

// takePieceLocked cuts as many items off the first request of c as fit. An item
// that fits no batch is taken alone.
func (q *queue[T]) takePieceLocked(p *partition[T], c *chunk[T], b *batch[T]) bool {
	e := &c.entries[c.from]
	s := q.cuttableLocked(c)
	from := s.taken
	to := s.items
	if left := to - from; left > b.room.items {
		to = from + max(b.room.items, 0)
	}
	if s.sizes != nil {
		to = min(to, s.sizes.Fit(from, b.room.bytes))
	}
	if to <= from {
		if b.items > 0 {
			return false
		}
		to = from + 1
	}
	atHead := b.takePiece(s, from, to)
	s.taken = to
	if to == s.items {
		p.shift(c, e.totals())
		*e = entry[T]{} // no run will see it, and a chunk may last
		return atHead
	}
	cut := totals{items: to - from}
	if s.sizes != nil {
		cut.cost = e.cost - s.sizes.Cost(to, s.items)
		e.cost -= cut.cost
	}
	e.items -= cut.items
	p.trim(c, cut)
	return false
}

// takePiece adds items of a cut request, before the run if there is none yet. It
// reports whether the run may follow.
func (b *batch[T]) takePiece(s *settlement[T], from, to int) (atHead bool) {
	p := piece[T]{of: s, from: from, to: to}
	atHead = b.head.of == nil && b.run.first == nil
	if atHead {
		b.head = p
	} else {
		b.tail = p
	}
	cost := 0
	if s.sizes != nil {
		cost = s.sizes.Cost(from, to)
	}
	b.items += to - from
	b.cost += cost
	b.room.take(to-from, cost)
	return atHead
}

// cuttableLocked returns what is needed to cut the first request of c. A small
// one is sized here, under the lock, once per batch: of at most indexAbove items and
// indexAboveBytes, and of no signal whose data shares a dictionary.
func (q *queue[T]) cuttableLocked(c *chunk[T]) *settlement[T] {
	e := &c.entries[c.from]
	s := e.rare
	if s == nil {
		s = &settlement[T]{data: e.data, ctx: e.ctx, items: e.items, size: e.size, epoch: c.epoch}
		e.rare = s
	}
	if s.sizes == nil && q.set.batch.maxBytes > 0 {
		s.sizes = q.signal.Index(e.data, true, toInt(q.set.batch.maxBytes))
	}
	return s
}

// refilledBelow is the share of its byte bound below which a batch that joining
// has made smaller takes more.
const refilledBelow = 0.9

// refillLocked lets b take more of its partition, into the bytes that joining
// saved. It reports whether it took anything.
func (q *queue[T]) refillLocked(b *batch[T], saved int) bool {
	if q.mu.halted {
		return false
	}
	before := b.items
	b.room = q.set.batch.room()
	b.room.take(b.items, b.cost-saved)
	q.takeLocked(b.part, b)
	if b.items == before {
		return false
	}
	q.placeLocked(b.part)
	return true
}

// waitedFor is a request that a caller waits for, and the number of its source in
// the batch.
type waitedFor[T any] struct {
	of     *settlement[T]
	source int
}

// content is the data of a batch and what belongs to it.
type content[T any] struct {
	data     T
	sources  int             // requests and pieces that it is made of
	ctx      context.Context // of its only request
	links    []trace.Link    // to the spans of its requests, if there are several
	keeps    T               // the request whose data became the batch's
	kept     bool            // keeps is referenced until the batch is settled
	building payload.Batch[T]
	order    []payload.Run // which source each item is of, if callers wait for several
}

// form makes the data of b, outside the lock: it moves whole requests, cuts the
// pieces, and takes more where joining resources has left room.
func (q *queue[T]) form(b *batch[T]) {
	c := &b.content
	for {
		q.gather(b)
		if c.building == nil {
			return
		}
		if !q.takesMore(b, c.building.Saved()) {
			break
		}
	}
	c.data = c.building.Data()
	if q.set.waitForResult {
		c.order = c.building.Order()
	}
	c.building = nil
}

// takesMore refills b if it is clearly below its byte bound.
func (q *queue[T]) takesMore(b *batch[T], saved int) bool {
	limit := q.set.batch.maxBytes
	if limit == 0 || saved == 0 || float64(b.cost-saved) >= refilledBelow*float64(limit) {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refillLocked(b, saved)
}

// gather moves what a pull has assigned to b into its data, and lets go of the
// chunks. Each entry is cleared, so that a chunk keeps no data alive.
func (q *queue[T]) gather(b *batch[T]) {
	c := &b.content
	// The tail is cut first: the batch behind begins with the rest of that request,
	// and cuts that follow each other from the front move the fewest items.
	tail := q.cut(b.tail)
	q.addPiece(b, b.head, q.cut(b.head))
	for e := range b.run.all {
		if e.items == 0 {
			continue // it was taken back
		}
		first := c.sources == 0
		if e.rare != nil {
			e.rare.chunk.Store(nil)
		}
		if e.rare != nil && e.rare.done != nil {
			b.waiting = append(b.waiting, waitedFor[T]{e.rare, b.content.sources})
		}
		q.add(e.ctx, c, e.data)
		switch {
		case !q.pooled:
		case first:
			c.keeps, c.kept = e.data, true
		default:
			q.signal.Unref(e.data)
		}
		*e = entry[T]{}
	}
	q.addPiece(b, b.tail, tail)
	q.recycle(&b.run)
	b.run, b.head, b.tail = run[T]{}, piece[T]{}, piece[T]{}
}

// cut cuts a piece out of its request, if there is one.
func (q *queue[T]) cut(p piece[T]) (data T) {
	if p.of == nil {
		return data
	}
	return q.signal.Cut(p.of.data, p.of.positions(q.signal), p.from, p.to)
}

// addPiece adds a piece, whose data was cut out, if there is one.
func (q *queue[T]) addPiece(b *batch[T], p piece[T], data T) {
	if p.of == nil {
		return
	}
	p.source = b.content.sources
	b.pieces = append(b.pieces, p)
	q.add(p.of.ctx, &b.content, data)
}

// add appends data to the batch. A batch of one source is that source.
func (q *queue[T]) add(ctx context.Context, c *content[T], data T) {
	c.sources++
	if c.sources == 1 {
		c.data, c.ctx = data, ctx
		return
	}
	if c.sources == 2 {
		c.building = q.merger.Begin(q.set.waitForResult)
		c.building.Add(c.data)
		c.link(c.ctx)
		c.ctx = nil
	}
	c.building.Add(data)
	c.link(ctx)
}

// link remembers the span of a request, so that the batch's span can be linked
// to it.
func (c *content[T]) link(ctx context.Context) {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		c.links = append(c.links, trace.Link{SpanContext: sc})
	}
}
