// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exporterhelper/xexporterhelper"
	"go.opentelemetry.io/collector/exporter/xexporter"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/pullbatch/batcherexporter/bench/internal/input"
)

// Sink is where all data of a subject ends. It counts, and does what Each says.
type Sink struct {
	// Each is called with every batch, before it is counted; its error refuses the
	// batch. nil takes everything.
	Each func(data any) error

	batches, items atomic.Int64
}

// Batches is how many calls were accepted.
func (s *Sink) Batches() int { return int(s.batches.Load()) }

// Items is how many items were accepted.
func (s *Sink) Items() int { return int(s.items.Load()) }

func (s *Sink) take(data any) error {
	items := input.Items(data)
	if s.Each != nil {
		if err := s.Each(data); err != nil {
			return err
		}
	}
	s.batches.Add(1)
	s.items.Add(int64(items))
	return nil
}

// Start and the rest make the sink a component that may end a chain by itself.
func (*Sink) Start(context.Context, component.Host) error { return nil }

// Shutdown does nothing.
func (*Sink) Shutdown(context.Context) error { return nil }

// Capabilities says that data is left as it is.
func (*Sink) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

// ConsumeLogs takes logs.
func (s *Sink) ConsumeLogs(_ context.Context, data plog.Logs) error { return s.take(data) }

// ConsumeTraces takes traces.
func (s *Sink) ConsumeTraces(_ context.Context, data ptrace.Traces) error { return s.take(data) }

// ConsumeMetrics takes metrics.
func (s *Sink) ConsumeMetrics(_ context.Context, data pmetric.Metrics) error { return s.take(data) }

// ConsumeProfiles takes profiles.
func (s *Sink) ConsumeProfiles(_ context.Context, data pprofile.Profiles) error { return s.take(data) }

// exporterConfig has the blocks that an exporter for OTLP has.
type exporterConfig struct {
	Timeout exporterhelper.TimeoutConfig                             `mapstructure:",squash"`
	Queue   configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
	Retry   configretry.BackOffConfig                                `mapstructure:"retry_on_failure"`
}

func defaultExporterConfig() component.Config {
	return &exporterConfig{
		Timeout: exporterhelper.NewDefaultTimeoutConfig(),
		Queue:   configoptional.Some(exporterhelper.NewDefaultQueueConfig()),
		Retry:   configretry.NewDefaultBackOffConfig(),
	}
}

func (c *exporterConfig) options() []exporterhelper.Option {
	return []exporterhelper.Option{
		exporterhelper.WithTimeout(c.Timeout),
		exporterhelper.WithQueue(c.Queue),
		exporterhelper.WithRetry(c.Retry),
	}
}

var sinkType = component.MustNewType("sink")

// exporterFactory makes exporters to the sink that are built as nearly every
// exporter is, on exporterhelper. The batcher wraps such a one, so that its
// figures have in them what the wrapped exporter adds.
func (s *Sink) exporterFactory() exporter.Factory {
	return xexporter.NewFactory(sinkType, defaultExporterConfig,
		xexporter.WithLogs(func(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Logs, error) {
			return exporterhelper.NewLogs(ctx, set, cfg, s.ConsumeLogs, cfg.(*exporterConfig).options()...)
		}, component.StabilityLevelStable),
		xexporter.WithTraces(func(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Traces, error) {
			return exporterhelper.NewTraces(ctx, set, cfg, s.ConsumeTraces, cfg.(*exporterConfig).options()...)
		}, component.StabilityLevelStable),
		xexporter.WithMetrics(func(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Metrics, error) {
			return exporterhelper.NewMetrics(ctx, set, cfg, s.ConsumeMetrics, cfg.(*exporterConfig).options()...)
		}, component.StabilityLevelStable),
		xexporter.WithProfiles(func(ctx context.Context, set exporter.Settings, cfg component.Config) (xexporter.Profiles, error) {
			return xexporterhelper.NewProfiles(ctx, set, cfg, s.ConsumeProfiles, cfg.(*exporterConfig).options()...)
		}, component.StabilityLevelStable))
}
