// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/xexporter"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/pullbatch/batcherexporter/internal/metadata"
	"github.com/pullbatch/batcherexporter/internal/payload"
	"github.com/pullbatch/batcherexporter/internal/payload/payloadtest"
)

// kind is a signal as a test of the whole exporter sees it. Its data is untyped,
// so that one test serves all four.
type kind struct {
	name  string
	items string // what the collector's metrics call its items

	simple  func(items int, firstID int64) any
	random  func(rnd *rand.Rand, items int, firstID int64) any
	ids     func(data any) []int64
	flatten func(data any) []string
	bytes   func(data any) int // as the receiver of an export request measures it
	clone   func(data any) any
	spoil   func(data any) // moves all items out, as an exporter that mutates may
	create  func(t *testing.T, set exporter.Settings, cfg component.Config) batcher
}

// batcher is the exporter under test.
type batcher struct {
	component.Component
	consumer interface {
		Capabilities() consumer.Capabilities
		Flush(ctx context.Context) error
	}
	consume func(ctx context.Context, data any) error
	account func() account
}

// account is what a queue says of all items that it ever accepted.
type account struct{ accepted, sent, dropped, pending, used int64 }

// generators are the functions of payloadtest for one signal.
type generators[T any] struct {
	simple  func(int, int64) T
	random  func(*rand.Rand, int, int64) T
	ids     func(T) []int64
	flatten func(T) []string
}

func kindOf[T any](
	name, items string, sig payload.Signal[T], g generators[T], bytes func(T) int,
	create func(*testing.T, exporter.Settings, component.Config) *signalExporter[T],
) kind {
	return kind{
		name: name, items: items,
		simple:  func(n int, first int64) any { return g.simple(n, first) },
		random:  func(rnd *rand.Rand, n int, first int64) any { return g.random(rnd, n, first) },
		ids:     func(data any) []int64 { return g.ids(data.(T)) },
		flatten: func(data any) []string { return g.flatten(data.(T)) },
		bytes:   func(data any) int { return bytes(data.(T)) },
		clone:   func(data any) any { return sig.Clone(data.(T)) },
		spoil: func(data any) {
			sig.Cut(data.(T), sig.Index(data.(T), false, 0), 0, sig.Items(data.(T)))
		},
		create: func(t *testing.T, set exporter.Settings, cfg component.Config) batcher {
			e := create(t, set, cfg)
			return batcher{
				Component: e, consumer: e,
				consume: func(ctx context.Context, data any) error { return e.consume(ctx, data.(T)) },
				account: func() account { return e.running.Load().queue.account() },
			}
		},
	}
}

func (q *queue[T]) account() account {
	q.mu.Lock()
	defer q.mu.Unlock()
	return account{q.mu.accepted, q.mu.sent, q.mu.dropped, q.mu.pending, q.mu.used}
}

var (
	kindTraces = kindOf("traces", "spans", payload.Traces(),
		generators[ptrace.Traces]{payloadtest.SimpleTraces, payloadtest.RandomTraces, payloadtest.IDsTraces, payloadtest.FlattenTraces},
		(&ptrace.ProtoMarshaler{}).TracesSize,
		func(t *testing.T, set exporter.Settings, cfg component.Config) *signalExporter[ptrace.Traces] {
			e, err := NewFactory().CreateTraces(t.Context(), set, cfg)
			require.NoError(t, err)
			return e.(*tracesExporter).signalExporter
		})
	kindMetrics = kindOf("metrics", "metric_points", payload.Metrics(),
		generators[pmetric.Metrics]{payloadtest.SimpleMetrics, payloadtest.RandomMetrics, payloadtest.IDsMetrics, payloadtest.FlattenMetrics},
		(&pmetric.ProtoMarshaler{}).MetricsSize,
		func(t *testing.T, set exporter.Settings, cfg component.Config) *signalExporter[pmetric.Metrics] {
			e, err := NewFactory().CreateMetrics(t.Context(), set, cfg)
			require.NoError(t, err)
			return e.(*metricsExporter).signalExporter
		})
	kindLogs = kindOf("logs", "log_records", payload.Logs(),
		generators[plog.Logs]{payloadtest.SimpleLogs, payloadtest.RandomLogs, payloadtest.IDsLogs, payloadtest.FlattenLogs},
		(&plog.ProtoMarshaler{}).LogsSize,
		func(t *testing.T, set exporter.Settings, cfg component.Config) *signalExporter[plog.Logs] {
			e, err := NewFactory().CreateLogs(t.Context(), set, cfg)
			require.NoError(t, err)
			return e.(*logsExporter).signalExporter
		})
	kindProfiles = kindOf("profiles", "profile_samples", payload.Profiles(),
		generators[pprofile.Profiles]{payloadtest.SimpleProfiles, payloadtest.RandomProfiles, payloadtest.IDsProfiles, payloadtest.FlattenProfiles},
		(&pprofile.ProtoMarshaler{}).ProfilesSize,
		func(t *testing.T, set exporter.Settings, cfg component.Config) *signalExporter[pprofile.Profiles] {
			e, err := NewFactory().(xexporter.Factory).CreateProfiles(t.Context(), set, cfg)
			require.NoError(t, err)
			return e.(*profilesExporter).signalExporter
		})
)

