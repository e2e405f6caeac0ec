// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/pipeline/xpipeline"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pullbatch/batcherexporter/internal/metadata"
	"github.com/pullbatch/batcherexporter/internal/settle"
)

// trigger is what made a batch due.
type trigger uint8

const (
	triggerSize     trigger = iota // the partition held min_size, or a full batch
	triggerTimeout                 // its oldest request had waited flush_timeout
	triggerPressure                // the queue was nearly full and a slot idle
	triggerFlush                   // a flush covered its head
	triggerShutdown                // the exporter stops
	triggerDirect                  // there is no queue: each request is a batch
)

var triggerNames = [...]string{
	triggerSize:     "size",
	triggerTimeout:  "timeout",
	triggerPressure: "pressure",
	triggerFlush:    "flush",
	triggerShutdown: "shutdown",
	triggerDirect:   "request",
}

func (t trigger) String() string {
	if int(t) < len(triggerNames) {
		return triggerNames[t]
	}
	return fmt.Sprintf("trigger(%d)", uint8(t))
}

// dropReason is why accepted items were given up.
type dropReason string

const (
	dropTooLarge         dropReason = "too_large"
	dropRefused          dropReason = "refused"
	dropDestination      dropReason = "destination"
	dropRetriesExhausted dropReason = "retries_exhausted"
	dropCallersGone      dropReason = "callers_gone"
	dropShutdown         dropReason = "shutdown"
	dropExpired          dropReason = "expired"
	dropEvicted          dropReason = "evicted"
	dropPermanent        dropReason = "permanent"
)

// dropReasons are all reasons, in the order of what may happen first.
var dropReasons = [...]dropReason{
	dropPermanent, dropRefused, // the first batch may be lost for these
	dropTooLarge, dropRetriesExhausted, dropDestination, dropShutdown,
	dropCallersGone, dropExpired, dropEvicted, // each needs a setting of its own
}

const (
	// reasonsAtStart is how many of dropReasons are counted from 0 at the start.
	// A collector may have many batchers that never get any data.
	reasonsAtStart = 2
	// reasonsInUse is that for the first batch.
	reasonsInUse = 6
)

// splitCause is why a batch was cut after it had been formed.
type splitCause string

const (
	splitTooLarge splitCause = "too_large"
	splitRefused  splitCause = "refused"
)

// queueStats is what a queue shows of itself: a snapshot under its lock, so that
// the numbers of one collection belong together.
type queueStats struct {
	Size, Capacity int64 // in the unit of the queue's sizer
	Accepted       int64 // items, since the start
	OldestAge      time.Duration
	Partitions     int64
	BackoffBatches int64
	SizeCeiling    int64 // bytes
}

func reasonNames() []string {
	names := make([]string, 0, len(dropReasons))
	for _, r := range dropReasons {
		names = append(names, string(r))
	}
	return names
}

func classNames() []string {
	names := make([]string, 0, len(settle.Classes))
	for _, c := range settle.Classes {
		names = append(names, string(c))
	}
	return names
}

// telemetry reports what happens in the exporter for one signal: one method per
// event, so that nothing else knows of instruments. Recording allocates nothing,
// but for sendFailed at the detailed level. All methods may be called at any time
// by any number of goroutines, after close too.
type telemetry struct {
	builder  *metadata.TelemetryBuilder
	gauges   metric.Registration
	counters itemCounters
	level    level

	// Ready-made options, as slices, because a call that makes its variadic
	// slice allocates it. They hold the attributes that exporterhelper uses for
	// the same metric: items and sizes carry `exporter` alone, the rest
	// `data_type` too, and so do all metrics of our own.
	ofExporter    []attribute.KeyValue
	addItems      []metric.AddOption
	recordSize    []metric.RecordOption
	addSignal     []metric.AddOption
	recordWaited  []metric.RecordOption
	addBatch      perValue
	addDropped    perValue
	addFailedCall perValue
	addSplit      perValue

	// Atomic, since collections may be concurrent: what has ever had something to
	// tell, below the detailed level.
	shown struct{ accepted, partitions, backoffs, ceiling, oldest, batches atomic.Bool }
}

