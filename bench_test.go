// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"fmt"
	"reflect"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/exporter/xexporter"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/pullbatch/batcherexporter/internal/metadata"
	"github.com/pullbatch/batcherexporter/internal/payload"
)

// countingSink is a wrapped exporter that only counts items, and tells when as many
// have come as somebody waits for.
type countingSink struct {
	component.StartFunc
	component.ShutdownFunc
	left atomic.Int64
	done chan struct{}
}

func (c *countingSink) took(items int) error {
	if c.left.Add(-int64(items)) == 0 {
		c.done <- struct{}{}
	}
	return nil
}

func (*countingSink) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (c *countingSink) ConsumeTraces(_ context.Context, d ptrace.Traces) error {
	return c.took(d.SpanCount())
}

func (c *countingSink) ConsumeMetrics(_ context.Context, d pmetric.Metrics) error {
	return c.took(d.DataPointCount())
}

func (c *countingSink) ConsumeLogs(_ context.Context, d plog.Logs) error {
	return c.took(d.LogRecordCount())
}

func (c *countingSink) ConsumeProfiles(_ context.Context, d pprofile.Profiles) error {
	return c.took(d.SampleCount())
}

func (c *countingSink) factory() exporter.Factory {
	return xexporter.NewFactory(component.MustNewType("sink"), func() component.Config { return &plainConfig{} },
		xexporter.WithTraces(func(context.Context, exporter.Settings, component.Config) (exporter.Traces, error) { return c, nil }, component.StabilityLevelStable),
		xexporter.WithMetrics(func(context.Context, exporter.Settings, component.Config) (exporter.Metrics, error) { return c, nil }, component.StabilityLevelStable),
		xexporter.WithLogs(func(context.Context, exporter.Settings, component.Config) (exporter.Logs, error) { return c, nil }, component.StabilityLevelStable),
		xexporter.WithProfiles(func(context.Context, exporter.Settings, component.Config) (xexporter.Profiles, error) { return c, nil }, component.StabilityLevelStable),
	)
}

// startBench starts a batcher in front of c and returns its Consume.
func startBench(b *testing.B, k kind, c *countingSink, yaml string) func(data any) error {
	b.Helper()
	factory := NewFactory(c.factory()).(xexporter.Factory)
	cfg := factory.CreateDefaultConfig()
	retrieved, err := confmap.NewRetrievedFromYAML([]byte(yaml))
	require.NoError(b, err)
	conf, err := retrieved.AsConf()
	require.NoError(b, err)
	require.NoError(b, conf.Unmarshal(cfg))
	ctx, set := b.Context(), exportertest.NewNopSettings(metadata.Type)
	var exp component.Component
	var consume func(any) error
	switch k.name {
	case "traces":
		var e exporter.Traces
		e, err = factory.CreateTraces(ctx, set, cfg)
		exp, consume = e, func(data any) error { return e.ConsumeTraces(ctx, data.(ptrace.Traces)) }
	case "metrics":
		var e exporter.Metrics
		e, err = factory.CreateMetrics(ctx, set, cfg)
		exp, consume = e, func(data any) error { return e.ConsumeMetrics(ctx, data.(pmetric.Metrics)) }
	case "logs":
		var e exporter.Logs
		e, err = factory.CreateLogs(ctx, set, cfg)
		exp, consume = e, func(data any) error { return e.ConsumeLogs(ctx, data.(plog.Logs)) }
	case "profiles":
		var e xexporter.Profiles
		e, err = factory.CreateProfiles(ctx, set, cfg)
		exp, consume = e, func(data any) error { return e.ConsumeProfiles(ctx, data.(pprofile.Profiles)) }
	}
	require.NoError(b, err)
	require.NoError(b, exp.Start(ctx, hostOf()))
	b.Cleanup(func() { require.NoError(b, exp.Shutdown(context.WithoutCancel(ctx))) })
	return consume
}

// BenchmarkConsume is the whole way from Consume into the wrapped exporter, in
// batches of 8000 items, for each signal: without bounds, with one in items, and
// with one in bytes as well, which is not reached but has to be watched. Requests
// of 16,000 items are cut. An op is four batches.
func BenchmarkConsume(b *testing.B) {
	const items = 4 * 8000
	for _, bound := range []string{"max_size: 0", "max_size: 8000", "max_size: 8000, max_bytes: 100000000"} {
		for _, k := range []kind{kindTraces, kindMetrics, kindLogs, kindProfiles} {
			for _, size := range []int{1, 10, 100, 1000, 16_000} {
				b.Run(fmt.Sprintf("%s/items=%d/%s", k.name, size, strings.ReplaceAll(bound, " ", "")), func(b *testing.B) {
					c := &countingSink{done: make(chan struct{}, 1)}
					consume := startBench(b, k, c, fmt.Sprintf(
						"exporter: {sink: }\nsending_queue: {queue_size: 100000, batch: {min_size: 8000, flush_timeout: 1h, merge_resources: false, %s}}", bound))
					benchmarkConsume(b, k, size, items/size, c, consume)
				})
			}
		}
	}
}

