// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/testdata"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pullbatch/batcherexporter/internal/metadatatest"
)

// In these tests exporterhelper itself says what the shared metrics look like.

const ownPrefix = "otelcol_exporter_batcher_"

// TestTelemetry_SharedInstruments compares how both define the instruments of
// every signal.
func TestTelemetry_SharedInstruments(t *testing.T) {
	upstream := recordedInstruments{scope: helperScopeName, made: map[string]any{}}
	set := metadatatest.NewSettings(componenttest.NewTelemetry())
	set.MeterProvider = &upstream
	_, err := newHelperExporter(t.Context(), set, nil)
	require.NoError(t, err)

	ours := recordedInstruments{scope: "github.com/pullbatch/batcherexporter", made: map[string]any{}}
	set.MeterProvider = &ours
	_, err = newTelemetry(set, pipeline.SignalLogs, emptyQueue)
	require.NoError(t, err)

	shared := 0
	for name, definition := range ours.made {
		if strings.HasPrefix(name, ownPrefix) {
			continue
		}
		shared++
		if assert.Contains(t, upstream.made, name, "exporterhelper has no such metric: the name needs the prefix %s", ownPrefix) {
			assert.Equal(t, upstream.made[name], definition, name)
		}
	}
	assert.Equal(t, 17, shared, "shared metrics")
}

// TestTelemetry_SharedAttributes lets the same happen in both and compares all
// points with their attributes: a batch of 3 records is sent, one of 2 fails for
// good, and one request of 11 is larger than the queue.
func TestTelemetry_SharedAttributes(t *testing.T) {
	failure := consumererror.NewPermanent(status.Error(codes.InvalidArgument, "bad record"))
	upstream := componenttest.NewTelemetry()
	exp, err := newHelperExporter(t.Context(), metadatatest.NewSettings(upstream), failure)
	require.NoError(t, err)
	require.NoError(t, exp.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, exp.ConsumeLogs(t.Context(), testdata.GenerateLogs(3)))
	require.ErrorIs(t, exp.ConsumeLogs(t.Context(), testdata.GenerateLogs(2)), failure)
	require.Error(t, exp.ConsumeLogs(t.Context(), testdata.GenerateLogs(11)))
	want := collect(t, upstream)
	require.NoError(t, exp.Shutdown(t.Context()))

	tel, tt := startTelemetry(t, pipeline.SignalLogs, func() queueStats { return queueStats{Capacity: 10} })
	sizes := plog.ProtoMarshaler{}
	for _, records := range []int{3, 2} {
		tel.batchLeft(triggerSize, records, sizes.LogsSize(testdata.GenerateLogs(records)))
		tel.sendStarted()
		tel.sendEnded()
	}
	tel.sent(3)
	tel.sent(0) // exporterhelper also counts the nothing that was sent of a failed batch
	tel.sendFailed(2, failure)
	tel.enqueueFailed(11 + 2) // with wait_for_result, exporterhelper counts a failed batch here too
	got := collect(t, tt)

	compared := 0
	for name, m := range want {
		if strings.HasPrefix(name, "otelcol_exporter_enqueue_size") {
			continue // of requests, which we do not measure one by one
		}
		compared++
		if name == "otelcol_exporter_send_failed_log_records" {
			failed := m.Data.(metricdata.Sum[int64])
			failed.DataPoints = append(failed.DataPoints, point(0)) // ours exists before the first loss
			m.Data = failed
		}
		metricdatatest.AssertEqual(t, m, got[name], metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreExemplars())
	}
	assert.Equal(t, 8, compared, "compared metrics")
}

// newHelperExporter makes an exporter of exporterhelper with a queue of 10
// records that batches. Calls with 2 records fail with failure.
func newHelperExporter(ctx context.Context, set exporter.Settings, failure error) (exporter.Logs, error) {
	batch := exporterhelper.NewDefaultBatchConfig()
	batch.MinSize = 1
	queue := exporterhelper.NewDefaultQueueConfig()
	queue.Sizer, queue.QueueSize, queue.WaitForResult = exporterhelper.RequestSizerTypeItems, 10, true
	queue.Batch = configoptional.Some(batch)
	push := func(_ context.Context, ld plog.Logs) error {
		if ld.LogRecordCount() == 2 {
			return failure
		}
		return nil
	}
	return exporterhelper.NewLogs(ctx, set, struct{}{}, push, exporterhelper.WithQueue(configoptional.Some(queue)))
}

func collect(t *testing.T, tt *componenttest.Telemetry) map[string]metricdata.Metrics {
	t.Helper()
	var rm metricdata.ResourceMetrics
	require.NoError(t, tt.Reader.Collect(t.Context(), &rm))
	byName := map[string]metricdata.Metrics{}
	for _, sm := range rm.ScopeMetrics {
		for _, m := range sm.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// recordedInstruments is a meter provider that keeps the definitions of the
// instruments that are made in scope: their configuration by name.
type recordedInstruments struct {
	noop.MeterProvider
	scope string
	made  map[string]any
}

func (r *recordedInstruments) Meter(name string, _ ...metric.MeterOption) metric.Meter {
	if name != r.scope {
		return noop.Meter{}
	}
	return &recordingMeter{made: r.made}
}

type recordingMeter struct {
	noop.Meter
	made map[string]any
}

func (m *recordingMeter) Int64Counter(name string, opts ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	m.made[name] = metric.NewInt64CounterConfig(opts...)
	return m.Meter.Int64Counter(name, opts...)
}

func (m *recordingMeter) Int64UpDownCounter(name string, opts ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	m.made[name] = metric.NewInt64UpDownCounterConfig(opts...)
	return m.Meter.Int64UpDownCounter(name, opts...)
}

func (m *recordingMeter) Int64Histogram(name string, opts ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	m.made[name] = metric.NewInt64HistogramConfig(opts...)
	return m.Meter.Int64Histogram(name, opts...)
}

func (m *recordingMeter) Int64ObservableGauge(name string, opts ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	m.made[name] = metric.NewInt64ObservableGaugeConfig(opts...)
	return m.Meter.Int64ObservableGauge(name, opts...)
}
