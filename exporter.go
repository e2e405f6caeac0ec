// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/otel/attribute"
	"go.uber.org/zap"

	"github.com/pullbatch/batcherexporter/internal/metadata"
	"github.com/pullbatch/batcherexporter/internal/payload"
)

// errNotStarted answers requests that come before Start. It is retryable.
var errNotStarted = errors.New("the exporter has not been started")

const (
	// stopGrace is how long a stop waits, after the time to send is over, for calls
	// into the wrapped exporter to notice that they were cancelled, and then for
	// the wrapped exporter to stop.
	stopGrace = 80 * time.Millisecond
	// stopGraceUnhurried is that for a caller who has set no deadline.
	stopGraceUnhurried = time.Second
)

// logInterval is how often what every batch could report is logged at the most.
const logInterval = time.Minute

// adviceInterval is that for advice that stays true.
const adviceInterval = 24 * time.Hour

// wrappedExporter is what the wrapped exporter has in every signal.
type wrappedExporter interface {
	component.Component
	Capabilities() consumer.Capabilities
}

// signalSettings are what differs from signal to signal.
type signalSettings[T any] struct {
	name    pipeline.Signal
	payload payload.Signal[T]
	create  func(context.Context, exporter.Factory, exporter.Settings, component.Config) (wrappedExporter, func(context.Context, T) error, error)
}

// signalExporter is the batcher exporter for one signal: it builds the wrapped
// exporter and the parts around it at Start, and takes them down in order.
type signalExporter[T any] struct {
	// Fixed after construction.
	instances *instances
	set       exporter.Settings
	cfg       *Config
	signal    signalSettings[T]

	running atomic.Pointer[running[T]] // atomic, since every request reads it; nil before Start

	// turn holds one token: who has it may start or stop the exporter. A channel, so
	// that a Shutdown can wait for its turn no longer than its context lasts.
	turn    chan struct{}
	stopped atomic.Bool // a Shutdown has been called; atomic, since it may not get its turn
	down    bool        // owned by who has the turn: there is nothing left to stop
}

// running is what exists from Start on.
type running[T any] struct {
	instance  *instance
	wrapped   wrappedExporter
	queue     *queue[T]
	sender    *sender[T]
	telemetry *telemetry
}

func newSignalExporter[T any](all *instances, set exporter.Settings, cfg component.Config, signal signalSettings[T]) *signalExporter[T] {
	e := &signalExporter[T]{instances: all, set: set, cfg: cfg.(*Config), signal: signal, turn: make(chan struct{}, 1)}
	e.turn <- struct{}{}
	return e
}

// Capabilities says that data is changed when batches are made: requests are
// merged and cut. The wrapped exporter does not exist yet when this is asked; if
// it changes data and we do not, it gets copies.
func (e *signalExporter[T]) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: e.ExporterHelperBatchingEnabled()}
}

// ExporterHelperBatchingEnabled says whether batches are made. The collector asks
// it to warn of a batch processor in front.
func (e *signalExporter[T]) ExporterHelperBatchingEnabled() bool {
	return e.cfg.batches()
}