// eachKind runs a test for every signal, in fake time.
func eachKind(t *testing.T, f func(t *testing.T, k kind)) {
	for _, k := range []kind{kindTraces, kindMetrics, kindLogs, kindProfiles} {
		inBubble(t, k.name, func(t *testing.T) { f(t, k) })
	}
}

// inBubble runs a subtest in fake time.
func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// sink is the wrapped exporter. It records every call and answers as scripted.
type sink struct {
	answer  func(ctx context.Context, c *call) error // nil: success
	mutates bool                                     // spoils the data before it answers
	keep    bool                                     // the lines of the data too

	kind kind
	mu   struct {
		sync.Mutex
		calls   []*call
		running int
		most    int           // that ever ran at the same time
		gate    chan struct{} // not nil: calls wait until it is closed
	}
}

// call is one call into the sink.
type call struct {
	data  any // only as long as it runs
	ids   []int64
	lines []string
	bytes int
	began time.Time
	took  bool // it has ended with success
}

func (s *sink) take(ctx context.Context, data any) error {
	c := &call{data: data, ids: s.kind.ids(data), bytes: s.kind.bytes(data), began: time.Now()}
	if s.keep {
		c.lines = s.kind.flatten(data)
	}
	s.mu.Lock()
	s.mu.calls = append(s.mu.calls, c)
	s.mu.running++
	s.mu.most = max(s.mu.most, s.mu.running)
	gate := s.mu.gate
	s.mu.Unlock()
	err := s.respond(ctx, c, gate)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.running--
	c.data, c.took = nil, err == nil
	return err
}

func (s *sink) respond(ctx context.Context, c *call, gate chan struct{}) error {
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var err error
	if s.answer != nil {
		err = s.answer(ctx, c)
	}
	if s.mutates {
		s.kind.spoil(c.data)
	}
	return err
}

// hold makes calls wait until release, or until their context ends.
func (s *sink) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.gate = make(chan struct{})
}

func (s *sink) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.gate != nil {
		close(s.mu.gate)
		s.mu.gate = nil
	}
}

// calls are all calls so far, the running and failed ones too.
func (s *sink) calls() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]call, len(s.mu.calls))
	for i, c := range s.mu.calls {
		all[i] = *c
	}
	return all
}

// taken are the calls that have succeeded.
func (s *sink) taken() []call {
	return slices.DeleteFunc(s.calls(), func(c call) bool { return !c.took })
}

// sizes are the items per successful call.
func (s *sink) sizes() []int {
	sizes := []int{}
	for _, c := range s.taken() {
		sizes = append(sizes, len(c.ids))
	}
	return sizes
}

// ids are those of all items taken, in order.
func (s *sink) ids() []int64 {
	ids := []int64{}
	for _, c := range s.taken() {
		ids = append(ids, c.ids...)
	}
	return ids
}

// lines are those of all items taken, sorted.
func (s *sink) lines() []string {
	var lines []string
	for _, c := range s.taken() {
		lines = append(lines, c.lines...)
	}
	slices.Sort(lines)
	return lines
}

func (*sink) Start(context.Context, component.Host) error { return nil }
func (*sink) Shutdown(context.Context) error              { return nil }

func (s *sink) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: s.mutates}
}

func (s *sink) ConsumeTraces(ctx context.Context, td ptrace.Traces) error { return s.take(ctx, td) }

func (s *sink) ConsumeMetrics(ctx context.Context, md pmetric.Metrics) error { return s.take(ctx, md) }

func (s *sink) ConsumeLogs(ctx context.Context, ld plog.Logs) error { return s.take(ctx, ld) }

func (s *sink) ConsumeProfiles(ctx context.Context, pd pprofile.Profiles) error {
	return s.take(ctx, pd)
}

func (s *sink) factory() exporter.Factory {
	return xexporter.NewFactory(
		component.MustNewType("sink"),
		func() component.Config { return &plainConfig{} },
		xexporter.WithTraces(func(context.Context, exporter.Settings, component.Config) (exporter.Traces, error) { return s, nil }, component.StabilityLevelStable),
		xexporter.WithMetrics(func(context.Context, exporter.Settings, component.Config) (exporter.Metrics, error) { return s, nil }, component.StabilityLevelStable),
		xexporter.WithLogs(func(context.Context, exporter.Settings, component.Config) (exporter.Logs, error) { return s, nil }, component.StabilityLevelStable),
		xexporter.WithProfiles(func(context.Context, exporter.Settings, component.Config) (xexporter.Profiles, error) { return s, nil }, component.StabilityLevelStable),
	)
}

