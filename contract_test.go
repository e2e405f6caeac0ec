// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/receiver"
)

// The collector's contract for exporters: what the destination takes arrives
// once, what it refuses for now is sent until it is taken, and what it refuses for
// good is not sent again. The check counts calls and looks at its counters as soon
// as the last Consume has returned. So each request is a batch of its own, and
// Consume returns when its outcome is known.
func TestConsumeContract(t *testing.T) {
	for _, signal := range []pipeline.Signal{pipeline.SignalTraces, pipeline.SignalMetrics, pipeline.SignalLogs} {
		t.Run(signal.String(), func(t *testing.T) {
			var b bridge
			factory := NewFactory(b.exporters())
			cfg := factory.CreateDefaultConfig()
			require.NoError(t, confOf(t, `
exporter: {bridge: }
sending_queue: {wait_for_result: true, batch: {min_size: 1, max_size: 1}}
retry_on_failure: {initial_interval: 1ms, max_interval: 1ms, max_elapsed_time: 0s}
`).Unmarshal(cfg))
			exportertest.CheckConsumeContract(exportertest.CheckConsumeContractParams{
				T: t, NumberOfTestElements: 40, Signal: signal,
				ExporterFactory: factory, ExporterConfig: cfg,
				ReceiverFactory: b.receivers(), ReceiverConfig: nil,
			})
		})
	}
}

// bridge is a way from an exporter to a receiver without a network: whatever the
// exporter consumes goes to whom the receiver feeds.
type bridge struct {
	traces  consumer.Traces
	metrics consumer.Metrics
	logs    consumer.Logs
}

var bridgeType = component.MustNewType("bridge")

// end is one end of a bridge.
type end struct {
	component.StartFunc
	component.ShutdownFunc
}

func (b *bridge) receivers() receiver.Factory {
	return receiver.NewFactory(
		bridgeType,
		func() component.Config { return nil },
		receiver.WithTraces(func(_ context.Context, _ receiver.Settings, _ component.Config, next consumer.Traces) (receiver.Traces, error) {
			b.traces = next
			return &end{}, nil
		}, component.StabilityLevelStable),
		receiver.WithMetrics(func(_ context.Context, _ receiver.Settings, _ component.Config, next consumer.Metrics) (receiver.Metrics, error) {
			b.metrics = next
			return &end{}, nil
		}, component.StabilityLevelStable),
		receiver.WithLogs(func(_ context.Context, _ receiver.Settings, _ component.Config, next consumer.Logs) (receiver.Logs, error) {
			b.logs = next
			return &end{}, nil
		}, component.StabilityLevelStable),
	)
}

// exporters make the other end. The consumer is the one of the receiver that was
// made last.
func (b *bridge) exporters() exporter.Factory {
	return exporter.NewFactory(
		bridgeType,
		func() component.Config { return &plainConfig{} },
		exporter.WithTraces(func(context.Context, exporter.Settings, component.Config) (exporter.Traces, error) {
			return struct {
				end
				consumer.Traces
			}{Traces: b.traces}, nil
		}, component.StabilityLevelStable),
		exporter.WithMetrics(func(context.Context, exporter.Settings, component.Config) (exporter.Metrics, error) {
			return struct {
				end
				consumer.Metrics
			}{Metrics: b.metrics}, nil
		}, component.StabilityLevelStable),
		exporter.WithLogs(func(context.Context, exporter.Settings, component.Config) (exporter.Logs, error) {
			return struct {
				end
				consumer.Logs
			}{Logs: b.logs}, nil
		}, component.StabilityLevelStable),
	)
}
