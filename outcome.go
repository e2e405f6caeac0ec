// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"errors"
	"slices"

	"github.com/pullbatch/batcherexporter/internal/payload"
	"github.com/pullbatch/batcherexporter/internal/settle"
)

// outcome is what became of the items of a batch.
type outcome struct {
	sent     int
	passedAt instant // when the last attempt began that passed; 0: none did
	expired  bool    // the destination has refused for too long: what waits for its answer goes too
	lost     []loss
	order    []payload.Run // whose items are where; nil if nobody asks, or all are of one source

	// Set by attribute.
	joined   error
	bySource map[int]error
}

// dropped is the number of items that were given up.
func (o *outcome) dropped() int {
	n := 0
	for i := range o.lost {
		n += o.lost[i].items
	}
	return n
}

// byReason sums the losses of each reason.
func (o *outcome) byReason() map[dropReason]loss {
	if len(o.lost) == 0 {
		return nil
	}
	sums := map[dropReason]loss{}
	for _, l := range o.lost {
		sum := sums[l.reason]
		if sum.items += l.items; sum.err == nil {
			sum.err = l.err // one stands for all: a batch may lose thousands for the same cause
		}
		sums[l.reason] = sum
	}
	return sums
}

// err returns all errors of the batch.
func (o *outcome) err() error {
	var errs errorSet
	for i := range o.lost {
		errs.add(o.lost[i].err)
	}
	return errs.join()
}

// attribute finds out which source lost what, in one walk for each loss, so that
// errOf, which is asked under the queue's lock, only has to look.
func (o *outcome) attribute() {
	if len(o.lost) == 0 {
		return
	}
	o.joined = said(o.err())
	if o.order == nil {
		return
	}
	sets := map[int]*errorSet{}
	for _, l := range o.lost {
		at := 0
		for _, r := range o.order {
			if at >= l.place.to {
				break
			}
			if at += r.Items; r.Items > 0 && at > l.place.from {
				if sets[r.Source] == nil {
					sets[r.Source] = &errorSet{}
				}
				sets[r.Source].add(l.err)
			}
		}
	}
	o.bySource = make(map[int]error, len(sets))
	for source, set := range sets {
		o.bySource[source] = said(set.join())
	}
}

// saidError is an error whose text is known: under the queue's lock no code of others
// is called to make it.
type saidError struct {
	error
	text string
}

func said(err error) error        { return saidError{err, err.Error()} }
func (e saidError) Error() string { return e.text }
func (e saidError) Unwrap() error { return e.error }

// errOf returns the errors of one source of the batch, by its number: those of
// the ranges in which it has items. If one of them is permanent, so is the whole.
// attribute must have been called.
func (o *outcome) errOf(source int) error {
	if o.bySource == nil {
		return o.joined
	}
	return o.bySource[source]
}

// errorSet is the different errors of many pieces. A request of a million items
// may be refused in thousands of pieces: a join of joins would take the square of
// their number to print, and equal texts help nobody.
type errorSet struct {
	errs  []error
	texts map[string]struct{}
}

// maxErrors is how many errors of one request are told.
const maxErrors = 100

// add notes err, unless it is nil, or one with its text is there, or there are
// enough. The first permanent one is always noted: it decides what the whole is.
func (s *errorSet) add(err error) {
	if err == nil {
		return
	}
	text := err.Error()
	if _, known := s.texts[text]; known {
		return
	}
	switch {
	case len(s.errs) < maxErrors:
		s.errs = append(s.errs, err)
	case settle.IsPermanent(err) && !slices.ContainsFunc(s.errs, settle.IsPermanent):
		s.errs[maxErrors-1] = err
	default:
		return
	}
	if s.texts == nil {
		s.texts = map[string]struct{}{}
	}
	s.texts[text] = struct{}{}
}

// join returns all of them as one, nil if there are none.
func (s *errorSet) join() error {
	if len(s.errs) == 1 {
		return s.errs[0]
	}
	return errors.Join(s.errs...)
}