// rig is a batcher for one signal in front of a sink, as a collector runs it.
type rig struct {
	*sink
	t         *testing.T
	exporter  batcher
	telemetry *componenttest.Telemetry
	logged    *observer.ObservedLogs
	started   bool
	stopped   bool
}

// newRig makes a batcher from a user's YAML, which need not name the sink.
func newRig(t *testing.T, k kind, s *sink, yaml string) *rig {
	t.Helper()
	cfg, err := rigConfig(t, yaml)
	require.NoError(t, err, yaml)
	s.kind = k
	core, logged := observer.New(zapcore.DebugLevel)
	r := &rig{sink: s, t: t, telemetry: componenttest.NewTelemetry(), logged: logged}
	set := exporter.Settings{
		ID: component.NewID(metadata.Type), TelemetrySettings: r.telemetry.NewTelemetrySettings(), BuildInfo: component.NewDefaultBuildInfo(),
	}
	set.Logger = zap.New(core).With(zap.String("otelcol.signal", k.name)) // as the service does
	r.exporter = k.create(t, set, cfg)
	t.Cleanup(func() {
		s.release()
		if r.started && !r.stopped {
			assert.NoError(t, r.stop())
		}
		require.NoError(t, r.telemetry.Shutdown(context.WithoutCancel(t.Context())))
	})
	return r
}

func rigConfig(t *testing.T, yaml string) (component.Config, error) {
	cfg := createDefaultConfig()
	conf := confOf(t, "exporter: {sink: }")
	require.NoError(t, conf.Merge(confOf(t, yaml)), yaml)
	if err := conf.Unmarshal(cfg); err != nil {
		return nil, err
	}
	return cfg, confmap.Validate(cfg)
}

func (r *rig) start() {
	r.t.Helper()
	require.NoError(r.t, r.exporter.Start(r.t.Context(), hostOf(r.factory())))
	r.started = true
}

// startRig is newRig and start.
func startRig(t *testing.T, k kind, s *sink, yaml string) *rig {
	t.Helper()
	r := newRig(t, k, s, yaml)
	r.start()
	return r
}

func (r *rig) send(data any) error { return r.exporter.consume(r.t.Context(), data) }

func (r *rig) mustSend(data any) {
	r.t.Helper()
	require.NoError(r.t, r.send(data))
}

func (r *rig) flush() {
	r.t.Helper()
	require.NoError(r.t, r.exporter.consumer.Flush(r.t.Context()))
}

// stop shuts down, and checks that the account is closed and that the metrics
// tell the same.
func (r *rig) stop() error { return r.stopWithin(context.WithoutCancel(r.t.Context())) }

func (r *rig) stopWithin(ctx context.Context) error {
	r.t.Helper()
	r.stopped = true
	err := r.exporter.Shutdown(ctx)
	a := r.exporter.account()
	assert.Equal(r.t, account{accepted: a.sent + a.dropped, sent: a.sent, dropped: a.dropped}, a, "accepted = sent + dropped, and nothing is left")
	assert.Equal(r.t, a.sent, r.metric("sent_"+r.kind.items), "metric of sent items")
	assert.Equal(r.t, a.dropped, r.metric("send_failed_"+r.kind.items), "metric of failed items")
	assert.Equal(r.t, a.dropped, r.metric("batcher_dropped_items"), "metric of dropped items")
	return err
}

// metric is the sum over those points of a metric that have the attributes.
func (r *rig) metric(name string, attrs ...attribute.KeyValue) int64 {
	r.t.Helper()
	var rm metricdata.ResourceMetrics
	require.NoError(r.t, r.telemetry.Reader.Collect(context.WithoutCancel(r.t.Context()), &rm))
	sum := int64(0)
	for _, sm := range rm.ScopeMetrics {
		for _, m := range sm.Metrics {
			if m.Name == "otelcol_exporter_"+name {
				sum += sumOf(m.Data, attrs)
			}
		}
	}
	return sum
}

func sumOf(data metricdata.Aggregation, attrs []attribute.KeyValue) int64 {
	var all []metricdata.DataPoint[int64]
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		all = d.DataPoints
	case metricdata.Gauge[int64]:
		all = d.DataPoints
	}
	sum := int64(0)
	for _, p := range all {
		other := slices.ContainsFunc(attrs, func(a attribute.KeyValue) bool {
			v, ok := p.Attributes.Value(a.Key)
			return !ok || v != a.Value
		})
		if !other {
			sum += p.Value
		}
	}
	return sum
}

func reasonIs(reason dropReason) attribute.KeyValue {
	return attribute.String("reason", string(reason))
}

// sequence is the identities [first, first+n).
func sequence(first, n int64) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = first + int64(i)
	}
	return ids
}

// sorted is a sorted copy.
func sorted[E int64 | string](list []E) []E {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}
