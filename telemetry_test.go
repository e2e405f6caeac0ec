// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/pipeline/xpipeline"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pullbatch/batcherexporter/internal/metadatatest"
)

var (
	attrExporter = attribute.String("exporter", "batcher")
	attrLogs     = attribute.String("data_type", "logs")
	noTimestamp  = metricdatatest.IgnoreTimestamp()
)

// startTelemetry returns telemetry for signal and the collector's side of it.
func startTelemetry(t *testing.T, signal pipeline.Signal, observe func() queueStats, opts ...componenttest.TelemetryOption) (*telemetry, *componenttest.Telemetry) {
	t.Helper()
	tt := componenttest.NewTelemetry(opts...)
	t.Cleanup(func() { require.NoError(t, tt.Shutdown(context.WithoutCancel(t.Context()))) })
	tel, err := newTelemetry(metadatatest.NewSettings(tt), signal, observe)
	require.NoError(t, err)
	t.Cleanup(tel.close)
	return tel, tt
}

func emptyQueue() queueStats { return queueStats{} }

// point is one value with the attributes that every metric of ours has.
func point(value int64, attrs ...attribute.KeyValue) metricdata.DataPoint[int64] {
	return metricdata.DataPoint[int64]{Value: value, Attributes: attribute.NewSet(append(attrs, attrExporter)...)}
}

// droppedPoints are those of the items given up for logs, at the detailed level.
func droppedPoints(lost map[dropReason]int64) []metricdata.DataPoint[int64] {
	var all []metricdata.DataPoint[int64]
	for _, r := range dropReasons {
		all = append(all, point(lost[r], attrLogs, reasonIs(r)))
	}
	return all
}

func points(p ...metricdata.DataPoint[int64]) []metricdata.DataPoint[int64] { return p }

func TestTelemetry_ItemsHaveANameForEachSignal(t *testing.T) {
	type assertFunc func(*testing.T, *componenttest.Telemetry, []metricdata.DataPoint[int64], ...metricdatatest.Option)
	tests := []struct {
		signal                          pipeline.Signal
		sent, sendFailed, enqueueFailed assertFunc
	}{
		{
			pipeline.SignalTraces, metadatatest.AssertEqualExporterSentSpans,
			metadatatest.AssertEqualExporterSendFailedSpans, metadatatest.AssertEqualExporterEnqueueFailedSpans,
		},
		{
			pipeline.SignalMetrics, metadatatest.AssertEqualExporterSentMetricPoints,
			metadatatest.AssertEqualExporterSendFailedMetricPoints, metadatatest.AssertEqualExporterEnqueueFailedMetricPoints,
		},
		{
			pipeline.SignalLogs, metadatatest.AssertEqualExporterSentLogRecords,
			metadatatest.AssertEqualExporterSendFailedLogRecords, metadatatest.AssertEqualExporterEnqueueFailedLogRecords,
		},
		{
			xpipeline.SignalProfiles, metadatatest.AssertEqualExporterSentProfileSamples,
			metadatatest.AssertEqualExporterSendFailedProfileSamples, metadatatest.AssertEqualExporterEnqueueFailedProfileSamples,
		},
	}
	for _, tc := range tests {
		t.Run(tc.signal.String(), func(t *testing.T) {
			tel, tt := startTelemetry(t, tc.signal, emptyQueue)
			tel.sent(40)
			tel.sent(2)
			tel.sendFailed(5, errors.New("no route"))
			tel.enqueueFailed(7)

			tc.sent(t, tt, points(point(42)), noTimestamp)
			tc.sendFailed(t, tt, points(point(0), point(5, attribute.String("error.type", "_OTHER"), attribute.Bool("error.permanent", false))), noTimestamp)
			tc.enqueueFailed(t, tt, points(point(7)), noTimestamp)
		})
	}
}

func TestTelemetry_UnknownSignal(t *testing.T) {
	_, err := newTelemetry(exportertest.NewNopSettings(exportertest.NopType), pipeline.Signal{}, emptyQueue)
	require.EqualError(t, err, `no metrics for signal ""`)
}

