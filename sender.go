// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v7"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/pullbatch/batcherexporter/internal/settle"
)

// senderSettings are what a sender runs with.
type senderSettings[T any] struct {
	push          func(context.Context, T) error // the wrapped exporter's Consume
	mutates       bool                           // the wrapped exporter changes what it gets
	direct        bool                           // no queue: a call ends with its caller
	dropOversized bool
	timeout       time.Duration // of one attempt; 0: the wrapped exporter's own
	retry         configretry.BackOffConfig
	spanName      string
	spanAttrs     []attribute.KeyValue
}

// sender takes batches from the queue, one per worker and slot, and brings each
// to its outcome: attempts, backoff between them, and what is told to whom.
//
// exporterhelper's chain of senders was the simpler design. It parks a goroutine
// and a slot with each batch in backoff, and knows one outcome per call.
type sender[T any] struct {
	// Fixed after construction.
	set       senderSettings[T]
	q         *queue[T]
	telemetry *telemetry
	tracer    trace.Tracer
	logger    *zap.Logger
	oversized *occasional
}

// retries is the state of a batch that is being sent.
type retries struct {
	left    bool // the first attempt has begun
	began   time.Time
	backoff backoff.ExponentialBackOff
	span    trace.Span
	ctx     context.Context // of the attempts, without their timeout
	passed  int             // items that earlier attempts delivered
}

// work runs batches until the queue has no more for this worker.
func (s *sender[T]) work() {
	var fresh *batch[T]
	for {
		if fresh == nil {
			fresh = &batch[T]{}
		}
		b := s.q.next(fresh)
		if b == nil {
			return
		}
		if b == fresh {
			fresh = nil
		}
		s.send(b)
	}
}

// send makes one attempt with b and draws the consequence.
func (s *sender[T]) send(b *batch[T]) {
	if !b.retries.left {
		s.q.form(b)
		if s.refusesOversized(b) {
			return
		}
		s.begin(b)
	}
	err, cancelled := s.attempt(b)
	if err == nil {
		s.finish(b, outcome{sent: b.items}, "")
		return
	}
	s.failed(b, err, cancelled)
}

// begin reports that b leaves the queue and prepares its attempts.
func (s *sender[T]) begin(b *batch[T]) {
	r := &b.retries
	r.left, r.began = true, time.Now()
	r.backoff = backoff.ExponentialBackOff{
		InitialInterval:     s.set.retry.InitialInterval,
		RandomizationFactor: s.set.retry.RandomizationFactor,
		Multiplier:          s.set.retry.Multiplier,
		MaxInterval:         s.set.retry.MaxInterval,
	}
	bytes := 0
	if s.telemetry.measuresBytes() {
		bytes = s.q.signal.Bytes(b.content.data)
	}
	s.telemetry.batchLeft(b.trigger, b.items, bytes)
	s.telemetry.waited(time.Duration(s.q.now() - b.oldest))
	s.telemetry.sendStarted()
	r.ctx, r.span = s.tracer.Start(s.contextOf(b), s.set.spanName,
		trace.WithAttributes(s.set.spanAttrs...), trace.WithLinks(b.content.links...))
}

// contextOf is the context of b's attempts. It carries the values of the only
// request, and ends with the queue, not with the caller: one impatient caller
// must not cancel the data of others, and the data was accepted.
func (s *sender[T]) contextOf(b *batch[T]) context.Context {
	if b.content.ctx == nil {
		return s.q.life
	}
	return lasting{s.q.life, b.content.ctx}
}

// lasting is a context that lives as one context and has the values of another.
type lasting struct {
	context.Context
	values context.Context
}

// Value asks the life first: it holds what the context package keeps there, by
// which a derived context finds its parent without a goroutine.
func (c lasting) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// attempt calls the wrapped exporter once. cancelled says that the attempt's
// context had ended by the time it returned.
func (s *sender[T]) attempt(b *batch[T]) (err error, cancelled bool) { //nolint:revive // the error is the result, the flag qualifies it
	ctx := b.retries.ctx
	if s.set.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.set.timeout)
		defer cancel()
	}
	if s.set.direct {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(b.content.ctx, cancel)()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx), true // the queue was abandoned: what is sent now would be counted twice
	}
	data := b.content.data
	if s.set.mutates && (s.set.retry.Enabled || s.q.signal.IsReadOnly(data)) {
		data = s.q.signal.Clone(data)
	}
	err = s.set.push(ctx, data)
	return err, ctx.Err() != nil
}

