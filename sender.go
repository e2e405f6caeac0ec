// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v7"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/pullbatch/batcherexporter/internal/payload"
	"github.com/pullbatch/batcherexporter/internal/settle"
)

// senderSettings are what a sender runs with.
type senderSettings[T any] struct {
	push          func(context.Context, T) error // the wrapped exporter's Consume
	mutates       bool                           // the wrapped exporter changes what it gets
	borrowed      bool                           // requests are not ours to change: we said that we do not
	direct        bool                           // no queue: a call ends with its caller
	dropRefusing  bool                           // what a destination refuses is lost at once
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
	contact   contact
	address   address
	stopped   atomic.Int64 // items that were given up after an attempt, since the exporter stops
	oversized *occasional  // log lines about oversized items
	advised   *occasional  // log lines about the ceiling
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
			b.work.loseAll(dropCallersGone, err)
			break
		}
		p := b.work.next()
		if s.divides(b, &p) || s.refusesOversized(b, &p) {
			continue
		}
		s.reportLeaving(b)
		p.whole(s.q.signal)
		began := s.q.now()
		s.contact.asks()
		err, cancelled := s.attempt(b, &p)
		if err == nil {
			b.work.passedAt = began
			s.passed(b, &p)
			continue
		}
		before := b.work.sent.Load()
		d := s.failed(b, &p, err, cancelled)
		if b.work.sent.Load() > before {
			b.work.passedAt = began // a part of it has passed
		}
		if d.began = began; d.wait > 0 {
			if s.wait(b, d, err) {
				return
			}
		}
	}
	s.finish(b)
}

// beginStop sends what is queued, since a stop has begun. If the backend is known to
// be away, each batch has one more attempt.
func (s *sender[T]) beginStop() {
	s.q.beginStop(s.contact.lost(longestBackoff(s.set.retry)))
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
	s.report.passed()
	s.contact.answered(true, false)
	s.address.accepted()
	w := &b.work
	w.sent.Add(int64(p.items))
	w.futile, w.samples = 0, 0
	if p.search != nil {
		p.search.saved = true
		w.calls++
	}
	if s.ceiling.asks() && s.ceiling.pass(s.q.signal.Bytes(p.data), p.items) {
		s.advise()
	}
}

// failed draws the consequence of a failed attempt with p: what is left of it
// goes back to b's parts or is lost. With a wait above 0, b has to wait.
func (s *sender[T]) failed(b *batch[T], p *part[T], err error, cancelled bool) (d delay) {
	v := s.judge(b, p, err, cancelled)
	s.telemetry.attemptFailed(string(v.Class))
	s.contact.answered(!v.Retry(), v.Class == settle.Destination)
	w := &b.work
	if !s.keepRemainder(b, p, err, cancelled) && v.Class == settle.Permanent {
		// Some of it was delivered, and nobody can tell what was not: what is called
		// permanent of all is true of a part.
		v.Class = settle.Retryable
	}
	switch v.Class {
	case settle.Unknown, settle.Retryable, settle.Throttled:
		err = settle.NotPermanent(err)
	case settle.TooLarge:
		s.tooLarge(b, p, v, err)
		return delay{}
	case settle.Refused:
		s.refused(b, p, v, err)
		return delay{}
	case settle.Permanent:
		s.isolation.heed(v)
		w.lose(p, dropPermanent, permanent(fmt.Errorf("not retryable error: %w", err)))
		return delay{}
	}
	if s.q.life.Err() != nil {
		w.first(*p)
		return delay{}
	}
	if gone := s.pointless(b); gone != nil {
		w.first(*p)
		w.loseAll(dropCallersGone, fmt.Errorf("%w: %w", gone, err))
		return delay{}
	}
	s.report.failed(err, v.Class == settle.Destination)
	why, final := s.exhausted(b, v, err)
	if final == nil {
		w.first(*p)
		return delay{wait: max(b.retries.next, 1), atLeast: v.Delay, destination: v.Class == settle.Destination && !s.set.direct}
	}
	w.lose(p, why, final)
	if s.set.retry.Enabled || why == dropDestination {
		w.loseAll(why, final)
	}
	return delay{}
}

// judge says what a failed attempt with p means. What only words call too large is
// so unless a request of that size has passed lately; what the destination refuses
// although it has taken others since is refused for its content.
func (s *sender[T]) judge(b *batch[T], p *part[T], err error, cancelled bool) settle.Verdict {
	v := settle.Of(err, cancelled)
	switch {
	case v.Class == settle.TooLarge && v.Ambiguous && s.ceiling.contradicts(s.q.signal.Bytes(p.data)),
		v.Class == settle.Destination && !s.set.direct && s.q.outlived(b):
		v.Class = settle.Refused
	}
	return v
}

// keepRemainder reduces p to what the wrapped exporter reports as not delivered, if
// the whole tree of the error says so: each branch must tell what is left of it,
// together less than was sent and nothing twice. Else all of p is left, and the
// result is false if a part of p was delivered all the same. Where one branch may be
// sent again, another that is refused for good is lost.
func (s *sender[T]) keepRemainder(b *batch[T], p *part[T], err error, cancelled bool) bool {
	sig := s.q.signal
	parts, ok := settle.Remainders(err, sig.Remainder, cancelled)
	if len(parts) == 0 {
		return true
	}
	left, final := 0, 0
	rests := make([]T, len(parts))
	for i := range parts {
		n := sig.Items(parts[i].Rest)
		ok = ok && n > 0
		rests[i] = parts[i].Rest
		left += n
		if parts[i].Final {
			final += n
		}
	}
	if !ok || left > p.items || len(rests) > 1 && !payload.Within(p.data, rests) {
		return false
	}
	b.work.sent.Add(int64(p.items - left))
	if final == left {
		final = 0 // the caller of this loses p as a whole
	}
	s.reduce(b, p, parts, final)
	return true
}

