// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

const (
	helperScope    = "go.opentelemetry.io/collector/exporter/exporterhelper"
	processorScope = "go.opentelemetry.io/collector/processor/batchprocessor"
)

// detailedOnly are what the collector leaves out at its default level, `normal`.
// Recording them means to compute the size of each request and batch.
var detailedOnly = []sdkmetric.Instrument{
	{Scope: instrumentation.Scope{Name: helperScope}, Name: "otelcol_exporter_enqueue_size*"},
	{Scope: instrumentation.Scope{Name: helperScope}, Name: "otelcol_exporter_queue_batch_send_size*"},
	{Scope: instrumentation.Scope{Name: processorScope}, Name: "otelcol_processor_batch_batch_send_size_bytes"},
}

// newTelemetry is what the collector gives its components by default: metrics that
// are recorded, and no traces. A provider that does nothing would flatter whoever
// records most.
func newTelemetry() component.TelemetrySettings {
	set := componenttest.NewNopTelemetrySettings()
	options := []sdkmetric.Option{sdkmetric.WithReader(sdkmetric.NewManualReader())}
	for _, instrument := range detailedOnly {
		options = append(options, sdkmetric.WithView(sdkmetric.NewView(instrument, sdkmetric.Stream{Aggregation: sdkmetric.AggregationDrop{}})))
	}
	set.MeterProvider = sdkmetric.NewMeterProvider(options...)
	return set
}