// newTelemetry makes the instruments for one signal and begins to report what
// observe returns; observe is called once per collection, until close.
func newTelemetry(set exporter.Settings, signal pipeline.Signal, observe func() queueStats) (*telemetry, error) {
	builder, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	counters, err := countersOf(builder, signal)
	if err != nil {
		return nil, err
	}
	lvl, err := levelOf(set.TelemetrySettings, builder)
	if err != nil {
		return nil, err
	}

	ofExporter := []attribute.KeyValue{attribute.String("exporter", set.ID.String())}
	ofSignal := []attribute.KeyValue{ofExporter[0], attribute.String("data_type", signal.String())}
	exporterOnly := metric.WithAttributeSet(attribute.NewSet(ofExporter...))
	exporterAndSignal := metric.WithAttributeSet(attribute.NewSet(ofSignal...))

	t := &telemetry{
		builder:       builder,
		counters:      counters,
		level:         lvl,
		ofExporter:    ofExporter,
		addItems:      []metric.AddOption{exporterOnly},
		recordSize:    []metric.RecordOption{exporterOnly},
		addSignal:     []metric.AddOption{exporterAndSignal},
		recordWaited:  []metric.RecordOption{exporterAndSignal},
		addBatch:      newPerValue(ofSignal, "trigger", triggerNames[:]...),
		addDropped:    newPerValue(ofSignal, "reason", reasonNames()...),
		addFailedCall: newPerValue(ofSignal, "class", classNames()...),
		addSplit:      newPerValue(ofSignal, "cause", string(splitTooLarge), string(splitRefused)),
	}
	if t.gauges, err = t.watch(metadata.Meter(set.TelemetrySettings), observe, exporterAndSignal); err != nil {
		return nil, err
	}
	t.beginAtZero()
	return t, nil
}

// beginAtZero lets the counters of loss exist before the first loss: what begins
// with it is no increase, to an alert.
func (t *telemetry) beginAtZero() {
	ctx := context.Background()
	t.counters.sendFailed.Add(ctx, 0, t.addItems...)
	t.counters.enqueueFailed.Add(ctx, 0, t.addItems...)
	if !t.level.detailed {
		t.dropNothing(dropReasons[:reasonsAtStart])
		return
	}
	t.dropNothing(dropReasons[:])
	t.rejected(0)
	t.resent(0)
}

func (t *telemetry) dropNothing(reasons []dropReason) {
	for _, r := range reasons {
		t.dropped(r, 0)
	}
}

// watch reports what observe returns with every collection. The builder has a
// callback for each instrument; one callback for all takes the queue's lock once
// and reports numbers that belong together.
func (t *telemetry) watch(meter metric.Meter, observe func() queueStats, attrs metric.ObserveOption) (metric.Registration, error) {
	b, opts := t.builder, []metric.ObserveOption{attrs}
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := observe()
		if s.Capacity < math.MaxInt64 { // there is a queue
			o.ObserveInt64(b.ExporterQueueSize, s.Size, opts...)
			o.ObserveInt64(b.ExporterQueueCapacity, s.Capacity, opts...)
		}
		if t.shows(&t.shown.accepted, s.Accepted > 0) {
			o.ObserveInt64(b.ExporterBatcherAcceptedItems, s.Accepted, opts...)
		}
		if t.shows(&t.shown.partitions, s.Partitions > 1) {
			o.ObserveInt64(b.ExporterBatcherPartitions, s.Partitions, opts...)
		}
		if t.shows(&t.shown.backoffs, s.BackoffBatches > 0) {
			o.ObserveInt64(b.ExporterBatcherBackoffBatches, s.BackoffBatches, opts...)
		}
		if t.shows(&t.shown.ceiling, s.SizeCeiling > 0) {
			o.ObserveInt64(b.ExporterBatcherSizeCeiling, s.SizeCeiling, opts...)
		}
		if t.shows(&t.shown.oldest, s.OldestAge > 0) {
			o.ObserveFloat64(b.ExporterBatcherOldestAge, s.OldestAge.Seconds(), opts...)
		}
		return nil
	},
		b.ExporterQueueSize, b.ExporterQueueCapacity, b.ExporterBatcherAcceptedItems,
		b.ExporterBatcherPartitions, b.ExporterBatcherBackoffBatches, b.ExporterBatcherSizeCeiling,
		b.ExporterBatcherOldestAge)
}

