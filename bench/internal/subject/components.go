// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/xexporter"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/batchprocessor"

	"github.com/pullbatch/batcherexporter"
	"github.com/pullbatch/batcherexporter/bench/internal/input"
)

// queueYAML is the `sending_queue` of batcher and exporterhelper, which have the
// same keys.
func (s Setup) queueYAML(more ...string) string {
	keys := slices.Clone(more)
	if s.QueueSize > 0 {
		keys = append(keys, fmt.Sprintf("queue_size: %d", s.QueueSize))
	}
	if s.QueueSizer != "" {
		keys = append(keys, "sizer: "+s.QueueSizer)
	}
	if s.Block {
		keys = append(keys, "block_on_overflow: true")
	}
	return "sending_queue: {" + strings.Join(keys, ", ") + "}"
}

// batchYAML is the `batch` in it.
func (s Setup) batchYAML(more ...string) string {
	sizer := "items"
	if s.InBytes {
		sizer = "bytes"
	}
	keys := append(slices.Clone(more), "sizer: "+sizer,
		fmt.Sprintf("min_size: %d", s.Max), fmt.Sprintf("max_size: %d", s.Max), fmt.Sprintf("flush_timeout: %s", s.Flush))
	return "batch: {" + strings.Join(keys, ", ") + "}"
}

func openBatcher(ctx context.Context, s Setup) (Subject, error) {
	f := batcherexporter.NewFactory(s.Sink.exporterFactory())
	queue := s.queueYAML(s.batchYAML(fmt.Sprintf("merge_resources: %t", s.Merge)))
	return s.open(ctx, f, "exporter: {sink: }\n"+queue)
}

func openHelper(ctx context.Context, s Setup) (Subject, error) {
	return s.open(ctx, s.Sink.exporterFactory(), s.queueYAML(s.batchYAML()))
}

func openHelperQueue(ctx context.Context, s Setup) (Subject, error) {
	return s.open(ctx, s.Sink.exporterFactory(), s.queueYAML())
}

func openProcessor(ctx context.Context, s Setup) (Subject, error) {
	return s.openBehindProcessor(ctx, "sending_queue: {enabled: false}")
}

func openProcessorQueue(ctx context.Context, s Setup) (Subject, error) {
	return s.openBehindProcessor(ctx, s.queueYAML())
}

func openProcessorBare(ctx context.Context, s Setup) (Subject, error) {
	p, err := s.newProcessor(ctx, s.Sink)
	if err != nil {
		return nil, err
	}
	return startChain(ctx, p)
}

func (s Setup) open(ctx context.Context, f exporter.Factory, yaml string) (Subject, error) {
	e, err := s.newExporter(ctx, f, yaml)
	if err != nil {
		return nil, err
	}
	return startChain(ctx, e)
}

func (s Setup) openBehindProcessor(ctx context.Context, yaml string) (Subject, error) {
	e, err := s.newExporter(ctx, s.Sink.exporterFactory(), yaml)
	if err != nil {
		return nil, err
	}
	p, err := s.newProcessor(ctx, e)
	if err != nil {
		return nil, err
	}
	return startChain(ctx, p, e)
}

func (s Setup) newExporter(ctx context.Context, f exporter.Factory, yaml string) (component.Component, error) {
	cfg, err := decode(yaml, f.CreateDefaultConfig())
	if err != nil {
		return nil, err
	}
	set := exporter.Settings{ID: component.NewID(f.Type()), TelemetrySettings: newTelemetry()}
	switch s.Signal {
	case input.Traces:
		return f.CreateTraces(ctx, set, cfg)
	case input.Metrics:
		return f.CreateMetrics(ctx, set, cfg)
	case input.Profiles:
		return createProfiles(ctx, f, set, cfg)
	default:
		return f.CreateLogs(ctx, set, cfg)
	}
}

func createProfiles(ctx context.Context, f exporter.Factory, set exporter.Settings, cfg component.Config) (component.Component, error) {
	x, ok := f.(xexporter.Factory)
	if !ok {
		return nil, fmt.Errorf("the exporter %s has no profiles", f.Type())
	}
	return x.CreateProfiles(ctx, set, cfg)
}

func (s Setup) newProcessor(ctx context.Context, next any) (component.Component, error) {
	f := batchprocessor.NewFactory()
	yaml := fmt.Sprintf("{send_batch_size: %d, send_batch_max_size: %d, timeout: %s}", s.Max, s.Max, s.Flush)
	cfg, err := decode(yaml, f.CreateDefaultConfig())
	if err != nil {
		return nil, err
	}
	set := processor.Settings{ID: component.NewID(f.Type()), TelemetrySettings: newTelemetry()}
	switch s.Signal {
	case input.Traces:
		return f.CreateTraces(ctx, set, cfg, next.(consumer.Traces))
	case input.Metrics:
		return f.CreateMetrics(ctx, set, cfg, next.(consumer.Metrics))
	case input.Profiles:
		return nil, errors.New("the batch processor has no profiles")
	default:
		return f.CreateLogs(ctx, set, cfg, next.(consumer.Logs))
	}
}