func TestTelemetry_QueueIsObservedOnceForEachCollection(t *testing.T) {
	var calls atomic.Int64
	_, tt := startTelemetry(t, pipeline.SignalLogs, func() queueStats {
		return queueStats{
			Size: 10 * calls.Add(1), Capacity: 1000, Accepted: 70, OldestAge: 1500 * time.Millisecond,
			Partitions: 3, BackoffBatches: 2,
		}
	})

	metadatatest.AssertEqualExporterQueueSize(t, tt, points(point(10, attrLogs)), noTimestamp)
	metadatatest.AssertEqualExporterQueueSize(t, tt, points(point(20, attrLogs)), noTimestamp)
	metadatatest.AssertEqualExporterQueueCapacity(t, tt, points(point(1000, attrLogs)), noTimestamp)
	metadatatest.AssertEqualExporterBatcherAcceptedItems(t, tt, points(point(70, attrLogs)), noTimestamp)
	metadatatest.AssertEqualExporterBatcherPartitions(t, tt, points(point(3, attrLogs)), noTimestamp)
	metadatatest.AssertEqualExporterBatcherBackoffBatches(t, tt, points(point(2, attrLogs)), noTimestamp)
	metadatatest.AssertEqualExporterBatcherOldestAge(t, tt, []metricdata.DataPoint[float64]{
		{Value: 1.5, Attributes: attribute.NewSet(attrExporter, attrLogs)},
	}, noTimestamp)
	assert.EqualValues(t, 7, calls.Load(), "calls of observe in seven collections")
}

func TestTelemetry_CloseEndsTheGauges(t *testing.T) {
	var calls atomic.Int64
	tel, tt := startTelemetry(t, pipeline.SignalLogs, func() queueStats {
		calls.Add(1)
		return queueStats{Size: 1}
	})
	tel.close()
	tel.close()
	tel.sent(3)

	for _, name := range []string{"queue_size", "queue_capacity", "batcher_accepted_items", "batcher_partitions", "batcher_backoff_batches", "batcher_oldest_age"} {
		_, err := tt.GetMetric("otelcol_exporter_" + name)
		assert.EqualError(t, err, "metric 'otelcol_exporter_"+name+"' not found")
	}
	assert.Zero(t, calls.Load(), "calls of observe after close")
	metadatatest.AssertEqualExporterSentLogRecords(t, tt, points(point(3)), noTimestamp)
}

func TestTelemetry_BatchLeft(t *testing.T) {
	tel, tt := startTelemetry(t, pipeline.SignalLogs, emptyQueue)
	assert.True(t, tel.measuresBytes())

	tel.batchLeft(triggerSize, 100, 4096)
	tel.batchLeft(triggerSize, 100, 4096)
	tel.batchLeft(triggerTimeout, 7, 300)
	tel.batchLeft(triggerPressure, 50, 0)
	tel.batchLeft(triggerFlush, 1, 0)
	tel.batchLeft(triggerShutdown, 2, 0)

	of := func(why string) attribute.KeyValue { return attribute.String("trigger", why) }
	metadatatest.AssertEqualExporterBatcherBatches(t, tt, points(
		point(2, attrLogs, of("size")), point(1, attrLogs, of("timeout")), point(1, attrLogs, of("pressure")),
		point(1, attrLogs, of("flush")), point(1, attrLogs, of("shutdown")),
	), noTimestamp)
	assert.Equal(t, summary{6, 260}, histogram[int64](t, tt, "otelcol_exporter_queue_batch_send_size"))
	assert.Equal(t, summary{3, 8492}, histogram[int64](t, tt, "otelcol_exporter_queue_batch_send_size_bytes"), "a size that is not known is no size of 0")
}

func TestTelemetry_Waited(t *testing.T) {
	tel, tt := startTelemetry(t, pipeline.SignalLogs, emptyQueue)
	tel.waited(200 * time.Millisecond)
	tel.waited(3 * time.Second)
	assert.Equal(t, summary{2, 3.2}, histogram[float64](t, tt, "otelcol_exporter_batcher_time_in_queue"))
}

func TestTelemetry_InFlight(t *testing.T) {
	tel, tt := startTelemetry(t, pipeline.SignalLogs, emptyQueue)
	tel.sendStarted()
	tel.sendStarted()
	tel.sendEnded()
	metadatatest.AssertEqualExporterInFlightRequests(t, tt, points(point(1, attrLogs)), noTimestamp)
}

