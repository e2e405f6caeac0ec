// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// helperScope is the instrumentation scope of exporterhelper.
	helperScope = "go.opentelemetry.io/collector/exporter/exporterhelper"
	// helperRejects begins the line that exporterhelper logs for a failed call.
	helperRejects = "Exporting failed. Rejecting data."
)

// settings are those of the batcher, made over for the wrapped exporter.
func (w *wrapped) settings(set exporter.Settings) exporter.Settings {
	batcher := set.ID
	set.ID = w.idIn(batcher)
	set.Logger = set.Logger.
		WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core { return quietCore{core} })).
		With(zap.Stringer("wrapped_exporter", w.id), zap.Stringer("batcher", batcher))
	set.MeterProvider = quietMeters{set.MeterProvider}
	return set
}

// idIn is the ID of the wrapped exporter inside a batcher: unique in the
// collector, since that of the batcher is, and readable as a component ID.
func (w *wrapped) idIn(batcher component.ID) component.ID {
	name := batcher.String()
	if w.id.Name() != "" {
		name = w.id.Name() + "@" + name
	}
	return component.NewIDWithName(w.id.Type(), name)
}

// quietMeters keeps exporterhelper inside the wrapped exporter from counting
// what the batcher counts: the metrics have the same names, and a dashboard that
// sums them would see everything twice. Metrics of the exporter's own pass.
type quietMeters struct{ metric.MeterProvider }

func (q quietMeters) Meter(scope string, options ...metric.MeterOption) metric.Meter {
	if scope == helperScope {
		return noop.NewMeterProvider().Meter(scope, options...)
	}
	return q.MeterProvider.Meter(scope, options...)
}

// quietCore drops exporterhelper's line about rejected data. A failed call into
// the wrapped exporter is no loss: its batch is tried again, or the batcher says
// itself that it gave up, with the number of items.
type quietCore struct{ zapcore.Core }

func (q quietCore) With(fields []zapcore.Field) zapcore.Core { return quietCore{q.Core.With(fields)} }

func (q quietCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if strings.HasPrefix(entry.Message, helperRejects) {
		return checked
	}
	return q.Core.Check(entry, checked)
}
