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
	borrowed      bool                           // requests are not ours to change: we said that we do not
	direct        bool                           // no queue: a call ends with its caller
	dropOversized bool
	timeout       time.Duration // of one attempt; 0: the wrapped exporter's own
	retry         configretry.BackOffConfig
	spanName      string
	spanAttrs     []attribute.KeyValue
}

// errCallersGone is why a batch is given up for which nobody waits any more.
var errCallersGone = errors.New("all callers that waited for the batch have gone")

// sender takes batches from the queue, one per worker and slot, and brings each
// to its outcome: attempts, backoff between them, halving of what the backend
// refuses, and what is told to whom.
//
// A batch is a list of parts, at first one. Each part gets an outcome; a slot is
// held through the halving of one batch, and given back for a backoff.
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
	report    *report
	ceiling   *ceiling
	isolation *isolation
	oversized *occasional // log lines about oversized items
	advised   *occasional // log lines about the ceiling
}

// retries is the state of a batch that is being sent.
type retries struct {
	left    bool // the batch was reported to have left
	bytes   int  // of the whole batch; 0 if nobody asks
	began   time.Time
	backoff backoff.ExponentialBackOff
	span    trace.Span
	ctx     context.Context // of the attempts, without their timeout
	next    time.Duration   // the backoff that follows, once one is due
}

// stats is a snapshot of the queue, with what the sender has learned.
func (s *sender[T]) stats() queueStats {
	st := s.q.stats()
	st.SizeCeiling = int64(s.ceiling.known())
	return st
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
			s.q.form(b)
			s.begin(b)
		}
		s.send(b)
	}
}

// send works off the parts of b until all have an outcome, or the rest has to
// wait, or is left to a stop.
func (s *sender[T]) send(b *batch[T]) {
	for len(b.work.todo) > 0 {
		if s.q.life.Err() != nil {
			s.leave(b)
			return
		}
		if err := s.pointless(b); err != nil {
			b.work.loseAll(dropRetriesExhausted, err)
			break
		}
		p := b.work.next()
		if s.divides(b, &p) || s.refusesOversized(b, &p) {
			continue
		}
		s.reportLeaving(b)
		p.whole(s.q.signal)
		err, cancelled := s.attempt(b, &p)
		if err == nil {
			s.passed(b, &p)
			continue
		}
		if d := s.failed(b, &p, err, cancelled); d.wait > 0 {
			s.wait(b, d, err)
			return
		}
	}
	s.finish(b)
}

// leave leaves b to the stop that has halted the queue.
func (s *sender[T]) leave(b *batch[T]) {
	if !s.q.park(b) {
		s.close(b)
	}
}

// pointless says why no attempt with b should begin although it could: nobody
// would learn of its outcome.
func (s *sender[T]) pointless(b *batch[T]) error {
	if s.set.direct && b.content.ctx.Err() != nil {
		return fmt.Errorf("%w: %w", errCallersGone, b.content.ctx.Err())
	}
	if s.q.callersGone(b) {
		return errCallersGone
	}
	return nil
}

// begin prepares the attempts with b.
func (s *sender[T]) begin(b *batch[T]) {
	r := &b.retries
	r.began = time.Now()
	r.backoff = backoff.ExponentialBackOff{
		InitialInterval:     s.set.retry.InitialInterval,
		RandomizationFactor: s.set.retry.RandomizationFactor,
		Multiplier:          s.set.retry.Multiplier,
		MaxInterval:         s.set.retry.MaxInterval,
	}
	if s.telemetry.measuresBytes() {
		r.bytes = s.q.signal.Bytes(b.content.data)
	}
	s.telemetry.sendStarted()
	r.ctx, r.span = s.tracer.Start(s.contextOf(b), s.set.spanName,
		trace.WithAttributes(s.set.spanAttrs...), trace.WithLinks(b.content.links...))
	b.work.first(part[T]{data: b.content.data, items: b.items, place: span{0, b.items}})
}