// failed decides what follows on a failed attempt: a backoff, or the end.
func (s *sender[T]) failed(b *batch[T], err error, cancelled bool) {
	v := settle.Of(err, cancelled)
	s.telemetry.attemptFailed(string(v.Class))
	if v.Final() {
		s.giveUp(b, dropPermanent, fmt.Errorf("not retryable error: %w", err))
		return
	}
	s.keepRemainder(b, err)
	r := &b.retries
	switch d := max(r.backoff.NextBackOff(), v.Delay); {
	case s.q.life.Err() != nil:
		s.giveUp(b, dropShutdown, fmt.Errorf("the exporter has stopped: %w", err))
	case !s.set.retry.Enabled:
		s.giveUp(b, dropRetriesExhausted, err)
	case s.set.direct && b.content.ctx.Err() != nil:
		s.giveUp(b, dropRetriesExhausted, fmt.Errorf("request is cancelled or timed out: %w", err))
	case s.set.retry.MaxElapsedTime > 0 && time.Since(r.began)+d > s.set.retry.MaxElapsedTime:
		s.giveUp(b, dropRetriesExhausted, fmt.Errorf("no more retries left: %w", err))
	default:
		s.retryAfter(b, d, err)
	}
}

// keepRemainder reduces b to what the wrapped exporter reports as not delivered,
// if it reports that.
func (s *sender[T]) keepRemainder(b *batch[T], err error) {
	rest, ok := s.q.signal.Remainder(err)
	if !ok {
		return
	}
	left := s.q.signal.Items(rest)
	if left == 0 || left > b.items-b.retries.passed {
		return // not a part of this batch: send all of it again
	}
	b.retries.passed = b.items - left
	b.content.data = rest
}

// retryAfter lets b wait for its next attempt.
func (s *sender[T]) retryAfter(b *batch[T], d time.Duration, err error) {
	s.logger.Info("Exporting failed. Will retry the batch after interval.",
		zap.Error(err), zap.Duration("interval", d), zap.Int("items", b.items-b.retries.passed))
	b.retries.span.AddEvent("Exporting failed. Will retry the batch after interval.",
		trace.WithAttributes(attribute.String("interval", d.String()), attribute.String("error", err.Error())))
	if !s.q.delay(b, d) {
		s.giveUp(b, dropShutdown, fmt.Errorf("the exporter has stopped: %w", err))
	}
}

// giveUp drops what is left of b.
func (s *sender[T]) giveUp(b *batch[T], why dropReason, err error) {
	s.finish(b, outcome{sent: b.retries.passed, dropped: b.items - b.retries.passed, err: err}, why)
}

// finish settles b and reports its outcome, unless the queue was abandoned, which
// reported all that was pending itself.
func (s *sender[T]) finish(b *batch[T], o outcome, why dropReason) {
	s.endSpan(b, o)
	s.telemetry.sendEnded()
	if !s.q.settle(b, o) {
		return
	}
	if o.sent > 0 {
		s.telemetry.sent(o.sent)
	}
	if o.dropped == 0 {
		return
	}
	s.telemetry.sendFailed(o.dropped, o.err)
	s.telemetry.dropped(why, o.dropped)
	s.logger.Error("Dropping data that was accepted.", zap.Error(o.err),
		zap.String("reason", string(why)), zap.Int("dropped_items", o.dropped))
}

func (s *sender[T]) endSpan(b *batch[T], o outcome) {
	span := b.retries.span
	if span == nil {
		return
	}
	if span.IsRecording() {
		span.SetAttributes(attribute.Int("items.sent", o.sent), attribute.Int("items.failed", o.dropped))
		if o.err != nil {
			span.SetStatus(codes.Error, o.err.Error())
		}
	}
	span.End()
}

// errTooLarge is what a caller gets whose item was dropped for its size.
var errTooLarge = errors.New("the item is larger than a batch may be")

// refusesOversized handles a batch of one item that is above the byte bound. It
// reports true if the item was dropped, as `oversize: drop` asks.
func (s *sender[T]) refusesOversized(b *batch[T]) bool {
	limit := int(s.q.set.batch.maxBytes)
	if limit == 0 || b.items != 1 || b.cost <= limit {
		return false
	}
	size := s.q.signal.Bytes(b.content.data)
	if size <= limit {
		return false
	}
	if log, left := s.oversized.now(); log {
		s.logger.Warn("An item is larger than a batch may be.",
			zap.Int("item_bytes", size), zap.Int("limit_bytes", limit),
			zap.Bool("dropped", s.set.dropOversized), zap.Int64("not_logged_since", left))
	}
	if !s.set.dropOversized {
		return false
	}
	err := consumererror.NewPermanent(fmt.Errorf("%w: %d bytes, the limit is %d", errTooLarge, size, limit))
	b.retries.left = true
	s.telemetry.sendStarted()
	s.finish(b, outcome{dropped: 1, err: err}, dropTooLarge)
	return true
}
