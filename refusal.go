// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.uber.org/zap"

	"github.com/pullbatch/batcherexporter/internal/settle"
)

// maxShrinks is how many refusals for size one batch may cost. From a gigabyte to
// a single item it takes thirty.
const maxShrinks = 64

// errTooLarge is what a caller gets whose item was dropped for its size.
var errTooLarge = errors.New("the item is larger than a batch may be")

// errCallersGone is why a batch is given up for which nobody waits any more.
var errCallersGone = errors.New("all callers that waited for the batch have gone")

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

// shrink puts p back in two parts, the first of at most size bytes.
func (s *sender[T]) shrink(b *batch[T], p *part[T], size int) {
	s.own(p)
	first, rest := p.shrink(s.q.signal, size)
	b.work.first(first, rest)
	s.telemetry.split(splitTooLarge)
}

// own makes the data of p ours to cut: without batching it may be shared.
func (s *sender[T]) own(p *part[T]) {
	if s.q.signal.IsReadOnly(p.data) {
		p.data = s.q.signal.Clone(p.data)
	}
}

// tooLarge cuts a part that was refused for its size. The same request is never
// sent again: a single item is lost.
func (s *sender[T]) tooLarge(b *batch[T], p *part[T], v settle.Verdict, err error) {
	w := &b.work
	w.shrunk++
	switch size := s.q.signal.Bytes(p.data); {
	case p.items == 1:
		w.lose(p, dropTooLarge, permanent(fmt.Errorf("the backend takes no item of %d bytes: %w", size, err)))
	case w.shrunk > s.set.maxShrinks:
		w.lose(p, dropTooLarge, permanent(fmt.Errorf("after %d refusals for size: %w", w.shrunk, err)))
	default:
		next := s.ceiling.refuse(size, v.Limit)
		s.advise(next, err)
		s.shrink(b, p, next)
	}
}

// advise says once how refused calls are avoided.
func (s *sender[T]) advise(next int, err error) {
	if ok, _ := s.advised.allow(); ok {
		s.logger.Warn("The backend refuses requests of this size. They are cut until they pass, at the cost of refused calls;"+
			" set `sending_queue::batch::max_bytes` to avoid that.",
			zap.Int("max_bytes", next), zap.Error(err))
	}
}

// refused halves a part that was refused for its content, to find the items that
// are.
func (s *sender[T]) refused(b *batch[T], p *part[T], v settle.Verdict, err error) {
	w := &b.work
	err = permanent(err)
	if p.depth == 0 && !s.isolation.active() {
		w.lose(p, dropRefused, fmt.Errorf("not retryable error: %w", err))
		return
	}
	if w.search.calls == 0 {
		w.search.calls = 1
	}
	if !w.search.refused(v, p.depth, s.isolation.maxCalls) {
		w.lose(p, dropRefused, err)
		w.loseHalved(fmt.Errorf("not sent, since halving does not find what is refused: %w", err))
		return
	}
	if p.items == 1 {
		w.lose(p, dropRefused, err)
		return
	}
	s.own(p)
	p.depth++
	left, right := p.halve(s.q.signal)
	w.later(left, right)
	s.telemetry.split(splitRefused)
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
	if limit == 0 || b.items != 1 || b.cost <= limit {
		return false
	}
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

// destinationRefuses reports that the backend refuses us and not the data.
func (s *sender[T]) destinationRefuses(err error) {
	if s.health.change(true, err) {
		s.logger.Error("The destination refuses the exporter, not the data. It is kept, and one batch at a time asks again.",
			zap.Error(err))
	}
}

func (s *sender[T]) destinationAccepts() {
	if s.health.change(false, nil) {
		s.logger.Info("The destination accepts data again.")
	}
}

// health tells the collector whether the destination refuses the exporter.
type health struct {
	// Fixed after construction.
	report func(error) // nil: it accepts

	mu struct {
		sync.Mutex
		refused bool
	}
}

// change reports a change, in the order of the changes, and says whether it is
// one. It may be called concurrently.
func (h *health) change(refused bool, err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.refused == refused {
		return false
	}
	h.mu.refused = refused
	h.report(err)
	return true
}
