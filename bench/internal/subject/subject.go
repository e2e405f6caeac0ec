// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package subject has what is compared, behind one interface: the batcher, its
// peers, no batching, and the least that batching can cost.
package subject

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/pullbatch/batcherexporter/bench/internal/input"
)

// Unlimited is a queue size, in requests, that no measurement reaches.
const Unlimited = 1 << 40

// Setup is what a subject is opened with. Subjects that have no such setting
// ignore it.
type Setup struct {
	Signal input.Signal
	Sink   *Sink

	Max        int // size of a batch, both the least and the most
	InBytes    bool
	Flush      time.Duration
	Merge      bool   // `merge_resources`
	QueueSize  int    // 0: exporterhelper's default
	QueueSizer string // "": exporterhelper's default
	Block      bool   // `block_on_overflow`
}

// Subject takes requests and hands them to its sink.
type Subject interface {
	Consume(ctx context.Context, data any) error
	// Shutdown returns when everything has reached the sink.
	Shutdown(ctx context.Context) error
}

// Maker opens subjects of one kind.
type Maker struct {
	Name string
	Open func(context.Context, Setup) (Subject, error)
}

// The kinds of subjects.
var (
	// Passthrough is the sink alone, without batching.
	Passthrough = Maker{"passthrough", openPassthrough}
	// Floor is a move into a batch under one mutex, handed over at the maximum.
	Floor = Maker{"floor", openFloor}
	// Batcher is the batcher around an exporter that is built on exporterhelper.
	Batcher = Maker{"batcher", openBatcher}
	// Helper is an exporter with exporterhelper's own queue and batches.
	Helper = Maker{"ehb", openHelper}
	// HelperQueue is an exporter with exporterhelper's queue, without batches.
	HelperQueue = Maker{"ehq", openHelperQueue}
	// Processor is the batch processor in front of an exporter without a queue.
	Processor = Maker{"bp+eh", openProcessor}
	// ProcessorQueue is the batch processor in front of an exporter with a queue.
	ProcessorQueue = Maker{"bp+ehq", openProcessorQueue}
	// ProcessorBare is the batch processor in front of the sink: no product, since
	// nothing retries and nothing reports.
	ProcessorBare = Maker{"bp", openProcessorBare}
)

// chain is a subject of collector components, in the order of the data.
type chain struct {
	parts   []component.Component
	consume func(context.Context, any) error
}

func (c *chain) Consume(ctx context.Context, data any) error { return c.consume(ctx, data) }

func (c *chain) Shutdown(ctx context.Context) error {
	for _, p := range c.parts {
		if err := p.Shutdown(ctx); err != nil {
			return err
		}
	}
	return nil
}

// startChain starts components, the last first as the collector does.
func startChain(ctx context.Context, parts ...component.Component) (Subject, error) {
	for _, part := range slices.Backward(parts) {
		if err := part.Start(ctx, componenttest.NewNopHost()); err != nil {
			return nil, err
		}
	}
	consume, err := consumeOf(parts[0])
	return &chain{parts, consume}, err
}

// consumeOf returns the Consume of a component of one signal.
func consumeOf(c component.Component) (func(context.Context, any) error, error) {
	switch c := c.(type) {
	case consumer.Logs:
		return func(ctx context.Context, data any) error { return c.ConsumeLogs(ctx, data.(plog.Logs)) }, nil
	case consumer.Traces:
		return func(ctx context.Context, data any) error { return c.ConsumeTraces(ctx, data.(ptrace.Traces)) }, nil
	case consumer.Metrics:
		return func(ctx context.Context, data any) error { return c.ConsumeMetrics(ctx, data.(pmetric.Metrics)) }, nil
	case xconsumer.Profiles:
		return func(ctx context.Context, data any) error { return c.ConsumeProfiles(ctx, data.(pprofile.Profiles)) }, nil
	}
	return nil, fmt.Errorf("a %T consumes no signal", c)
}

// decode reads a block of YAML over a component's default configuration.
func decode(yaml string, cfg component.Config) (component.Config, error) {
	retrieved, err := confmap.NewRetrievedFromYAML([]byte(yaml))
	if err != nil {
		return nil, err
	}
	conf, err := retrieved.AsConf()
	if err != nil {
		return nil, err
	}
	if err := conf.Unmarshal(cfg); err != nil {
		return nil, fmt.Errorf("cannot decode %s: %w", yaml, err)
	}
	if v, ok := cfg.(interface{ Validate() error }); ok {
		err = v.Validate()
	}
	return cfg, err
}