func TestTelemetry_DroppedAndFailedAttempts(t *testing.T) {
	tel, tt := startTelemetry(t, pipeline.SignalLogs, emptyQueue)
	tel.dropped(dropTooLarge, 1)
	tel.dropped(dropShutdown, 20)
	tel.dropped(dropShutdown, 3)
	tel.attemptFailed("retryable")
	tel.attemptFailed("one that nobody announced")

	metadatatest.AssertEqualExporterBatcherDroppedItems(t, tt,
		droppedPoints(map[dropReason]int64{dropTooLarge: 1, dropShutdown: 23}), noTimestamp)
	class := func(c string) attribute.KeyValue { return attribute.String("class", c) }
	metadatatest.AssertEqualExporterBatcherFailedAttempts(t, tt,
		points(point(1, attrLogs, class("retryable")), point(1, attrLogs, class("one that nobody announced"))), noTimestamp)
}

func TestTelemetry_FailureAttributes(t *testing.T) {
	f := func(err error, wantType string, wantPermanent bool) {
		t.Helper()
		want := []attribute.KeyValue{attribute.String("error.type", wantType), attribute.Bool("error.permanent", wantPermanent)}
		assert.Equal(t, want, failureAttributes(err), "of %v", err)
	}
	f(errors.New("no route"), "_OTHER", false)
	f(consumererror.NewPermanent(errors.New("no route")), "_OTHER", true)
	f(fmt.Errorf("3 items left: %w", errStopping), "Shutdown", false)
	f(context.Canceled, "Canceled", false)
	f(fmt.Errorf("attempt: %w", context.DeadlineExceeded), "Deadline_Exceeded", false)
	f(status.Error(codes.Unavailable, "down"), "Unavailable", false)
	f(consumererror.NewPermanent(status.Error(codes.InvalidArgument, "bad")), "InvalidArgument", true)
	f(nil, "_OTHER", false)
}

// belowDetailed are the views that the collector makes for exporterhelper's scope
// at every level below detailed.
func belowDetailed() componenttest.TelemetryOption {
	view := func(name string, stream sdkmetric.Stream) sdkmetric.Option {
		instrument := sdkmetric.Instrument{Name: name}
		instrument.Scope.Name = helperScopeName
		return sdkmetric.WithView(sdkmetric.NewView(instrument, stream))
	}
	drop := sdkmetric.Stream{Aggregation: sdkmetric.AggregationDrop{}}
	return componenttest.WithMetricOptions(
		view("otelcol_exporter_queue_batch_send_size_bytes", drop),
		view("otelcol_exporter_queue_batch_send_size", drop),
		view("otelcol_exporter_send_failed_*", sdkmetric.Stream{AttributeFilter: attribute.NewDenyKeysFilter("error.type", "error.permanent")}),
	)
}

func TestTelemetry_BelowDetailedLevel(t *testing.T) {
	tel, tt := startTelemetry(t, pipeline.SignalLogs, emptyQueue, belowDetailed())
	assert.False(t, tel.measuresBytes(), "sizes in bytes would be computed for nobody")
	tel.batchLeft(triggerSize, 100, 4096)
	tel.sendFailed(5, errors.New("no route"))

	for _, name := range []string{"otelcol_exporter_queue_batch_send_size", "otelcol_exporter_queue_batch_send_size_bytes"} {
		_, err := tt.GetMetric(name)
		assert.EqualError(t, err, "metric '"+name+"' not found")
	}
	metadatatest.AssertEqualExporterSendFailedLogRecords(t, tt, points(point(5)), noTimestamp)
	metadatatest.AssertEqualExporterBatcherBatches(t, tt, points(point(1, attrLogs, attribute.String("trigger", "size"))), noTimestamp)
}

// seriesOf counts the series of a collection: a histogram has one for each bucket,
// and two for its sum and count.
func seriesOf(t *testing.T, tt *componenttest.Telemetry) (names []string, series int) {
	t.Helper()
	var rm metricdata.ResourceMetrics
	require.NoError(t, tt.Reader.Collect(t.Context(), &rm))
	for _, sm := range rm.ScopeMetrics {
		for _, m := range sm.Metrics {
			names = append(names, m.Name)
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				series += len(d.DataPoints)
			case metricdata.Gauge[int64]:
				series += len(d.DataPoints)
			case metricdata.Gauge[float64]:
				series += len(d.DataPoints)
			default:
				series += 20
			}
		}
	}
	return names, series
}

