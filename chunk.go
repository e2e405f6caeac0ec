// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/pullbatch/batcherexporter/internal/payload"
)

const (
	// chunkEntries is how many requests share one allocation: large enough that a
	// pull of thousands of small requests touches few headers.
	chunkEntries = 128
	// firstEntries is that for the first chunk of a partition, and for the chunk
	// behind one that was not filled: a partition that holds little, or a flush
	// after each request, must not cost 128 entries a request.
	firstEntries = 4
)

// entry is one queued request. Entries are kept by value and small, because the
// queue's lock is held while one is written.
type entry[T any] struct {
	data  T
	ctx   context.Context
	at    instant
	items int
	size  int64          // what it takes of the queue's capacity, in the queue's unit
	cost  int            // bytes that it adds to a batch; 0 where nothing is bounded by bytes
	rare  *settlement[T] // nil for the common request, which then costs no allocation
}

// settlement is what few requests need: those that a caller waits for, and those
// that several batches take part of.
type settlement[T any] struct {
	// Fixed before a batch takes the first piece.
	data  T
	ctx   context.Context
	items int
	size  int64
	epoch *epoch
	sizes *payload.Index // what its items cost, if batches are bounded by bytes

	// The index by which it is cut: sizes, or one that the first batch to cut the
	// request makes, outside the lock.
	index     *payload.Index
	indexOnce sync.Once

	// Guarded by the queue's mutex.
	taken   int         // items that batches took
	settled int         // items that have an outcome
	errs    errorSet    // of its pieces so far
	waitsIn []*batch[T] // batches with a part of it that have waited for an attempt

	// Where it is queued, as long as no batch has its data; its caller may take it back.
	// Set under the queue's mutex and cleared by the worker that moves the data: atomic,
	// so that no settlement keeps the chunks alive that were filled since.
	chunk atomic.Pointer[chunk[T]]
	at    int // in the chunk

	// The caller that waits, if one does.
	done chan struct{} // closed with the last outcome; nil if no caller waits
	err  error         // the outcome, set before done is closed
	gone atomic.Bool   // it has given up; atomic, since every attempt asks
}

// errOr returns the outcome if there is one, else err.
func (s *settlement[T]) errOr(err error) error {
	select {
	case <-s.done:
		return s.err
	default:
		return err
	}
}

// piece is a part of a request that several batches take.
type piece[T any] struct {
	of       *settlement[T] // nil: there is none
	from, to int
	source   int // its number in the batch, once that is formed
}

// positions returns the index by which the request is cut. Several batches may
// ask at the same time.
func (s *settlement[T]) positions(sig payload.Signal[T]) *payload.Index {
	s.indexOnce.Do(func() {
		if s.index = s.sizes; s.index == nil {
			s.index = sig.Index(s.data, false, 0)
		}
	})
	return s.index
}

// totals are sums over requests.
type totals struct {
	requests int
	items    int
	size     int64
	cost     int
}

func (t *totals) add(o totals) {
	t.requests += o.requests
	t.items += o.items
	t.size += o.size
	t.cost += o.cost
}

func (t *totals) sub(o totals) {
	t.requests -= o.requests
	t.items -= o.items
	t.size -= o.size
	t.cost -= o.cost
}

func (e *entry[T]) totals() totals {
	return totals{requests: min(e.items, 1), items: e.items, size: e.size, cost: e.cost}
}

// chunk is a link of a partition's list. Its entries [from, to) are queued;
// those before belong to runs. All fields but the entries that runs took are
// guarded by the queue's mutex; a chunk between the first and the last of a run
// belongs to the worker that has the run.
//
// A growing ring was the simpler design: it copies everything under the lock
// when it grows, and a pull has to look at every request. Of chunks a pull takes
// all but the last as a whole, by their totals.
type chunk[T any] struct {
	from, to int
	held     totals // of [from, to), less what was cut off the first
	epoch    *epoch // a chunk holds requests of one epoch only
	next     *chunk[T]
	entries  []entry[T] // fixed in length: firstEntries or chunkEntries
}

func newChunk[T any](entries int) *chunk[T] { return &chunk[T]{entries: make([]entry[T], entries)} }

// full says whether c has no room for another request.
func (c *chunk[T]) full() bool { return c.to == len(c.entries) }

func (c *chunk[T]) push(e entry[T]) {
	c.entries[c.to] = e
	c.to++
	c.held.add(e.totals())
}

// run is what a batch took of its partition as whole requests: from the entry
// `from` of the chunk first up to the one before `to` of the chunk last.
//
// Without the lock only the links between first and last may be followed: the
// chunk last may still be filled, and its next be set. A run is dropped as soon
// as its data has moved: a batch in backoff that kept it would keep every chunk
// that was filled since.
type run[T any] struct {
	first, last *chunk[T]
	from, to    int
}

func (r *run[T]) extend(c *chunk[T], from, to int) {
	if r.first == nil {
		r.first, r.from = c, from
	}
	r.last, r.to = c, to
}

// all yields the entries of the run in order.
func (r *run[T]) all(yield func(*entry[T]) bool) {
	for c, i := r.first, r.from; c != nil; c, i = c.next, 0 {
		if c == r.last {
			c.yield(i, r.to, yield)
			return
		}
		if !c.yield(i, c.to, yield) {
			return
		}
	}
}

func (c *chunk[T]) yield(from, to int, yield func(*entry[T]) bool) bool {
	for i := from; i < to; i++ {
		if !yield(&c.entries[i]) {
			return false
		}
	}
	return true
}
