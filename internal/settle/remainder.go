// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package settle

// Remainder is a part of what was sent that was not delivered, as an error of the
// wrapped exporter reports it.
type Remainder[T any] struct {
	Rest    T
	Err     error   // what happened to it
	Verdict Verdict // what that means
	Final   bool    // it is refused for good
}

// Remainders returns what is left undelivered according to the whole tree of err.
// at returns what a node itself reports, not what it wraps. ok is false if any
// leaf says nothing of what is left: then all of it may be, and parts are those that
// others tell. Whether the parts are disjoint, and parts of what was sent, is for the
// caller to see.
func Remainders[T any](err error, at func(error) (T, bool), cancelled bool) (parts []Remainder[T], ok bool) {
	f := finder[T]{at: at, ended: Of(err, cancelled).Class == Unknown}
	ok = f.find(err, nil, place{err: err}, claim{})
	return f.parts, ok
}

type finder[T any] struct {
	at    func(error) (T, bool)
	ended bool // nothing of it says anything about the data
	parts []Remainder[T]
}

// place is the error that tells what happened to a part: the highest one that
// speaks of no other part.
type place struct {
	err   error
	claim claim // of what is above err
	fixed bool  // it has a status of its own, which holds for all below
}

// find walks the tree at err; c is what the wrappers above it say. The outermost
// report holds: what is below it tells the cause.
func (f *finder[T]) find(err, above error, p place, c claim) bool {
	if rest, ok := f.at(err); ok {
		r := Remainder[T]{Rest: rest, Err: p.err, Verdict: Verdict{Class: Unknown}}
		if !f.ended {
			r.Verdict = judge(p.err, p.claim)
			r.Final = r.Verdict.Class == Permanent
		}
		f.parts = append(f.parts, r)
		return true
	}
	below := unwrapped(err)
	c = c.under(err, above)
	p.fixed = p.fixed || hasStatus(err)
	all := len(below) > 0
	for _, e := range below {
		next := p
		if len(below) > 1 && !p.fixed {
			next = place{err: e, claim: c}
		}
		all = f.find(e, err, next, c) && all
	}
	return all
}
