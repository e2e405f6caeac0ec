// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"slices"
	"sync/atomic"

	"github.com/pullbatch/batcherexporter/internal/payload"
)

// part is what one attempt sends: a whole batch at first, and pieces of it after
// the backend refused it.
type part[T any] struct {
	data     T
	index    *payload.Index // nil: the part is all of data
	from, to int            // its items in data, with an index
	items    int
	owned    bool // data is a copy of the request's

	// Its place in the batch, by which the callers of what it loses are found.
	// After a partial failure it holds fewer items than the place has, and which
	// of them is not known.
	place   span
	search  *search // of the part that was refused for its content; nil: none was
	depth   int     // how often that part was halved
	checked bool    // an oversized item was reported, and cut to what it needs
}

// span is a range of the items of a batch, from the first to before the second.
type span struct{ from, to int }

// loss is what a batch lost of its items, and why.
type loss struct {
	place  span
	items  int
	reason dropReason
	err    error
}

// whole makes p all of its data, by cutting it out.
func (p *part[T]) whole(sig payload.Signal[T]) {
	if p.index != nil {
		p.data, p.index = sig.Cut(p.data, p.index, p.from, p.to), nil
	}
}

// halve divides p, which is whole, in two by items; it must have two.
func (p *part[T]) halve(sig payload.Signal[T]) (a, b part[T]) {
	ix := sig.Index(p.data, false, 0)
	return p.piece(ix, 0, p.items/2), p.piece(ix, p.items/2, p.items)
}

// divide divides p, which is whole, into pieces of at most size bytes, or one
// item. The index is made once, so that it is linear however many there are.
func (p *part[T]) divide(sig payload.Signal[T], size int) []part[T] {
	ix := sig.Index(p.data, true, size)
	var pieces []part[T]
	for from := 0; from < p.items; {
		to := max(ix.Fit(from, size), from+1)
		pieces = append(pieces, p.piece(ix, from, to))
		from = to
	}
	return pieces
}

// piece is the items [from, to) of p, to be cut out when they are sent.
func (p *part[T]) piece(ix *payload.Index, from, to int) part[T] {
	c := part[T]{data: p.data, index: ix, from: from, to: to, items: to - from, owned: p.owned, place: p.place, search: p.search, depth: p.depth}
	if p.place.to-p.place.from == p.items {
		c.place = span{p.place.from + from, p.place.from + to}
	}
	return c
}

// work is what is left to do for a batch, and what has been done.
type work[T any] struct {
	todo     []part[T]
	sent     atomic.Int64 // items; atomic, since a stop reads it while a call hangs
	lost     []loss
	calls    int  // that told something about content, once that was refused
	shrunk   int  // refusals for size
	hopeless bool // halving for content saved nothing, and never would
}

// next takes the part that is to be sent next; there must be one.
func (w *work[T]) next() part[T] {
	p := w.todo[0]
	w.todo[0] = part[T]{}
	w.todo = w.todo[1:]
	return p
}

// first puts parts in front of all others, later behind them.
func (w *work[T]) first(parts ...part[T]) { w.todo = slices.Concat(parts, w.todo) }
func (w *work[T]) later(parts ...part[T]) { w.todo = append(w.todo, parts...) }

// lose gives up a part.
func (w *work[T]) lose(p *part[T], reason dropReason, err error) {
	w.lost = append(w.lost, loss{place: p.place, items: p.items, reason: reason, err: err})
}

// halved is the number of parts left that were halved for their content.
func (w *work[T]) halved() int {
	n := 0
	for i := range w.todo {
		if w.todo[i].search != nil {
			n++
		}
	}
	return n
}

// loseHalved gives up the parts of one search.
func (w *work[T]) loseHalved(of *search, err error) {
	w.todo = slices.DeleteFunc(w.todo, func(p part[T]) bool {
		if p.search != of {
			return false
		}
		w.lose(&p, dropRefused, err)
		return true
	})
}

// loseAll gives up all parts.
func (w *work[T]) loseAll(reason dropReason, err error) {
	for i := range w.todo {
		w.lose(&w.todo[i], reason, err)
	}
	w.todo = nil
}