// shows says whether a gauge has a series: at the detailed level always, below it
// from the first time on that it has something to tell.
func (t *telemetry) shows(shown *atomic.Bool, tells bool) bool {
	if tells {
		shown.Store(true)
	}
	return t.level.detailed || shown.Load()
}

// close ends the reports of the queue, so that a stopped instance leaves no
// gauges behind. What is recorded later still counts. It may be called twice.
func (t *telemetry) close() {
	// The SDK's only error is nil, and without gauges there is nothing to save.
	_ = t.gauges.Unregister()
}

// measuresBytes reports whether anybody reads the byte sizes of batches: they
// cost a walk over the data, which is not to be made for nobody.
func (t *telemetry) measuresBytes() bool {
	return t.level.sizeBytes
}

// batchLeft counts a batch that leaves the queue. bytes is 0 if its size in
// bytes is not known.
func (t *telemetry) batchLeft(why trigger, items, bytes int) {
	ctx := context.Background()
	if !t.level.detailed && !t.shown.batches.Load() && t.shown.batches.CompareAndSwap(false, true) {
		t.dropNothing(dropReasons[reasonsAtStart:reasonsInUse])
	}
	t.builder.ExporterBatcherBatches.Add(ctx, 1, t.addBatch.with(why.String())...)
	if t.level.size {
		t.builder.ExporterQueueBatchSendSize.Record(ctx, int64(items), t.recordSize...)
	}
	if t.level.sizeBytes && bytes > 0 {
		t.builder.ExporterQueueBatchSendSizeBytes.Record(ctx, int64(bytes), t.recordSize...)
	}
}

// waited records how long the oldest request of a batch had been in the queue, at
// the detailed level: a histogram is more series than all others together.
func (t *telemetry) waited(d time.Duration) {
	if !t.level.detailed {
		return
	}
	t.builder.ExporterBatcherTimeInQueue.Record(context.Background(), d.Seconds(), t.recordWaited...)
}

// sendStarted and sendEnded enclose the way of a batch from its first attempt to
// its outcome, the backoffs in between included.
func (t *telemetry) sendStarted() {
	t.builder.ExporterInFlightRequests.Add(context.Background(), 1, t.addSignal...)
}

func (t *telemetry) sendEnded() {
	t.builder.ExporterInFlightRequests.Add(context.Background(), -1, t.addSignal...)
}

// attemptFailed counts a failed call into the wrapped exporter.
func (t *telemetry) attemptFailed(class string) {
	t.builder.ExporterBatcherFailedAttempts.Add(context.Background(), 1, t.addFailedCall.with(class)...)
}

// sent counts items that the wrapped exporter took.
func (t *telemetry) sent(items int) {
	t.counters.sent.Add(context.Background(), int64(items), t.addItems...)
}

// sendFailed counts items whose final outcome is err.
func (t *telemetry) sendFailed(items int, err error) {
	opts := t.addItems
	if t.level.errorAttributes {
		opts = addOptions(slices.Concat(t.ofExporter, failureAttributes(err)))
	}
	t.counters.sendFailed.Add(context.Background(), int64(items), opts...)
}

// enqueueFailed counts items that were not accepted.
func (t *telemetry) enqueueFailed(items int) {
	t.counters.enqueueFailed.Add(context.Background(), int64(items), t.addItems...)
}

// split counts the cuts of what the backend refused, or would refuse.
func (t *telemetry) split(cause splitCause, cuts int) {
	t.builder.ExporterBatcherSplits.Add(context.Background(), int64(cuts), t.addSplit.with(string(cause))...)
}

// dropped counts accepted items that were given up.
func (t *telemetry) dropped(reason dropReason, items int) {
	t.builder.ExporterBatcherDroppedItems.Add(context.Background(), int64(items), t.addDropped.with(string(reason))...)
}

// resent counts items that are sent again in smaller pieces after a refusal.
func (t *telemetry) resent(items int) {
	t.builder.ExporterBatcherResentItems.Add(context.Background(), int64(items), t.addSignal...)
}

// rejected counts items that the backend rejected in a request that it took.
func (t *telemetry) rejected(items int) {
	t.builder.ExporterBatcherRejectedItems.Add(context.Background(), int64(items), t.addSignal...)
}

// itemCounters are the metrics that have a name of their own for each signal.
type itemCounters struct {
	sent, sendFailed, enqueueFailed metric.Int64Counter
}