func benchmarkConsume(b *testing.B, k kind, size, requests int, c *countingSink, consume func(any) error) {
	b.Helper()
	b.ReportAllocs()
	all := make([]any, requests)
	for b.Loop() {
		b.StopTimer()
		for i := range all {
			all[i] = k.simple(size, int64(i*size))
		}
		c.left.Store(int64(size * requests))
		b.StartTimer()
		for _, data := range all {
			if err := consume(data); err != nil {
				b.Fatal(err)
			}
		}
		<-c.done
	}
	perItem(b, "ns/item", float64(b.Elapsed()), size*requests)
}

// perItem reports what all iterations took together, by item.
func perItem(b *testing.B, unit string, total float64, items int) {
	b.Helper()
	b.ReportMetric(total/float64(items)/float64(b.N), unit)
}

// Contention: as many producers with requests of ten items and one worker, in
// batches of 8000 items. An op is ten batches.
const (
	contentionItems    = 10
	contentionBatch    = 8000
	contentionRequests = 10 * contentionBatch / contentionItems
)

// BenchmarkContention compares the queue, whose lock is taken once per pull and
// once per settle of a batch, to one from which each request is pulled and in which
// each is settled by itself, while batches are made outside. It reports the time
// that goroutines waited for mutexes, and with -tags invariants how often the
// queue's was taken.
func BenchmarkContention(b *testing.B) {
	for _, producers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("producers=%d/pull=batch", producers), func(b *testing.B) {
			benchmarkContention(b, producers, batchSettings{unit: unitItems, minSize: contentionBatch, flushTimeout: time.Hour}, sendBatches)
		})
		b.Run(fmt.Sprintf("producers=%d/pull=request", producers), func(b *testing.B) {
			benchmarkContention(b, producers, batchSettings{unit: unitItems}, gatherRequests)
		})
	}
}

// sendBatches is a worker that pulls batches.
func sendBatches(q *queue[plog.Logs], _ payload.Merger[plog.Logs], c *countingSink) {
	for {
		batch := q.next(newBatch())
		if batch == nil {
			return
		}
		q.form(batch)
		_ = c.took(batch.content.data.LogRecordCount())
		q.settle(batch, outcome{sent: batch.items})
	}
}

func newBatch() *batch[plog.Logs] { return &batch[plog.Logs]{} }

// gatherRequests is a worker that pulls one request at a time and makes batches of
// them.
func gatherRequests(q *queue[plog.Logs], merger payload.Merger[plog.Logs], c *countingSink) {
	var gathered []*batch[plog.Logs]
	building, items := merger.Begin(false), 0
	for {
		one := q.next(newBatch())
		if one == nil {
			return
		}
		q.form(one)
		building.Add(one.content.data)
		gathered = append(gathered, one)
		if items += one.items; items < contentionBatch {
			continue
		}
		_ = c.took(building.Data().LogRecordCount())
		for _, one := range gathered {
			q.settle(one, outcome{sent: one.items})
		}
		gathered, building, items = gathered[:0], merger.Begin(false), 0
	}
}

type worker func(*queue[plog.Logs], payload.Merger[plog.Logs], *countingSink)

func benchmarkContention(b *testing.B, producers int, set batchSettings, work worker) {
	b.Helper()
	c := &countingSink{done: make(chan struct{}, 1)}
	var q *queue[plog.Logs]
	merger := payload.Logs().NewMerger(false)
	q = newQueue(queueSettings{unit: unitRequests, capacity: 1 << 40, slots: 1, batch: set}, payload.Logs(), merger,
		func() { work(q, merger, c) })
	defer func() {
		q.abandon()
		<-q.ended
	}()
	b.ReportAllocs()
	var waited float64
	locks := locksTaken(q)
	all := make([]plog.Logs, contentionRequests)
	for b.Loop() {
		b.StopTimer()
		for i := range all {
			all[i] = logsOf(contentionItems, int64(i))
		}
		c.left.Store(contentionRequests * contentionItems)
		before := mutexWait()
		b.StartTimer()
		offerAll(b.Context(), q, all, producers)
		<-c.done
		b.StopTimer()
		waited += mutexWait() - before
		b.StartTimer()
	}
	perItem(b, "ns/item", float64(b.Elapsed()), contentionRequests*contentionItems)
	perItem(b, "mutex-wait-ns/item", waited*1e9, contentionRequests*contentionItems)
	if taken := locksTaken(q); taken > 0 {
		perItem(b, "locks/request", float64(taken-locks), contentionRequests)
	}
}

// offerAll offers all requests, each producer an equal part of them.
func offerAll(ctx context.Context, q *queue[plog.Logs], all []plog.Logs, producers int) {
	var wg sync.WaitGroup
	part := len(all) / producers
	for i := range producers {
		wg.Go(func() {
			for _, data := range all[i*part : (i+1)*part] {
				_, _ = q.offer(ctx, data)
			}
		})
	}
	wg.Wait()
}

// mutexWait is how many seconds goroutines have waited for mutexes so far.
func mutexWait() float64 {
	s := []metrics.Sample{{Name: "/sync/mutex/wait/total:seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64()
}

// locksTaken is how often the queue's lock was taken. Only with the build tag
// invariants it knows that itself; without, it is 0.
func locksTaken(q *queue[plog.Logs]) int64 {
	taken := reflect.ValueOf(&q.mu.mutex).Elem().FieldByName("taken")
	if !taken.IsValid() {
		return 0
	}
	return taken.Int()
}
