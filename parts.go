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
	sized   bool    // index tells sizes
	sample  bool    // a single item of many that tells whether any of them passes
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
		p.data, p.index, p.sized = sig.Cut(p.data, p.index, p.from, p.to), nil, false
	}
}

// halve divides p, which is whole, in two by items; it must have two.
func (p *part[T]) halve(sig payload.Signal[T]) (a, b part[T]) {
	ix := sig.Index(p.data, false, 0)
	return p.piece(ix, 0, p.items/2), p.piece(ix, p.items/2, p.items)
}

// measure makes sure that the items of p have sizes, so that it can be divided by
// size. The index is made once, however many pieces are cut off.
func (p *part[T]) measure(sig payload.Signal[T]) {
	if p.sized {
		return
	}
	p.whole(sig)
	p.index, p.sized = sig.Index(p.data, true, sig.Bytes(p.data)), true
	p.from, p.to = 0, p.items
}

// cutOff divides p, which is measured, in a first piece of at most size bytes, or
// one item, and the rest.
func (p *part[T]) cutOff(size int) (first, rest part[T]) {
	at := min(max(p.index.Fit(p.from, size), p.from+1), p.to-1) - p.from
	return p.piece(p.index, 0, at), p.piece(p.index, at, p.items)
}

// piece is the items [from, to) of p, to be cut out when they are sent.
func (p *part[T]) piece(ix *payload.Index, from, to int) part[T] {
	c := *p
	offset := 0
	if p.index != nil {
		offset = p.from
	}
	c.index, c.from, c.to, c.items = ix, offset+from, offset+to, to-from
	c.sized, c.checked, c.sample = p.sized && ix == p.index, false, false
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
	calls    int     // that told something about content, once that was refused
	futile   int     // refusals for size since something passed
	passedAt instant // when the last attempt began that passed
	samples  int     // of those that tell whether anything passes, the ones without an answer
	hopeless bool    // halving for content saved nothing, and never would
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

// takeItem takes a single item out of the parts, by its number among all of them,
// which must be ours to cut.
func (w *work[T]) takeItem(sig payload.Signal[T], at int) part[T] {
	for i := range w.todo {
		p := w.todo[i]
		if at >= p.items {
			at -= p.items
			continue
		}
		ix := p.index
		if ix == nil {
			ix = sig.Index(p.data, false, 0)
		}
		around := make([]part[T], 0, 2)
		if at > 0 {
			around = append(around, p.piece(ix, 0, at))
		}
		if at+1 < p.items {
			around = append(around, p.piece(ix, at+1, p.items))
		}
		w.todo = slices.Replace(w.todo, i, i+1, around...)
		return p.piece(ix, at, at+1)
	}
	return part[T]{}
}

// items is how many are left in the parts.
func (w *work[T]) items() int {
	n := 0
	for i := range w.todo {
		n += w.todo[i].items
	}
	return n
}