// Below the detailed level an idle batcher has at most three times the series of
// a plain exporter with a queue, which are its size and capacity, and later what
// was sent and what is in flight too.
func TestTelemetry_FewSeriesBelowDetailedLevel(t *testing.T) {
	stats := queueStats{Capacity: 1000}
	tel, tt := startTelemetry(t, pipeline.SignalLogs, func() queueStats { return stats }, belowDetailed())
	names, series := seriesOf(t, tt)
	assert.LessOrEqual(t, series, 3*2, "%v", names)
	reasons := func(from, to int) []metricdata.DataPoint[int64] {
		var all []metricdata.DataPoint[int64]
		for _, r := range dropReasons[from:to] {
			all = append(all, point(0, attrLogs, reasonIs(r)))
		}
		return all
	}
	metadatatest.AssertEqualExporterSendFailedLogRecords(t, tt, points(point(0)), noTimestamp)
	metadatatest.AssertEqualExporterEnqueueFailedLogRecords(t, tt, points(point(0)), noTimestamp)
	metadatatest.AssertEqualExporterBatcherDroppedItems(t, tt, reasons(0, reasonsAtStart), noTimestamp)

	tel.batchLeft(triggerTimeout, 10, 0)
	tel.waited(time.Second)
	tel.sendStarted()
	tel.sent(10)
	tel.sendEnded()
	stats.Accepted = 10
	names, series = seriesOf(t, tt)
	assert.LessOrEqual(t, series, 3*6, "exporterhelper has histograms of request sizes too: %v", names)
	metadatatest.AssertEqualExporterBatcherDroppedItems(t, tt, reasons(0, reasonsInUse), noTimestamp)

	stats.Partitions, stats.BackoffBatches, stats.SizeCeiling, stats.OldestAge = 2, 1, 100, time.Second
	before := len(names)
	names, _ = seriesOf(t, tt)
	assert.Len(t, names, before+4, "what has something to tell")
	stats = queueStats{Capacity: 1000, Accepted: 10}
	names, _ = seriesOf(t, tt)
	assert.Len(t, names, before+4, "what had something to tell")
	tel.rejected(1)
	tel.resent(1)
	metadatatest.AssertEqualExporterBatcherRejectedItems(t, tt, points(point(1, attrLogs)), noTimestamp)
	metadatatest.AssertEqualExporterBatcherResentItems(t, tt, points(point(1, attrLogs)), noTimestamp)
}

// Without a queue nothing is said of one.
func TestTelemetry_NoQueue(t *testing.T) {
	_, tt := startTelemetry(t, pipeline.SignalLogs, func() queueStats { return queueStats{Capacity: math.MaxInt64, Size: 1} })
	for _, name := range []string{"queue_size", "queue_capacity"} {
		_, err := tt.GetMetric("otelcol_exporter_" + name)
		require.EqualError(t, err, "metric 'otelcol_exporter_"+name+"' not found")
	}
	metadatatest.AssertEqualExporterBatcherAcceptedItems(t, tt, points(point(0, attrLogs)), noTimestamp)
}

func TestTelemetry_AskingForTheLevelLeavesNoTrace(t *testing.T) {
	tel, tt := startTelemetry(t, pipeline.SignalLogs, emptyQueue)
	everyEvent(tel)

	var rm metricdata.ResourceMetrics
	require.NoError(t, tt.Reader.Collect(t.Context(), &rm))
	require.Len(t, rm.ScopeMetrics, 1)
	assert.Equal(t, "github.com/pullbatch/batcherexporter", rm.ScopeMetrics[0].Scope.Name)
}

func TestTelemetry_NoMeterProvider(t *testing.T) {
	set := exportertest.NewNopSettings(exportertest.NopType)
	tel, err := newTelemetry(set, pipeline.SignalLogs, emptyQueue)
	require.NoError(t, err)
	assert.False(t, tel.measuresBytes())
	everyEvent(tel)
	tel.close()
}

func TestTelemetry_InstrumentsThatCannotBeMade(t *testing.T) {
	f := func(mp metric.MeterProvider, want error) {
		t.Helper()
		set := exportertest.NewNopSettings(exportertest.NopType)
		set.MeterProvider = mp
		_, err := newTelemetry(set, pipeline.SignalLogs, emptyQueue)
		require.ErrorIs(t, err, want)
	}
	f(&brokenMeters{histogram: errBroken}, errBroken)
	f(&brokenMeters{histogram: errBroken, scope: helperScopeName}, errBroken)
	f(&brokenMeters{callback: errBroken}, errBroken)
}

