// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"container/heap"
)

// partition is one first-in-first-out list of requests, from which batches are
// taken. It has no goroutine and no timer of its own. All fields are guarded by the
// queue's mutex.
type partition[T any] struct {
	head, tail *chunk[T]
	held       totals // of all that is queued, less what was cut off the first

	due      bool    // a batch of it may leave
	inTurn   bool    // it is in the ring
	trigger  trigger // what made it due
	deadline instant // when its oldest request has waited flush_timeout
	position int     // in the heap of lingering partitions; -1 if not there

	active   int // batches taken from it that are not settled
	failing  int // those of them that have failed
	backoff  int // those of them that wait out a backoff, or for a slot after it
	stubborn int // those that have failed stubbornAfter times

	// While the destination refuses what p sends, one batch asks again, and the
	// others that were refused wait for its answer.
	prober *batch[T]
	kept   []*batch[T]
}

// front returns the first chunk that holds a request, or nil.
func (p *partition[T]) front() *chunk[T] {
	for p.head != nil && p.head.from == p.head.to && p.head.next != nil {
		p.head = p.head.next
	}
	if p.head == nil || p.head.from == p.head.to {
		return nil
	}
	return p.head
}

// idle says whether p neither holds nor sends anything.
func (p *partition[T]) idle() bool { return p.held.requests == 0 && p.active == 0 }

// push appends a request, for which the last chunk must have room.
func (p *partition[T]) push(e entry[T]) {
	p.tail.push(e)
	p.held.add(e.totals())
}

// extend appends an empty chunk.
func (p *partition[T]) extend(c *chunk[T], now *epoch) {
	c.epoch = now
	if p.tail == nil {
		p.head = c
	} else {
		p.tail.next = c
	}
	p.tail = c
}

// needsChunk says whether the last chunk has no room for a request of now.
func (p *partition[T]) needsChunk(now *epoch) bool {
	return p.tail == nil || p.tail.to == chunkEntries || p.tail.epoch != now
}

// takeChunk moves all requests of c, the front, to r.
func (p *partition[T]) takeChunk(c *chunk[T], r *run[T]) totals {
	t := c.held
	r.extend(c, c.from, c.to)
	p.held.sub(t)
	c.from, c.held = c.to, totals{}
	p.drop(c)
	return t
}

// takeFirst moves the first request of c, the front, to r.
func (p *partition[T]) takeFirst(c *chunk[T], r *run[T]) totals {
	t := c.entries[c.from].totals()
	r.extend(c, c.from, c.from+1)
	p.shift(c, t)
	return t
}

// shift removes the first request of c, of which t is still accounted for.
func (p *partition[T]) shift(c *chunk[T], t totals) {
	c.from++
	c.held.sub(t)
	p.held.sub(t)
	p.drop(c)
}

// trim takes t, a part of the first request of c, off what is accounted for.
func (p *partition[T]) trim(c *chunk[T], t totals) {
	c.held.sub(t)
	p.held.sub(t)
}

// drop lets go of c, the front, once it is used up.
func (p *partition[T]) drop(c *chunk[T]) {
	if c.from < chunkEntries {
		return
	}
	p.head = c.next
	if p.head == nil {
		p.tail = nil
	}
}

// timed is what a deadlines heap holds.
type timed interface {
	when() instant
	moved(position int)
}

// deadlines is a heap of what waits for a moment, the earliest first.
type deadlines[E timed] struct{ list []E }

func (d *deadlines[E]) Len() int           { return len(d.list) }
func (d *deadlines[E]) Less(i, j int) bool { return d.list[i].when() < d.list[j].when() }

func (d *deadlines[E]) Swap(i, j int) {
	d.list[i], d.list[j] = d.list[j], d.list[i]
	d.list[i].moved(i)
	d.list[j].moved(j)
}

// Push and Pop are for package heap; use insert and remove.
func (d *deadlines[E]) Push(x any) {
	e := x.(E)
	e.moved(len(d.list))
	d.list = append(d.list, e)
}

func (d *deadlines[E]) Pop() any {
	n := len(d.list) - 1
	e := d.list[n]
	var none E
	d.list[n] = none
	d.list = d.list[:n]
	e.moved(-1)
	return e
}

func (d *deadlines[E]) insert(e E)          { heap.Push(d, e) }
func (d *deadlines[E]) remove(position int) { heap.Remove(d, position) }
func (d *deadlines[E]) fix(position int)    { heap.Fix(d, position) }

// first returns the earliest; there must be one.
func (d *deadlines[E]) first() E { return d.list[0] }

func (p *partition[T]) when() instant      { return p.deadline }
func (p *partition[T]) moved(position int) { p.position = position }

func (b *batch[T]) when() instant      { return b.retryAt }
func (b *batch[T]) moved(position int) { b.position = position }
