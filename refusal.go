// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.uber.org/zap"

	"github.com/pullbatch/batcherexporter/internal/settle"
)

const (
	// maxFutile is how many refusals in a row make it doubtful that anything of a
	// batch passes. From a gigabyte to a single item it takes thirty.
	maxFutile = 64
	// samplesOfRest is how many single items then tell whether the rest is worth it.
	samplesOfRest = 8
)

// errTooLarge is what a caller gets whose item was dropped for its size.
var errTooLarge = errors.New("the item is larger than a batch may be")

// divides cuts p before it is sent, if it is larger than what the backend takes
// as far as is known.
func (s *sender[T]) divides(b *batch[T], p *part[T]) bool {
	if p.items < 2 || !s.ceiling.learns() {
		return false
	}
	allowed := s.ceiling.allowed()
	if p.sized {
		if p.index.Cost(p.from, p.to) <= allowed {
			return false
		}
	} else if p.whole(s.q.signal); s.q.signal.Bytes(p.data) <= allowed {
		return false
	}
	s.shrink(b, p, s.ceiling.limit())
	return true
}

// shrink puts p back in two pieces, the first of at most size bytes, in front of all
// others. The second is cut when its turn comes: more may be known then.
func (s *sender[T]) shrink(b *batch[T], p *part[T], size int) {
	s.own(p)
	p.measure(s.q.signal)
	first, rest := p.cutOff(size)
	b.work.first(first, rest)
	s.telemetry.split(splitTooLarge, 1)
}

// owns says whether the data of p is ours to change. Without batching it is not,
// marked as read-only or not: its caller may go on with it, for example send it
// elsewhere if the outcome is an error.
func (s *sender[T]) owns(p *part[T]) bool {
	return p.owned || !s.set.borrowed && !s.q.signal.IsReadOnly(p.data)
}

// own makes the data of p ours to cut.
func (s *sender[T]) own(p *part[T]) {
	if !s.owns(p) {
		p.data, p.owned = s.q.signal.Clone(p.data), true
	}
}

// tooLarge cuts a part that was refused for its size. The same request is never
// sent again: a single item is lost, and nothing else with it.
func (s *sender[T]) tooLarge(b *batch[T], p *part[T], v settle.Verdict, err error) {
	w := &b.work
	size := s.q.signal.Bytes(p.data)
	if p.items > 1 {
		next := s.ceiling.refuse(size, v.Limit)
		if v.Limit > 0 {
			s.advise()
		}
		s.shrink(b, p, next)
	} else {
		w.lose(p, dropTooLarge, permanent(fmt.Errorf("the backend takes no item of %d bytes: %w", size, err)))
	}
	s.doubt(b, p, dropTooLarge, err)
}

// doubt counts a refusal of p. Where nothing has passed for long it has some single
// items tried of what is left of b, and gives that up if none of them passes either.
func (s *sender[T]) doubt(b *batch[T], p *part[T], why dropReason, err error) {
	w := &b.work
	w.futile++
	switch {
	case p.sample:
		if w.samples--; w.samples == 0 {
			w.loseAll(why, permanent(fmt.Errorf("after %d refusals in a row, also of single items: %w", w.futile, err)))
		}
	case w.futile > maxFutile && w.samples == 0 && w.items() > samplesOfRest:
		s.sampleRest(b)
	}
}

// sampleRest puts single items from all over what is left of b in front.
func (s *sender[T]) sampleRest(b *batch[T]) {
	w := &b.work
	for i := range w.todo {
		s.own(&w.todo[i])
	}
	samples := make([]part[T], samplesOfRest)
	left := w.items()
	for i := samplesOfRest - 1; i >= 0; i-- {
		samples[i] = w.takeItem(s.q.signal, (2*i+1)*left/(2*samplesOfRest))
		samples[i].sample = true
	}
	w.first(samples...)
	w.samples = samplesOfRest
}

// advise says how refused calls are avoided, once the limit is known.
func (s *sender[T]) advise() {
	if ok, _ := s.advised.allow(); ok {
		s.logger.Warn("The backend refuses larger requests. They are cut until they pass, at the cost of refused calls;"+
			" set `sending_queue::batch::max_bytes` to avoid that.",
			zap.Int("max_bytes", s.ceiling.known()))
	}
}

// refused halves a part that was refused for its content, to find the items that
// are. It stops when all four quarters have failed alike, or when the calls that
// are due already use up the budget. What a decoder refused is halved freely: nothing
// of it was kept, and it is refused whatever the backend's state.
func (s *sender[T]) refused(b *batch[T], p *part[T], v settle.Verdict, err error) {
	w := &b.work
	err = permanent(err)
	s.isolation.heed(v)
	if p.search == nil {
		if !s.isolation.active(v) {
			w.lose(p, dropRefused, fmt.Errorf("not retryable error: %w", err))
			return
		}
		p.search = &search{first: v}
	}
	if !v.Undecoded {
		w.calls++
	}
	switch {
	case v.Undecoded:
		defer s.doubt(b, p, dropRefused, err)
		if p.items == 1 {
			w.lose(p, dropRefused, err)
		} else {
			s.halve(b, p)
		}
	case p.search.hopeless(v, p.depth):
		w.hopeless = true
		w.lose(p, dropRefused, err)
		w.loseHalved(p.search, fmt.Errorf("not sent, since halving does not find what is refused: %w", err))
	case p.items == 1:
		w.lose(p, dropRefused, err)
	case v.Kept:
		w.lose(p, dropRefused, fmt.Errorf("not retryable error: %w", err))
	case w.calls+w.halved()+2 > s.isolation.maxCalls:
		w.hopeless = !p.search.saved
		w.lose(p, dropRefused, fmt.Errorf("halving it further would cost more than `refusals::max_attempts` calls: %w", err))
	default:
		s.halve(b, p)
		s.telemetry.resent(p.items) // a backend may have kept a part of them
	}
}

// halve puts the halves of a part behind all others.
func (s *sender[T]) halve(b *batch[T], p *part[T]) {
	s.own(p)
	p.depth++
	left, right := p.halve(s.q.signal)
	b.work.later(left, right)
	s.telemetry.split(splitRefused, 1)
}

// permanent makes err permanent to callers, unless it is.
func permanent(err error) error {
	if consumererror.IsPermanent(err) {
		return err
	}
	return consumererror.NewPermanent(err)
}

// refusesOversized handles a part of one item that is above the byte bound. It
// reports true if the item was dropped, as `oversize: drop` asks.
func (s *sender[T]) refusesOversized(b *batch[T], p *part[T]) bool {
	limit := toInt(s.q.set.batch.maxBytes)
	if limit == 0 || b.items != 1 || b.cost <= limit || p.checked {
		return false
	}
	p.checked = true
	if s.q.signal.Bytes(p.data) <= limit {
		return false
	}
	s.own(p)
	p.data = s.q.signal.Cut(p.data, s.q.signal.Index(p.data, false, 0), 0, 1) // of profiles it leaves out what the sample does not use
	size := s.q.signal.Bytes(p.data)
	if size <= limit {
		return false
	}
	if log, held := s.oversized.allow(); log {
		s.logger.Warn("An item is larger than a batch may be.",
			zap.Int("item_bytes", size), zap.Int("limit_bytes", limit),
			zap.Bool("dropped", s.set.dropOversized), zap.Int64("not_logged_since", held))
	}
	if !s.set.dropOversized {
		return false
	}
	b.work.lose(p, dropTooLarge, permanent(fmt.Errorf("%w: %d bytes, the limit is %d", errTooLarge, size, limit)))
	return true
}
