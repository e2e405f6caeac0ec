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

// maxShrinks is how many refusals for size one batch may cost. From a gigabyte to
// a single item it takes thirty.
const maxShrinks = 64

// errTooLarge is what a caller gets whose item was dropped for its size.
var errTooLarge = errors.New("the item is larger than a batch may be")

// divides cuts p before it is sent, if it is larger than what the backend takes
// as far as is known.
func (s *sender[T]) divides(b *batch[T], p *part[T]) bool {
	if p.items < 2 || !s.ceiling.learns() {
		return false
	}
	p.whole(s.q.signal)
	if s.ceiling.allows(s.q.signal.Bytes(p.data)) {
		return false
	}
	s.shrink(b, p, s.ceiling.limit())
	return true
}

// shrink puts p back in pieces of at most size bytes, in front of all others.
func (s *sender[T]) shrink(b *batch[T], p *part[T], size int) {
	s.own(p)
	pieces := p.divide(s.q.signal, size)
	b.work.first(pieces...)
	s.telemetry.split(splitTooLarge, len(pieces)-1)
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
// sent again: a single item is lost. When a batch has cost many refusals and
// nothing of it has passed, all of it is.
func (s *sender[T]) tooLarge(b *batch[T], p *part[T], v settle.Verdict, err error) {
	w := &b.work
	w.shrunk++
	size := s.q.signal.Bytes(p.data)
	spent := w.shrunk > maxShrinks
	switch {
	case spent && w.sent.Load() == 0:
		err = permanent(fmt.Errorf("after %d refusals for size: %w", w.shrunk, err))
		w.lose(p, dropTooLarge, err)
		w.loseAll(dropTooLarge, err)
	case p.items == 1, spent:
		w.lose(p, dropTooLarge, permanent(fmt.Errorf("the backend takes no request of %d items and %d bytes: %w", p.items, size, err)))
	default:
		next := s.ceiling.refuse(size, v.Limit)
		if v.Limit > 0 {
			s.advise()
		}
		s.shrink(b, p, next)
	}
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
// are due already use up the budget.
func (s *sender[T]) refused(b *batch[T], p *part[T], v settle.Verdict, err error) {
	w := &b.work
	err = permanent(err)
	w.calls++
	if p.search == nil {
		if !s.isolation.active() {
			w.lose(p, dropRefused, fmt.Errorf("not retryable error: %w", err))
			return
		}
		p.search = &search{first: v}
	}
	switch {
	case p.search.hopeless(v, p.depth):
		w.hopeless = true
		w.lose(p, dropRefused, err)
		w.loseHalved(p.search, fmt.Errorf("not sent, since halving does not find what is refused: %w", err))
	case p.items == 1:
		w.lose(p, dropRefused, err)
	case w.calls+w.halved()+2 > s.isolation.maxCalls:
		w.hopeless = !p.search.saved
		w.lose(p, dropRefused, fmt.Errorf("halving it further would cost more than `refusals::max_attempts` calls: %w", err))
	default:
		s.own(p)
		p.depth++
		left, right := p.halve(s.q.signal)
		w.later(left, right)
		s.telemetry.split(splitRefused, 1)
	}
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