// everyEvent calls every method of tel but close.
func everyEvent(tel *telemetry) {
	tel.measuresBytes()
	tel.batchLeft(triggerSize, 100, 4096)
	tel.waited(time.Second)
	tel.sendStarted()
	tel.attemptFailed("retryable")
	tel.sendEnded()
	tel.sent(90)
	tel.sendFailed(10, errors.New("no route"))
	tel.enqueueFailed(3)
	tel.dropped(dropPermanent, 10)
	tel.rejected(2)
	tel.resent(3)
}

func TestTelemetry_RecordingAllocatesNothing(t *testing.T) {
	tel, _ := startTelemetry(t, pipeline.SignalLogs, emptyQueue)
	f := func(what string, record func()) {
		t.Helper()
		assert.Zero(t, testing.AllocsPerRun(100, record), what)
	}
	f("batchLeft", func() { tel.batchLeft(triggerTimeout, 100, 4096) })
	f("waited", func() { tel.waited(time.Second) })
	f("sendStarted", tel.sendStarted)
	f("sendEnded", tel.sendEnded)
	f("attemptFailed", func() { tel.attemptFailed("throttled") })
	f("sent", func() { tel.sent(100) })
	f("enqueueFailed", func() { tel.enqueueFailed(100) })
	f("dropped", func() { tel.dropped(dropRetriesExhausted, 100) })
	f("measuresBytes", func() { tel.measuresBytes() })
}

func TestTelemetry_AnyMethodAtAnyTime(t *testing.T) {
	const goroutines, rounds = 4, 50
	tel, tt := startTelemetry(t, pipeline.SignalLogs, emptyQueue)
	var running sync.WaitGroup
	for range goroutines {
		running.Go(func() {
			for range rounds {
				everyEvent(tel)
			}
		})
		running.Go(func() {
			_, err := tt.GetMetric("no such metric")
			assert.Error(t, err)
			tel.close()
		})
	}
	running.Wait()
	metadatatest.AssertEqualExporterSentLogRecords(t, tt, points(point(goroutines*rounds*90)), noTimestamp)
	metadatatest.AssertEqualExporterInFlightRequests(t, tt, points(point(0, attrLogs)), noTimestamp)
}

// TestTelemetry_DocumentedValues compares what is recorded with what
// metadata.yaml documents.
func TestTelemetry_DocumentedValues(t *testing.T) {
	tel, _ := startTelemetry(t, pipeline.SignalLogs, emptyQueue)
	conf, err := confmaptest.LoadConf("metadata.yaml")
	require.NoError(t, err)
	for _, p := range []perValue{tel.addBatch, tel.addDropped, tel.addFailedCall} {
		var recorded []any
		for value := range p.ready {
			recorded = append(recorded, value)
		}
		assert.ElementsMatch(t, conf.Get("attributes::"+p.key+"::enum"), recorded, "values of %s", p.key)
	}
}

func TestTrigger_String(t *testing.T) {
	f := func(tr trigger, want string) {
		t.Helper()
		assert.Equal(t, want, tr.String())
	}
	f(triggerSize, "size")
	f(triggerTimeout, "timeout")
	f(triggerPressure, "pressure")
	f(triggerFlush, "flush")
	f(triggerShutdown, "shutdown")
	f(triggerDirect, "request")
	f(200, "trigger(200)")
}

type summary struct {
	count uint64
	sum   float64
}

func histogram[N int64 | float64](t *testing.T, tt *componenttest.Telemetry, name string) summary {
	t.Helper()
	m, err := tt.GetMetric(name)
	require.NoError(t, err)
	h, ok := m.Data.(metricdata.Histogram[N])
	require.True(t, ok, "%s is a %T", name, m.Data)
	require.Len(t, h.DataPoints, 1)
	return summary{h.DataPoints[0].Count, float64(h.DataPoints[0].Sum)}
}

var errBroken = errors.New("broken")

// brokenMeters fails to make integer histograms, or to register callbacks; where
// scope is set, only there.
type brokenMeters struct {
	noop.MeterProvider
	scope               string
	histogram, callback error
}

func (b *brokenMeters) Meter(name string, _ ...metric.MeterOption) metric.Meter {
	if b.scope != "" && b.scope != name {
		return noop.Meter{}
	}
	return &brokenMeter{set: b}
}

type brokenMeter struct {
	noop.Meter
	set *brokenMeters
}

func (b *brokenMeter) Int64Histogram(string, ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	return noop.Int64Histogram{}, b.set.histogram
}

func (b *brokenMeter) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	return noop.Registration{}, b.set.callback
}