// reduce makes p what the parts hold that are left of it. With final above 0, those
// that are refused for good are lost.
func (s *sender[T]) reduce(b *batch[T], p *part[T], parts []settle.Remainder[T], final int) {
	sig := s.q.signal
	var again payload.Batch[T]
	p.items = 0
	for _, r := range parts {
		n := sig.Items(r.Rest)
		switch {
		case final > 0 && r.Final:
			b.work.lose(&part[T]{items: n, place: p.place}, dropPermanent, permanent(r.Err))
			continue
		case p.items == 0:
			p.data = r.Rest
		case again == nil:
			again = s.q.merger.Begin(false)
			again.Add(p.data)
			again.Add(r.Rest)
		default:
			again.Add(r.Rest)
		}
		p.items += n
	}
	if again != nil {
		p.data = again.Data()
	}
}

// exhausted decides whether b may be tried again, and sets when. Otherwise it says
// for which reason b is lost, and the error why.
func (s *sender[T]) exhausted(b *batch[T], v settle.Verdict, err error) (dropReason, error) {
	r := &b.retries
	r.next = max(r.backoff.NextBackOff(), v.Delay)
	deadline, limited := s.callerDeadline(b)
	limit := s.set.retry.MaxElapsedTime
	switch refused := v.Class == settle.Destination; {
	case refused && s.set.dropRefusing:
		return dropDestination, permanent(fmt.Errorf("the destination refuses the exporter, and `refusals::destination` is drop: %w", err))
	case !s.set.retry.Enabled:
		return dropRetriesExhausted, err
	case refused && v.Address:
		if age, long := s.address.refused(r.next, limit); long {
			return dropDestination, permanent(fmt.Errorf("nothing was accepted at this address for %v: %w", age.Round(time.Second), err))
		}
	case refused && !s.q.set.waitForResult && limit == defaultMaxElapsedTime:
		// The data is good, and a key is replaced in hours: it is kept as long as there
		// is room, unless somebody has set a limit.
		return "", nil
	}
	switch {
	case limited && time.Until(deadline) < r.next:
		return dropRetriesExhausted, fmt.Errorf("%w before the next attempt: %w", context.DeadlineExceeded, err)
	case limit > 0 && r.next > limit-time.Since(r.began):
		return dropRetriesExhausted, fmt.Errorf("no more retries left: %w", err)
	}
	return "", nil
}

// callerDeadline is when the caller of a batch ends that has no queue.
func (s *sender[T]) callerDeadline(b *batch[T]) (time.Time, bool) {
	if !s.set.direct {
		return time.Time{}, false
	}
	return b.content.ctx.Deadline()
}

// wait lets b wait for its next attempt. It reports false if there will be none:
// then all of b is lost.
func (s *sender[T]) wait(b *batch[T], d delay, err error) bool {
	s.report.waits(err, d.wait, b.work.items())
	b.retries.span.AddEvent(retryMessage,
		trace.WithAttributes(attribute.String("interval", d.wait.String()), attribute.String("error", err.Error())))
	switch s.q.delay(b, d) {
	case delayedAbandoned:
		s.close(b)
	case delayedGone:
		b.work.loseAll(dropCallersGone, fmt.Errorf("%w: %w", errCallersGone, err))
		return false
	case delayedStops:
		b.work.loseAll(dropShutdown, fmt.Errorf("%w, and the last attempt failed: %w", errStopping, settle.NotPermanent(err)))
		return false
	}
	return true
}

// giveUp settles a batch that is not sent, or not again. The caller must have taken
// it from the queue.
func (s *sender[T]) giveUp(b *batch[T], why dropReason, err error) {
	if why != dropShutdown {
		err = permanent(err) // another collector may take what a stop gives up
	}
	if b.retries.span == nil {
		s.q.discard(b)
		b.work.lose(&part[T]{items: b.items, place: span{0, b.items}}, why, err)
	} else {
		b.work.loseAll(why, err)
	}
	s.finish(b)
	s.q.wake() // its end may have let others go, and no worker is on the way
}

// finish settles b and reports its outcome, unless the queue was abandoned, which
// reported all that was pending itself.
func (s *sender[T]) finish(b *batch[T]) {
	w := &b.work
	if w.hopeless {
		s.isolation.pause()
	}
	o := outcome{sent: int(w.sent.Load()), lost: w.lost, order: b.content.order, passedAt: w.passedAt}
	o.expired = s.address.long.Load()
	s.end(b, &o)
	if !s.q.settle(b, o) {
		return
	}
	if o.sent > 0 {
		s.telemetry.sent(o.sent)
	}
	for reason, l := range o.byReason() {
		s.telemetry.sendFailed(l.items, l.err)
		s.telemetry.dropped(reason, l.items)
		if reason == dropShutdown {
			s.stopped.Add(int64(l.items)) // which is logged with all that the stop gives up
			continue
		}
		s.report.dropped(reason, l.items, l.err)
	}
}

// end ends the reports of a batch, if they have begun.
func (s *sender[T]) end(b *batch[T], o *outcome) {
	span := b.retries.span
	if span == nil {
		return
	}
	s.telemetry.sendEnded()
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
	s.q.given = nil // nothing of a stopped exporter keeps its data alive
}

// close ends the reports of a batch that is not settled.
func (s *sender[T]) close(b *batch[T]) {
	s.end(b, &outcome{sent: int(b.work.sent.Load())})
}
