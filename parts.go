// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"slices"

	"github.com/pullbatch/batcherexporter/internal/payload"
)

// part is what one attempt sends: a whole batch at first, and pieces of it after
// the backend refused it.
type part[T any] struct {
	data     T
	index    *payload.Index // nil: the part is all of data
	from, to int            // its items in data, with an index
	items    int

	// Its place in the batch, by which the callers of what it loses are found.
	// After a partial failure it holds fewer items than the place has, and which
	// of them is not known.
	place span
	depth int // how often the batch was halved for its content
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

// halve divides p in two by items; it must have two.
func (p *part[T]) halve(sig payload.Signal[T]) (a, b part[T]) {
	return p.cutAt(sig.Index(p.data, false, 0), p.items/2)
}

// shrink divides p so that the first part is at most size bytes, or one item. p
// must have several items.
func (p *part[T]) shrink(sig payload.Signal[T], size int) (a, b part[T]) {
	ix := sig.Index(p.data, true, size)
	return p.cutAt(ix, min(max(ix.Fit(0, size), 1), p.items-1))
}

// cutAt divides p, which is whole, before its item at.
func (p *part[T]) cutAt(ix *payload.Index, at int) (a, b part[T]) {
	a = part[T]{data: p.data, index: ix, from: 0, to: at, items: at, place: p.place, depth: p.depth}
	b = part[T]{data: p.data, index: ix, from: at, to: p.items, items: p.items - at, place: p.place, depth: p.depth}
	if p.place.to-p.place.from == p.items {
		a.place.to = p.place.from + at
		b.place.from = a.place.to
	}
	return a, b
}

// work is what is left to do for a batch, and what has been done.
type work[T any] struct {
	todo   []part[T]
	sent   int
	lost   []loss
	search search
	shrunk int // refusals for size
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

// loseHalved gives up all parts that were halved for their content.
func (w *work[T]) loseHalved(err error) {
	w.todo = slices.DeleteFunc(w.todo, func(p part[T]) bool {
		if p.depth == 0 {
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
