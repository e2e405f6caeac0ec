// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"container/heap"
	"time"
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
	prober   *batch[T]
	kept     []*batch[T]
	refusing bool          // what it answered last was a refusal
	refusals int           // since it accepted something
	pace     time.Duration // the longest backoff since then
	mayTry   bool          // a new batch may ask
	yielded  bool          // to one, when the prober's time came last

	pulledAt instant     // when a batch was taken last
	retrying []*batch[T] // in flight again, the longest first, but for those that hang
	patient  bool        // it is in the list of those that wait for an answer
	ages     deadlines[aged[T]]
	idleSize int64 // of the whole requests in these
}

// front returns the first chunk that holds a request, or nil. It passes over requests
// that were taken back.
func (p *partition[T]) front() *chunk[T] {
	for c := p.head; c != nil; c = p.head {
		for c.from < c.to && c.entries[c.from].items == 0 {
			c.from++
		}
		switch {
		case c.from < c.to:
			return c
		case c.from == len(c.entries):
			p.drop(c)
		case c.next == nil:
			return nil
		default:
			p.head = c.next
		}
	}
	return nil
}

// takeBack removes a request that is queued, and which no batch has a part of.
func (p *partition[T]) takeBack(c *chunk[T], s *settlement[T]) totals {
	e := &c.entries[s.at]
	t := e.totals()
	c.held.sub(t)
	p.held.sub(t)
	*e = entry[T]{at: e.at}
	return t
}

// forget lets go of all that p holds.
func (p *partition[T]) forget() {
	p.head, p.tail, p.held = nil, nil, totals{}
	p.prober, p.kept, p.ages.list, p.retrying = nil, nil, nil, nil
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
	return p.tail == nil || p.tail.full() || p.tail.epoch != now
}

// grows says whether the chunk that is needed may be a large one, since the last
// one was filled.
func (p *partition[T]) grows() bool { return p.tail != nil && p.tail.full() }

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
	if c.from < len(c.entries) {
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
func (d *deadlines[E]) init()               { heap.Init(d) }

// first returns the earliest; there must be one.
func (d *deadlines[E]) first() E { return d.list[0] }

func (p *partition[T]) when() instant      { return p.deadline }
func (p *partition[T]) moved(position int) { p.position = position }

func (b *batch[T]) when() instant      { return b.retryAt }
func (b *batch[T]) moved(position int) { b.position = position }

// aged is a batch in the order of age, which says what is given up first.
type aged[T any] struct{ *batch[T] }

func (a aged[T]) when() instant      { return a.newest }
func (a aged[T]) moved(position int) { a.place = position }
