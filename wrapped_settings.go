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
	// partialSuccess is the line that the OTLP exporters log when a backend took a
	// request and rejected some of it, or only has something to say. It is the only
	// trace of that: the call succeeds.
	partialSuccess      = "Partial success response"
	partialSuccessLevel = zapcore.WarnLevel
)

// settings are those of the batcher, made over for the wrapped exporter. rejected
// is told of each partial success.
func (w *wrapped) settings(set exporter.Settings, rejected func(items int, text string)) exporter.Settings {
	batcher := set.ID
	set.ID = w.idIn(batcher)
	set.Logger = set.Logger.
		WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core { return quietCore{core, rejected} })).
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

// quietCore keeps lines of the wrapped exporter from the log that the batcher
// tells itself. A failed call is no loss: its batch is tried again, or the batcher
// says that it gave up, with the number of items. Partial successes are counted
// and summed up: there may be one for each call.
type quietCore struct {
	zapcore.Core
	rejected func(items int, text string)
}

// Enabled is true for partial successes whatever the level of the log: they are
// told in a line, which counts them.
func (q quietCore) Enabled(level zapcore.Level) bool {
	return level == partialSuccessLevel || q.Core.Enabled(level)
}

func (q quietCore) With(fields []zapcore.Field) zapcore.Core {
	return quietCore{q.Core.With(fields), q.rejected}
}

func (q quietCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	switch {
	case strings.HasPrefix(entry.Message, helperRejects):
		return checked
	case entry.Message == partialSuccess && entry.Level == partialSuccessLevel:
		return checked.AddCore(entry, partialSuccesses{q})
	}
	return q.Core.Check(entry, checked)
}

// partialSuccesses takes the lines about partial successes.
type partialSuccesses struct{ quietCore }

// Write counts what the fields of a line say, and drops the line. The number is the
// backend's, so it may be anything.
func (p partialSuccesses) Write(_ zapcore.Entry, fields []zapcore.Field) error {
	items, text := int64(0), ""
	for _, f := range fields {
		switch {
		case f.Type == zapcore.Int64Type && strings.HasPrefix(f.Key, "dropped_"):
			items += max(f.Integer, 0)
		case f.Type == zapcore.StringType && f.Key == "message":
			text = f.String
		}
	}
	p.rejected(toInt(items), text)
	return nil
}
