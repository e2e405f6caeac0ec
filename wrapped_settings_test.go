// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/testdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestWrapped_ID(t *testing.T) {
	f := func(wrappedID, batcherID, want string) {
		t.Helper()
		var inner, outer, parsed component.ID
		require.NoError(t, inner.UnmarshalText([]byte(wrappedID)))
		require.NoError(t, outer.UnmarshalText([]byte(batcherID)))
		got := (&wrapped{id: inner}).idIn(outer)
		assert.Equal(t, want, got.String())
		require.NoError(t, parsed.UnmarshalText([]byte(got.String())), "is a component ID")
		assert.Equal(t, got, parsed)
	}
	f("otlp_grpc", "batcher", "otlp_grpc/batcher")
	f("otlp_grpc", "batcher/backend", "otlp_grpc/batcher/backend")
	f("otlp_grpc/blue", "batcher", "otlp_grpc/blue@batcher")
	f("otlp_grpc/blue", "batcher/backend", "otlp_grpc/blue@batcher/backend")
}

// helperSettings are those that a wrapped exporter gets, with what becomes of its
// metrics and logs.
func helperSettings(t *testing.T, level zapcore.Level) (exporter.Settings, *componenttest.Telemetry, *observer.ObservedLogs) {
	t.Helper()
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { assert.NoError(t, tel.Shutdown(context.Background())) })
	core, logs := observer.New(level)
	set := exportertest.NewNopSettings(component.MustNewType("batcher"))
	set.ID = component.MustNewIDWithName("batcher", "backend")
	set.TelemetrySettings = tel.NewTelemetrySettings()
	set.Logger = zap.New(core)
	return (&wrapped{id: component.MustNewID("sink")}).settings(set, func(int, string) {}), tel, logs
}

// An exporter made of exporterhelper counts nothing of its own, and does not log
// that it rejects data, since that is for the batcher to say. The rest passes.
func TestWrapped_TelemetryIsNotDoubled(t *testing.T) {
	set, tel, logs := helperSettings(t, zapcore.DebugLevel)
	backend := errors.New("backend is away")
	exp, err := exporterhelper.NewLogs(t.Context(), set, &struct{}{}, func(context.Context, plog.Logs) error {
		set.Logger.Info("sending")
		return backend
	})
	require.NoError(t, err)
	own, err := set.MeterProvider.Meter("own").Int64Counter("own_calls")
	require.NoError(t, err)
	own.Add(t.Context(), 1)
	require.NoError(t, exp.Start(t.Context(), componenttest.NewNopHost()))
	require.ErrorIs(t, exp.ConsumeLogs(t.Context(), testdata.GenerateLogs(3)), backend)
	require.NoError(t, exp.Shutdown(t.Context()))

	var all metricdata.ResourceMetrics
	require.NoError(t, tel.Reader.Collect(t.Context(), &all))
	require.Len(t, all.ScopeMetrics, 1)
	assert.Equal(t, "own", all.ScopeMetrics[0].Scope.Name)
	require.Equal(t, 1, logs.Len(), "%v", logs.All())
	entry := logs.All()[0]
	assert.Equal(t, "sending", entry.Message)
	assert.Equal(t, map[string]any{"batcher": "batcher/backend", "wrapped_exporter": "sink"}, entry.ContextMap())
}

// Without our settings exporterhelper does log and count: the names that are
// filtered are the right ones.
func TestWrapped_FiltersWhatExporterhelperWrites(t *testing.T) {
	tel := componenttest.NewTelemetry()
	core, logs := observer.New(zapcore.DebugLevel)
	set := exportertest.NewNopSettings(component.MustNewType("sink"))
	set.TelemetrySettings = tel.NewTelemetrySettings()
	set.Logger = zap.New(core)
	exp, err := exporterhelper.NewLogs(t.Context(), set, &struct{}{}, func(context.Context, plog.Logs) error { return errors.New("no") })
	require.NoError(t, err)
	require.Error(t, exp.ConsumeLogs(t.Context(), testdata.GenerateLogs(1)))
	require.Equal(t, 1, logs.Len())
	assert.Contains(t, logs.All()[0].Message, helperRejects)
	var all metricdata.ResourceMetrics
	require.NoError(t, tel.Reader.Collect(t.Context(), &all))
	require.Len(t, all.ScopeMetrics, 1)
	assert.Equal(t, helperScope, all.ScopeMetrics[0].Scope.Name)
	require.NoError(t, tel.Shutdown(t.Context()))
}

// The filter keeps the level of the logger that it wraps, and loggers made from
// it keep the filter.
func TestWrapped_LoggerKeepsLevelAndFilter(t *testing.T) {
	set, _, logs := helperSettings(t, zapcore.WarnLevel)
	set.Logger.Info("below the level")
	set.Logger.Named("deeper").With(zap.Int("n", 1)).Error(helperRejects + " Try this.")
	set.Logger.Error("Exporting failed for another reason.")
	require.Equal(t, 1, logs.Len())
	assert.Equal(t, "Exporting failed for another reason.", logs.All()[0].Message)
	assert.False(t, set.Logger.Core().Enabled(zapcore.InfoLevel))
}

// Partial successes are counted from the line that the OTLP exporters write, at any
// level of the log, and do not get into the log themselves.
func TestWrapped_PartialSuccess(t *testing.T) {
	type told struct {
		items int
		text  string
	}
	f := func(level zapcore.Level, want []told, log func(*zap.Logger)) {
		t.Helper()
		core, logs := observer.New(level)
		set := exportertest.NewNopSettings(component.MustNewType("batcher"))
		set.Logger = zap.New(core)
		var got []told
		set = (&wrapped{id: component.MustNewID("sink")}).settings(set, func(items int, text string) { got = append(got, told{items, text}) })
		log(set.Logger)
		assert.Equal(t, want, got)
		assert.Zero(t, logs.FilterMessage(partialSuccess).Len()-logs.FilterField(zap.Bool("passes", true)).Len())
	}
	for _, level := range []zapcore.Level{zap.DebugLevel, zap.WarnLevel, zap.ErrorLevel} {
		f(level, []told{{7, "too old"}, {2, ""}, {0, "use compression"}, {0, ""}, {0, ""}}, func(l *zap.Logger) {
			l.Warn(partialSuccess, zap.String("message", "too old"), zap.Int64("dropped_log_records", 7))
			l.With(zap.Int64("dropped_before", 9)).Named("deeper").Warn(partialSuccess, zap.Int64("dropped_spans", 2))
			l.Warn(partialSuccess, zap.String("message", "use compression"), zap.Int64("dropped_data_points", 0))
			l.Warn(partialSuccess, zap.Int64("dropped_data_points", -5))
			l.Warn(partialSuccess)
		})
	}
	f(zap.InfoLevel, nil, func(l *zap.Logger) {
		l.Info(partialSuccess, zap.Bool("passes", true), zap.Int64("dropped_spans", 2))
		l.Warn("Partial", zap.Int64("dropped_spans", 2))
	})
}
