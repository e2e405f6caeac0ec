// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"container/list"
)

// ring is a first-in-first-out list that reuses its space.
type ring[E any] struct {
	list []E
	head int
}

func (r *ring[E]) len() int { return len(r.list) - r.head }

func (r *ring[E]) push(e E) {
	if r.head >= len(r.list)/2 && len(r.list) == cap(r.list) && r.head > 0 {
		n := copy(r.list, r.list[r.head:])
		clear(r.list[n:])
		r.list, r.head = r.list[:n], 0
	}
	r.list = append(r.list, e)
}

// pop removes and returns the first element; there must be one.
func (r *ring[E]) pop() E {
	var none E
	e := r.list[r.head]
	r.list[r.head] = none
	r.head++
	if r.head == len(r.list) {
		r.list, r.head = r.list[:0], 0
	}
	return e
}

// all returns the elements in order, valid until the next push or pop.
func (r *ring[E]) all() []E { return r.list[r.head:] }

// waiter is an offer that waits for room.
type waiter struct {
	size    int64
	wake    chan struct{} // closed when granted, or when the queue stops
	granted bool          // guarded by the queue's mutex, as the list is
	place   *list.Element // nil when not in the list
}

// waitList is the offers that wait for room, first come first served.
type waitList struct{ list list.List }

func (l *waitList) empty() bool    { return l.list.Len() == 0 }
func (l *waitList) push(w *waiter) { w.place = l.list.PushBack(w) }

func (l *waitList) first() *waiter {
	if e := l.list.Front(); e != nil {
		return e.Value.(*waiter)
	}
	return nil
}

// remove takes w off the list, if it is there.
func (l *waitList) remove(w *waiter) {
	if w.place != nil {
		l.list.Remove(w.place)
		w.place = nil
	}
}

// recentWindow is over how many offers, twice, a size counts as recent.
const recentWindow = 1024

// recentMax is the largest of the sizes noted lately: of at least the last
// recentWindow and at most twice as many.
type recentMax struct {
	now, before int64
	noted       int
}

func (r *recentMax) note(size int64) {
	if r.noted++; r.noted > recentWindow {
		r.before, r.now, r.noted = r.now, 0, 1
	}
	r.now = max(r.now, size)
}

func (r *recentMax) max() int64 { return max(r.now, r.before) }