func countersOf(b *metadata.TelemetryBuilder, signal pipeline.Signal) (itemCounters, error) {
	switch signal {
	case pipeline.SignalTraces:
		return itemCounters{b.ExporterSentSpans, b.ExporterSendFailedSpans, b.ExporterEnqueueFailedSpans}, nil
	case pipeline.SignalMetrics:
		return itemCounters{b.ExporterSentMetricPoints, b.ExporterSendFailedMetricPoints, b.ExporterEnqueueFailedMetricPoints}, nil
	case pipeline.SignalLogs:
		return itemCounters{b.ExporterSentLogRecords, b.ExporterSendFailedLogRecords, b.ExporterEnqueueFailedLogRecords}, nil
	case xpipeline.SignalProfiles:
		return itemCounters{b.ExporterSentProfileSamples, b.ExporterSendFailedProfileSamples, b.ExporterEnqueueFailedProfileSamples}, nil
	default:
		return itemCounters{}, fmt.Errorf("no metrics for signal %q", signal)
	}
}

// level is what the collector's telemetry level leaves of the shared metrics;
// their descriptions promise some of it for the detailed level only.
type level struct {
	detailed, size, sizeBytes, errorAttributes bool
}

// levelOf finds out the level. No setting tells it to a component: the collector
// turns it into views that name instruments of exporterhelper's scope, and not of
// ours. So it asks what the views leave of the same instruments in that scope,
// where none of them is ever given a value. The user's own views for that scope
// are followed in the same way, and so are those for ours.
func levelOf(set component.TelemetrySettings, ours *metadata.TelemetryBuilder) (level, error) {
	set.MeterProvider = helperMeters{set.MeterProvider}
	theirs, err := metadata.NewTelemetryBuilder(set)
	if err != nil {
		return level{}, err
	}
	ctx := context.Background()
	detailed := theirs.ExporterQueueBatchSendSize.Enabled(ctx)
	return level{
		detailed:  detailed,
		size:      detailed && ours.ExporterQueueBatchSendSize.Enabled(ctx),
		sizeBytes: theirs.ExporterQueueBatchSendSizeBytes.Enabled(ctx) && ours.ExporterQueueBatchSendSizeBytes.Enabled(ctx),
		// Whether a view strips these attributes cannot be asked. The default
		// views do so exactly where they drop the sizes.
		errorAttributes: detailed,
	}, nil
}

// helperScopeName is the instrumentation scope of exporterhelper.
const helperScopeName = "go.opentelemetry.io/collector/exporter/exporterhelper"

// helperMeters makes every meter one of exporterhelper's.
type helperMeters struct{ metric.MeterProvider }

func (h helperMeters) Meter(_ string, opts ...metric.MeterOption) metric.Meter {
	return h.MeterProvider.Meter(helperScopeName, opts...)
}

// failureAttributes says what kind of error ended the way of a batch, in the
// words that exporterhelper uses.
func failureAttributes(err error) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("error.type", errorType(err)),
		attribute.Bool("error.permanent", consumererror.IsPermanent(err)),
	}
}

func errorType(err error) string {
	switch {
	case errors.Is(err, errStopping):
		return "Shutdown"
	case errors.Is(err, context.Canceled):
		return "Canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "Deadline_Exceeded"
	}
	if st, ok := status.FromError(err); ok && st.Code() != codes.OK {
		return st.Code().String()
	}
	return "_OTHER"
}

// perValue has the options of a metric for each value of the attribute that is
// its own.
type perValue struct {
	base  []attribute.KeyValue
	key   string
	ready map[string][]metric.AddOption
}

func newPerValue(base []attribute.KeyValue, key string, values ...string) perValue {
	p := perValue{base: base, key: key, ready: make(map[string][]metric.AddOption, len(values))}
	for _, v := range values {
		p.ready[v] = p.build(v)
	}
	return p
}

// with returns the options for value. One that is not among the known costs
// allocations, but is counted all the same.
func (p perValue) with(value string) []metric.AddOption {
	if opts, ok := p.ready[value]; ok {
		return opts
	}
	return p.build(value)
}

func (p perValue) build(value string) []metric.AddOption {
	return addOptions(slices.Concat(p.base, []attribute.KeyValue{attribute.String(p.key, value)}))
}

func addOptions(attrs []attribute.KeyValue) []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(attrs...))}
}