// reportLeaving tells once that b leaves the queue.
func (s *sender[T]) reportLeaving(b *batch[T]) {
	if b.retries.left {
		return
	}
	b.retries.left = true
	why := b.trigger
	if s.set.direct {
		why = triggerDirect
	}
	s.telemetry.batchLeft(why, b.items, b.retries.bytes)
	s.telemetry.waited(time.Duration(s.q.now() - b.oldest))
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
func (s *sender[T]) attempt(b *batch[T], p *part[T]) (err error, cancelled bool) { //nolint:revive // the error is the result, the flag qualifies it
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
	data := p.data
	if s.set.mutates && (s.set.retry.Enabled || p.items > 1 || !s.owns(p)) {
		data = s.q.signal.Clone(data) // the same may have to be sent again, whole or in parts
	}
	err = s.set.push(ctx, data)
	return err, ctx.Err() != nil
}

// passed accounts for a part that the wrapped exporter took.
func (s *sender[T]) passed(b *batch[T], p *part[T]) {
	b.work.sent.Add(int64(p.items))
	s.report.passed()
	if p.search != nil {
		p.search.saved = true
		b.work.calls++
	}
	if s.ceiling.learns() && s.ceiling.pass(s.q.signal.Bytes(p.data), p.items) {
		s.advise()
	}
}

// failed draws the consequence of a failed attempt with p: what is left of it
// goes back to b's parts or is lost. With a wait above 0, b has to wait.
func (s *sender[T]) failed(b *batch[T], p *part[T], err error, cancelled bool) (d delay) {
	v := settle.Of(err, cancelled)
	s.telemetry.attemptFailed(string(v.Class))
	w := &b.work
	s.keepRemainder(b, p, err, cancelled)
	if v.Class == settle.Unknown {
		err = settle.NotPermanent(err)
	}
	if v.Retry() && s.q.life.Err() == nil && s.pointless(b) == nil {
		s.report.failed(err, v.Class == settle.Destination)
	}
	switch {
	case v.Class == settle.TooLarge:
		s.tooLarge(b, p, v, err)
	case v.Class == settle.Refused:
		s.refused(b, p, v, err)
	case !v.Retry():
		w.lose(p, dropPermanent, permanent(fmt.Errorf("not retryable error: %w", err)))
	case s.q.life.Err() != nil:
		w.first(*p)
	default:
		final := s.exhausted(b, v, err)
		if final == nil {
			w.first(*p)
			return delay{max(b.retries.next, 1), v.Delay, v.Class == settle.Destination && !s.set.direct}
		}
		w.lose(p, dropRetriesExhausted, final)
		if s.set.retry.Enabled {
			w.loseAll(dropRetriesExhausted, final)
		}
	}
	return delay{}
}

// keepRemainder reduces p to what the wrapped exporter reports as not delivered,
// if it reports that. Of several errors at once each must say what it is about,
// or all of p has to be sent again; what is refused for good is lost.
func (s *sender[T]) keepRemainder(b *batch[T], p *part[T], err error, cancelled bool) {
	parts, ok := settle.Remainders(err, s.q.signal.Remainder, cancelled)
	if !ok {
		return
	}
	left := 0
	for _, r := range parts {
		left += s.q.signal.Items(r.Rest)
	}
	if left == 0 || left > p.items {
		return // not a part of what was sent
	}
	b.work.sent.Add(int64(p.items - left))
	p.items = left
	if len(parts) == 1 {
		p.data = parts[0].Rest
		return
	}
	again := s.q.merger.Begin(false)
	for _, r := range parts {
		if n := s.q.signal.Items(r.Rest); r.Final {
			b.work.lose(&part[T]{items: n, place: p.place}, dropPermanent, permanent(r.Err))
			p.items -= n
		} else {
			again.Add(r.Rest)
		}
	}
	if p.items == 0 {
		p.items, b.work.lost = left, b.work.lost[:len(b.work.lost)-len(parts)]
		return // all of them are final: the caller of this loses p as a whole
	}
	p.data = again.Data()
}

// exhausted decides whether b may be tried again, and sets when. Otherwise the
// error says why not.
func (s *sender[T]) exhausted(b *batch[T], v settle.Verdict, err error) error {
	r := &b.retries
	r.next = max(r.backoff.NextBackOff(), v.Delay)
	deadline, limited := s.callerDeadline(b)
	switch limit := s.set.retry.MaxElapsedTime; {
	case !s.set.retry.Enabled:
		return err
	case limited && time.Until(deadline) < r.next:
		return fmt.Errorf("%w before the next attempt: %w", context.DeadlineExceeded, err)
	case limit > 0 && r.next > limit-time.Since(r.began):
		return fmt.Errorf("no more retries left: %w", err)
	}
	return nil
}

// callerDeadline is when the caller of a batch ends that has no queue.
func (s *sender[T]) callerDeadline(b *batch[T]) (time.Time, bool) {
	if !s.set.direct {
		return time.Time{}, false
	}
	return b.content.ctx.Deadline()
}

// wait lets b wait for its next attempt.
func (s *sender[T]) wait(b *batch[T], d delay, err error) {
	s.report.waits(err, d.wait, b.items-int(b.work.sent.Load()))
	b.retries.span.AddEvent(retryMessage,
		trace.WithAttributes(attribute.String("interval", d.wait.String()), attribute.String("error", err.Error())))
	if !s.q.delay(b, d) {
		s.close(b)
	}
}

// finish settles b and reports its outcome, unless the queue was abandoned, which
// reported all that was pending itself.
func (s *sender[T]) finish(b *batch[T]) {
	w := &b.work
	if w.hopeless {
		s.isolation.pause()
	}
	o := outcome{sent: int(w.sent.Load()), lost: w.lost, order: b.content.order}
	s.endSpan(b, &o)
	s.telemetry.sendEnded()
	if !s.q.settle(b, o) {
		return
	}
	if o.sent > 0 {
		s.telemetry.sent(o.sent)
	}
	for reason, l := range o.byReason() {
		s.telemetry.sendFailed(l.items, l.err)
		s.telemetry.dropped(reason, l.items)
		s.report.dropped(reason, l.items, l.err)
	}
}

func (s *sender[T]) endSpan(b *batch[T], o *outcome) {
	span := b.retries.span
	if span.IsRecording() {
		span.SetAttributes(attribute.Int("items.sent", o.sent), attribute.Int("items.failed", o.dropped()))
		if err := o.err(); err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
	}
	span.End()
}

// closeGiven ends the reports of the batches that an abandoned queue gave up, and
// counts what was delivered of all that it gave up.
func (s *sender[T]) closeGiven() {
	if s.q.delivered > 0 {
		s.telemetry.sent(int(s.q.delivered))
	}
	for _, b := range s.q.given {
		s.close(b)
	}
}

// close ends the reports of a batch that is not settled.
func (s *sender[T]) close(b *batch[T]) {
	s.endSpan(b, &outcome{sent: int(b.work.sent.Load())})
	s.telemetry.sendEnded()
}
