// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/xexporter"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/pipeline/xpipeline"

	"github.com/pullbatch/batcherexporter/internal/metadata"
	"github.com/pullbatch/batcherexporter/internal/payload"
)

// NewFactory returns the factory of the batcher exporter.
//
// The wrapped exporter is made by the factory that the collector has for its
// type. Code that knows the factories already may pass them: they are used
// first, and Validate then checks the wrapped exporter's block too, which the
// collector's own factories allow only at Start.
//
// Every exporter that the factory makes has the methods
//
//	Flush(ctx context.Context) error
//	ExporterHelperBatchingEnabled() bool
//
// Flush sends what is queued or in flight when it is called, in batches within
// their bounds, and returns when that is settled, or with ctx's error if ctx ends
// first. It may be called concurrently, and before Start and after Shutdown, when
// there is nothing to flush.
func NewFactory(wrapped ...exporter.Factory) exporter.Factory {
	b := newBuilder(wrapped)
	return xexporter.NewFactory(
		metadata.Type,
		b.defaultConfig,
		xexporter.WithTraces(b.traces, metadata.TracesStability),
		xexporter.WithMetrics(b.metrics, metadata.MetricsStability),
		xexporter.WithLogs(b.logs, metadata.LogsStability),
		xexporter.WithProfiles(b.profiles, metadata.ProfilesStability),
	)
}

// builder makes the exporters of one factory.
type builder struct {
	factories map[component.Type]exporter.Factory
	instances *instances
}

func newBuilder(wrapped []exporter.Factory) *builder {
	b := &builder{factories: map[component.Type]exporter.Factory{}}
	for _, f := range wrapped {
		b.factories[f.Type()] = f
	}
	b.instances = newInstances(b.factories)
	return b
}

func (b *builder) defaultConfig() component.Config {
	cfg := createDefaultConfig().(*Config)
	cfg.setFactories(b.factories)
	return cfg
}

func (b *builder) traces(_ context.Context, set exporter.Settings, cfg component.Config) (exporter.Traces, error) {
	return &tracesExporter{newSignalExporter(b.instances, set, cfg, signalSettings[ptrace.Traces]{
		name: pipeline.SignalTraces, payload: payload.Traces(),
		create: func(ctx context.Context, f exporter.Factory, set exporter.Settings, cfg component.Config) (wrappedExporter, func(context.Context, ptrace.Traces) error, error) {
			e, err := f.CreateTraces(ctx, set, cfg)
			if err != nil {
				return nil, nil, err
			}
			return e, e.ConsumeTraces, nil
		},
	})}, nil
}

func (b *builder) metrics(_ context.Context, set exporter.Settings, cfg component.Config) (exporter.Metrics, error) {
	return &metricsExporter{newSignalExporter(b.instances, set, cfg, signalSettings[pmetric.Metrics]{
		name: pipeline.SignalMetrics, payload: payload.Metrics(),
		create: func(ctx context.Context, f exporter.Factory, set exporter.Settings, cfg component.Config) (wrappedExporter, func(context.Context, pmetric.Metrics) error, error) {
			e, err := f.CreateMetrics(ctx, set, cfg)
			if err != nil {
				return nil, nil, err
			}
			return e, e.ConsumeMetrics, nil
		},
	})}, nil
}

func (b *builder) logs(_ context.Context, set exporter.Settings, cfg component.Config) (exporter.Logs, error) {
	return &logsExporter{newSignalExporter(b.instances, set, cfg, signalSettings[plog.Logs]{
		name: pipeline.SignalLogs, payload: payload.Logs(),
		create: func(ctx context.Context, f exporter.Factory, set exporter.Settings, cfg component.Config) (wrappedExporter, func(context.Context, plog.Logs) error, error) {
			e, err := f.CreateLogs(ctx, set, cfg)
			if err != nil {
				return nil, nil, err
			}
			return e, e.ConsumeLogs, nil
		},
	})}, nil
}

func (b *builder) profiles(_ context.Context, set exporter.Settings, cfg component.Config) (xexporter.Profiles, error) {
	return &profilesExporter{newSignalExporter(b.instances, set, cfg, signalSettings[pprofile.Profiles]{
		name: xpipeline.SignalProfiles, payload: payload.Profiles(),
		create: func(ctx context.Context, f exporter.Factory, set exporter.Settings, cfg component.Config) (wrappedExporter, func(context.Context, pprofile.Profiles) error, error) {
			xf, ok := f.(xexporter.Factory)
			if !ok {
				return nil, nil, pipeline.ErrSignalNotSupported
			}
			e, err := xf.CreateProfiles(ctx, set, cfg)
			if err != nil {
				return nil, nil, err
			}
			return e, e.ConsumeProfiles, nil
		},
	})}, nil
}

// The exporters of the four signals: the same, but for the name of the method by
// which data comes.
type (
	tracesExporter  struct{ *signalExporter[ptrace.Traces] }
	metricsExporter struct {
		*signalExporter[pmetric.Metrics]
	}
	logsExporter     struct{ *signalExporter[plog.Logs] }
	profilesExporter struct {
		*signalExporter[pprofile.Profiles]
	}
)

var _ interface {
	consumer.Traces
	Flush(context.Context) error
	ExporterHelperBatchingEnabled() bool
} = (*tracesExporter)(nil)

func (e *tracesExporter) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	return e.consume(ctx, td)
}

func (e *metricsExporter) ConsumeMetrics(ctx context.Context, md pmetric.Metrics) error {
	return e.consume(ctx, md)
}

func (e *logsExporter) ConsumeLogs(ctx context.Context, ld plog.Logs) error {
	return e.consume(ctx, ld)
}

func (e *profilesExporter) ConsumeProfiles(ctx context.Context, pd pprofile.Profiles) error {
	return e.consume(ctx, pd)
}