// Start makes and starts the wrapped exporter, and then the queue. The error
// names the key of what is wrong.
func (e *signalExporter[T]) Start(ctx context.Context, host component.Host) error {
	select {
	case <-e.turn:
		defer e.endTurn()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if e.stopped.Load() || e.running.Load() != nil {
		return errors.New("the exporter was started or stopped before")
	}
	if err := e.start(ctx, host); err != nil {
		return err
	}
	if e.stopped.Load() {
		return errors.Join(errors.New("the exporter was stopped while it started"), e.stop(ctx))
	}
	return nil
}

func (e *signalExporter[T]) endTurn() { e.turn <- struct{}{} }

func (e *signalExporter[T]) start(ctx context.Context, host component.Host) error {
	in, err := e.instances.acquire(e.cfg, host)
	if err != nil {
		return err
	}
	for _, w := range in.takeWarnings() {
		e.set.Logger.Warn(w)
	}
	wrapped, push, err := e.startWrapped(ctx, host, in.resolved.wrapped)
	if err == nil {
		err = e.assemble(in, host, wrapped, push)
	}
	if err != nil {
		return errors.Join(err, e.stopWrapped(ctx, e.instances.release(in, wrapped)))
	}
	return nil
}

// startWrapped makes and starts the wrapped exporter. One that does not start is
// returned with the error, to be stopped.
func (e *signalExporter[T]) startWrapped(ctx context.Context, host component.Host, w *wrapped) (wrappedExporter, func(context.Context, T) error, error) {
	made, push, err := e.signal.create(ctx, w.factory, w.settings(e.set, e.rejected), w.config)
	switch {
	case errors.Is(err, pipeline.ErrSignalNotSupported):
		return nil, nil, fmt.Errorf("`exporter::%s`: an exporter of type %q does not support %s: %w", w.id, w.id.Type(), e.signal.name, err)
	case err != nil:
		return nil, nil, fmt.Errorf("`exporter::%s`: cannot create the wrapped exporter: %w", w.id, err)
	}
	if err := made.Start(ctx, host); err != nil {
		return made, nil, fmt.Errorf("`exporter::%s`: cannot start the wrapped exporter: %w", w.id, err)
	}
	return made, push, nil
}

// assemble makes queue, sender and telemetry, ties them together, and opens the
// exporter for data.
func (e *signalExporter[T]) assemble(in *instance, host component.Host, wrapped wrappedExporter, push func(context.Context, T) error) error {
	cfg := &in.resolved.effective
	s := &sender[T]{
		set: senderSettings[T]{
			push:     push,
			mutates:  wrapped.Capabilities().MutatesData,
			borrowed: !e.Capabilities().MutatesData,
			direct:   !cfg.SendingQueue.HasValue(),
			timeout:  cfg.Timeout,
			retry:    cfg.Retry,
			spanName: "exporter/" + e.set.ID.String() + "/" + e.signal.name.String(),
			spanAttrs: []attribute.KeyValue{
				attribute.String("exporter", e.set.ID.String()),
				attribute.String("data_type", e.signal.name.String()),
			},
		},
		tracer:    metadata.Tracer(e.set.TelemetrySettings),
		logger:    e.set.Logger,
		ceiling:   &ceiling{},
		isolation: newIsolation(cfg.Refusals, in.resolved.wrapped.id.Type().String()),
		oversized: &occasional{interval: logInterval},
		advised:   &occasional{interval: adviceInterval},
	}
	s.set.dropRefusing = cfg.Refusals.Destination == DestinationDrop
	set := queueSettingsOf(cfg)
	set.patience = longestBackoff(cfg.Retry)
	mergeResources := false
	if b := batchOf(cfg); b != nil {
		mergeResources = b.MergeResources
		s.set.dropOversized = b.Oversize == OversizeDrop
	}
	q := newQueue(set, e.signal.payload, e.signal.payload.NewMerger(mergeResources), s.work)
	s.q = q
	q.giveUp = s.giveUp
	t, err := newTelemetry(e.set, e.signal.name, s.stats)
	if err != nil {
		return err
	}
	s.telemetry = t
	s.report = newReport(reportSettings{
		logger: e.set.Logger, source: e.set.ID.String() + ", " + e.signal.name.String(),
		status: statusReporter(host), stats: s.stats, patience: longestBackoff(cfg.Retry),
	})
	e.logLimits(set)
	in.join(s)
	e.running.Store(&running[T]{instance: in, wrapped: wrapped, queue: q, sender: s, telemetry: t})
	return nil
}

// logLimits says at start how much may be queued, and that a queue in requests
// bounds no bytes.
func (e *signalExporter[T]) logLimits(set queueSettings) {
	if set.capacity == math.MaxInt64 {
		return
	}
	fields := []zap.Field{
		zap.Int64("queue_size", set.capacity), zap.Stringer("sizer", set.unit), zap.Int("num_consumers", set.slots),
	}
	if set.unit == unitBytes {
		e.set.Logger.Info("Queue is ready.", fields...)
		return
	}
	e.set.Logger.Info("Queue is ready. Its size in bytes is not bounded: use `sizer: bytes` for that.", fields...)
}

// batchOf returns the batch settings, nil if batching is off.
func batchOf(cfg *Config) *BatchConfig {
	if !cfg.SendingQueue.HasValue() {
		return nil
	}
	return cfg.SendingQueue.Get().Batch.Get()
}

// queueSettingsOf translates the configuration. Without a queue every request is
// a batch of its own that its caller waits for, with a slot of its own.
func queueSettingsOf(cfg *Config) queueSettings {
	if !cfg.SendingQueue.HasValue() {
		return queueSettings{unit: unitRequests, capacity: math.MaxInt64, slots: math.MaxInt, waitForResult: true}
	}
	q := cfg.SendingQueue.Get()
	set := queueSettings{
		unit:            unitOf(q.Sizer),
		capacity:        q.QueueSize,
		slots:           q.NumConsumers,
		blockOnOverflow: q.BlockOnOverflow,
		waitForResult:   q.WaitForResult,
		dropOldest:      q.DropOldestOnOverflow,
		maxAge:          q.MaxAge,
	}
	b := q.Batch.Get()
	if b == nil {
		return set
	}
	set.batch = batchSettings{unit: unitOf(b.Sizer), minSize: b.MinSize, maxBytes: b.MaxBytes, flushTimeout: b.FlushTimeout}
	switch {
	case set.batch.unit == unitItems:
		set.batch.maxItems = b.MaxSize
	case b.MaxSize > 0 && (b.MaxBytes == 0 || b.MaxSize < b.MaxBytes):
		set.batch.maxBytes = b.MaxSize
	}
	return set
}

func unitOf(s exporterhelper.RequestSizerType) unit {
	switch s {
	case exporterhelper.RequestSizerTypeItems:
		return unitItems
	case exporterhelper.RequestSizerTypeBytes:
		return unitBytes
	}
	return unitRequests
}

func (e *signalExporter[T]) consume(ctx context.Context, data T) error {
	p := e.running.Load()
	if p == nil {
		return errNotStarted
	}
	var s *settlement[T]
	err := errStopping // also while a Shutdown waits for its turn
	if !e.stopped.Load() {
		s, err = p.queue.offer(ctx, data)
	}
	switch {
	case err != nil:
		items := e.signal.payload.Items(data)
		p.telemetry.enqueueFailed(items)
		p.sender.report.refused(items, err)
	case s != nil:
		err = p.queue.await(ctx, s)
	}
	return err
}

// rejected accounts for items that the backend rejected in a request that it took.
func (e *signalExporter[T]) rejected(items int, text string) {
	if p := e.running.Load(); p != nil {
		p.telemetry.rejected(items)
		p.sender.report.rejected(items, text)
	}
}

// Flush sends what is queued or in flight now and returns when that is settled,
// or with ctx's error. See NewFactory.
func (e *signalExporter[T]) Flush(ctx context.Context) error {
	p := e.running.Load()
	if p == nil {
		return nil
	}
	return p.queue.flush(ctx)
}

// Shutdown refuses new data, sends what is queued within the time that a stop of all
// batchers of the factory may take, and within ctx's deadline, and stops the wrapped
// exporter. What it gives up is counted and logged, and is no error: to a collector
// that reloads its configuration that would be fatal. The error is what the wrapped
// exporter's own Shutdown returned. Shutdown may be called twice, and without Start.
// While a Start or another Shutdown hangs it waits for that until ctx ends.
func (e *signalExporter[T]) Shutdown(ctx context.Context) error {
	e.stopped.Store(true)
	select {
	case <-e.turn: // also if ctx has ended
		defer e.endTurn()
		return e.stop(ctx)
	default:
	}
	select {
	case <-e.turn:
		defer e.endTurn()
		return e.stop(ctx)
	case <-ctx.Done():
		e.set.Logger.Warn("The time to stop is over, and a start or another stop of the exporter has not come back.")
		return nil
	}
}

// stop takes down what start has made. Its caller must have the turn.
func (e *signalExporter[T]) stop(ctx context.Context) error {
	p := e.running.Load()
	if p == nil || e.down {
		return nil
	}
	e.down = true
	p.instance.leave(p.sender)
	taken, exit := e.instances.enterStop(p.sender)
	defer exit()
	drain, cancel := e.drain(ctx, p, taken)
	defer cancel()
	p.queue.halt()
	last, cancelLast := lastMoment(ctx, drain)
	stuck := p.queue.awaitWorkers(last)
	cancelLast()
	left := p.queue.abandon()
	p.sender.closeGiven()
	e.reportLeft(p, left)
	last, cancelLast = lastMoment(ctx, drain)
	defer cancelLast()
	err := e.stopWrapped(last, e.instances.release(p.instance, p.wrapped))
	if stuck != nil && !p.queue.workersEnded() {
		e.set.Logger.Warn("The exporter stops although calls have not come back.", zap.Error(stuck))
	}
	p.sender.report.close()
	p.telemetry.close()
	return err
}

// drain sends what is queued for as long as a stop may take, of which others have
// taken a part. It returns the context of that time, for what follows. While the
// backend stays away the time is short, and each batch has one attempt.
func (e *signalExporter[T]) drain(ctx context.Context, p *running[T], taken time.Duration) (context.Context, context.CancelFunc) {
	long, cancelLong := context.WithTimeout(ctx, max(p.instance.resolved.effective.DrainTimeout-taken, 0))
	if !p.queue.attemptsLast() {
		drainUntil(long, p.queue)
		return long, cancelLong
	}
	short, cancelShort := context.WithTimeout(long, max(awayTimeout-taken, 0))
	drainUntil(short, p.queue)
	if short.Err() != nil && !p.queue.attemptsLast() {
		drainUntil(long, p.queue)
		cancelShort()
		return long, cancelLong
	}
	return short, func() { cancelShort(); cancelLong() }
}

// drainUntil sends what is queued until ctx ends.
func drainUntil[T any](ctx context.Context, q *queue[T]) {
	if ctx.Err() != nil {
		return
	}
	covered, spent := q.stop()
	q.giveUpAll(spent, dropShutdown, fmt.Errorf("%w, and the last attempt failed", errStopping))
	_ = covered.wait(ctx)
}

// lastMoment is until when a stop waits for the wrapped exporter: as long as it
// may go on sending, and a short grace after that.
func lastMoment(ctx, drain context.Context) (context.Context, context.CancelFunc) {
	if drain.Err() == nil {
		return context.WithCancel(drain)
	}
	grace := stopGrace
	if _, ok := ctx.Deadline(); !ok && ctx.Err() == nil {
		grace = stopGraceUnhurried
	}
	return context.WithTimeout(context.WithoutCancel(ctx), grace)
}

// reportLeft counts what a stop gave up without an attempt, and logs all that it gave
// up.
func (e *signalExporter[T]) reportLeft(p *running[T], left int64) {
	if left > 0 {
		p.telemetry.sendFailed(int(left), errStopping)
		p.telemetry.dropped(dropShutdown, int(left))
	}
	items := left + p.sender.stopped.Load()
	if items == 0 {
		return
	}
	were := "were"
	if items == 1 {
		were = "was"
	}
	why := "raise `drain_timeout` to send more"
	if p.queue.attemptsLast() {
		why = "the backend was away, and did not take them at the last attempt"
	}
	p.sender.report.dropped(dropShutdown, int(items),
		fmt.Errorf("%s of %s %s not delivered before the stop and dropped: %s: %w", itemsOf(items), e.signal.name, were, why, errStopping))
}

// stopWrapped stops wrapped exporters, side by side. One that hangs is left behind,
// with a line in the log, and keeps no other from stopping.
func (e *signalExporter[T]) stopWrapped(ctx context.Context, all []component.Component) error {
	done := make(chan error, len(all))
	for _, wrapped := range all {
		go func() { done <- wrapped.Shutdown(ctx) }()
	}
	var errs []error
	for range all {
		select {
		case err := <-done:
			errs = append(errs, err)
		case <-ctx.Done():
			e.set.Logger.Warn("The wrapped exporter has not stopped in time and is left behind.", zap.Error(context.Cause(ctx)))
			return errors.Join(errs...)
		}
	}
	return errors.Join(errs...)
}

// statusReporter tells the collector that the destination refuses the exporter,
// which somebody has to mend, and when it no longer does.
func statusReporter(host component.Host) func(error) {
	return func(err error) {
		if err == nil {
			componentstatus.ReportStatus(host, componentstatus.NewEvent(componentstatus.StatusOK))
			return
		}
		componentstatus.ReportStatus(host, componentstatus.NewRecoverableErrorEvent(err))
	}
}
