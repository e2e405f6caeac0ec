// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/otel/attribute"
	"go.uber.org/zap"

	"github.com/pullbatch/batcherexporter/internal/metadata"
)

// patient is a configuration whose batches leave neither by size nor by time.
const patient = "drain_timeout: 20s\nsending_queue: {batch: {min_size: 1000, flush_timeout: 24h}}"

// Before Start there is nothing to wait for: an error at once, which another try
// may not get, also where the queue would block.
func TestExporter_BeforeStart(t *testing.T) {
	for _, yaml := range []string{
		"{}", "sending_queue: {block_on_overflow: true, wait_for_result: true}", "sending_queue: {enabled: false}",
	} {
		eachKind(t, func(t *testing.T, k kind) {
			began := time.Now()
			r := newRig(t, k, &sink{}, yaml)
			err := r.send(k.simple(1, 0))
			require.ErrorIs(t, err, errNotStarted)
			assert.False(t, consumererror.IsPermanent(err))
			r.flush()
			assert.Zero(t, time.Since(began))
			assert.Empty(t, r.calls())
		})
	}
}

// A component that was never started stops without a trace, as often as asked.
func TestExporter_ShutdownWithoutStart(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := newRig(t, k, &sink{}, "{}")
		for range 2 {
			require.NoError(t, r.exporter.Shutdown(t.Context()))
		}
		require.ErrorIs(t, r.send(k.simple(1, 0)), errNotStarted)
		assert.Empty(t, r.logged.All())
	})
}

// The second Shutdown does nothing; after the first, data is refused with an error
// that lets others try again, and there is nothing to flush.
func TestExporter_ShutdownTwice(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := startRig(t, k, &sink{}, patient)
		r.mustSend(k.simple(3, 0))
		require.NoError(t, r.stop())
		assert.Equal(t, []int{3}, r.sizes())
		require.NoError(t, r.exporter.Shutdown(t.Context()))
		err := r.send(k.simple(1, 3))
		require.ErrorIs(t, err, errStopping)
		assert.False(t, consumererror.IsPermanent(err))
		r.flush()
		assert.Equal(t, []int{3}, r.sizes())
		assert.EqualValues(t, 1, r.metric("enqueue_failed_"+k.items))
	})
}

// Shutdowns that run at the same time all return, with one report of what is lost.
func TestExporter_ConcurrentShutdowns(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := startRig(t, k, &sink{}, "drain_timeout: 0s\nsending_queue: {batch: {min_size: 1000, flush_timeout: 24h}}")
		r.hold()
		r.mustSend(k.simple(3, 0))
		r.stopped = true
		errs := make(chan error, 3)
		for range 3 {
			go func() { errs <- r.exporter.Shutdown(t.Context()) }()
		}
		for range 3 {
			require.NoError(t, <-errs)
		}
		assert.Len(t, r.logged.FilterMessage(dropMessages[dropShutdown]).All(), 1)
	})
}

// ends is an exporter whose way in and out is scripted.
type ends struct {
	*sink
	start, shutdown func(context.Context) error

	mu        sync.Mutex
	shutdowns int
}

func (e *ends) Start(ctx context.Context, _ component.Host) error {
	if e.start == nil {
		return nil
	}
	return e.start(ctx)
}

func (e *ends) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	e.shutdowns++
	e.mu.Unlock()
	if e.shutdown == nil {
		return nil
	}
	return e.shutdown(ctx)
}

// logsFactory makes e for logs, and nothing for any other signal.
func (e *ends) logsFactory() exporter.Factory {
	return exporter.NewFactory(component.MustNewType("sink"), func() component.Config { return &plainConfig{} },
		exporter.WithLogs(func(context.Context, exporter.Settings, component.Config) (exporter.Logs, error) { return e, nil },
			component.StabilityLevelStable))
}

// A wrapped exporter that does not start is an error that says which one; it is
// stopped, nothing of the batcher is left, and the next try begins anew.
func TestExporter_FailedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom, late := errors.New("no such host"), errors.New("nothing to stop")
		e := &ends{sink: &sink{}}
		e.start = func(context.Context) error { return boom }
		e.shutdown = func(context.Context) error { return late }
		r := newRig(t, kindLogs, e.sink, patient)
		err := r.exporter.Start(t.Context(), hostOf(e.logsFactory()))
		require.ErrorIs(t, err, boom)
		require.ErrorIs(t, err, late)
		wantError(t, err, "`exporter::sink`", "cannot start the wrapped exporter")
		assert.Equal(t, 1, e.shutdowns)
		require.ErrorIs(t, r.send(kindLogs.simple(1, 0)), errNotStarted)
		require.NoError(t, r.exporter.Shutdown(t.Context()))
		assert.Equal(t, 1, e.shutdowns)

		e.start, e.shutdown = nil, nil
		again := newRig(t, kindLogs, e.sink, patient)
		require.NoError(t, again.exporter.Start(t.Context(), hostOf(e.logsFactory())))
		again.started = true
		again.mustSend(kindLogs.simple(2, 0))
		require.NoError(t, again.stop())
		assert.Equal(t, []int{2}, again.sizes())
	})
}

func TestExporter_FailedCreate(t *testing.T) {
	boom := errors.New("bad certificate")
	f := exporter.NewFactory(component.MustNewType("sink"), func() component.Config { return &plainConfig{} },
		exporter.WithLogs(func(context.Context, exporter.Settings, component.Config) (exporter.Logs, error) { return nil, boom },
			component.StabilityLevelStable))
	r := newRig(t, kindLogs, &sink{}, "{}")
	err := r.exporter.Start(t.Context(), hostOf(f))
	require.ErrorIs(t, err, boom)
	wantError(t, err, "`exporter::sink`", "cannot create the wrapped exporter")
}

// A signal that the wrapped exporter does not have is an error that names the
// type and the signal; so is a factory that knows nothing of profiles.
func TestExporter_SignalNotSupported(t *testing.T) {
	for _, k := range []kind{kindTraces, kindMetrics, kindProfiles} {
		t.Run(k.name, func(t *testing.T) {
			r := newRig(t, k, &sink{}, "{}")
			err := r.exporter.Start(t.Context(), hostOf((&ends{sink: &sink{}}).logsFactory()))
			require.ErrorIs(t, err, pipeline.ErrSignalNotSupported)
			wantError(t, err, "`exporter::sink`", `"sink"`, k.name)
			require.NoError(t, r.exporter.Shutdown(t.Context()))
		})
	}
}

func TestExporter_HostWithoutTheFactory(t *testing.T) {
	for name, host := range map[string]component.Host{"none": componenttest.NewNopHost(), "others": hostOf(plainFactory())} {
		t.Run(name, func(t *testing.T) {
			err := newRig(t, kindLogs, &sink{}, "{}").exporter.Start(t.Context(), host)
			wantError(t, err, "`exporter`", "sink")
		})
	}
}

// duo is a batcher with two signals, each in front of a sink of its own.
type duo struct {
	factory exporter.Factory
	cfg     component.Config
	host    component.Host
	traces  *sink
	logs    *sink

	decoded []component.Config // of the wrapped exporter, for each that was created
}

func newDuo(t *testing.T, yaml string) *duo {
	t.Helper()
	cfg, err := rigConfig(t, yaml)
	require.NoError(t, err)
	d := &duo{factory: NewFactory(), cfg: cfg, traces: &sink{kind: kindTraces}, logs: &sink{kind: kindLogs}}
	d.host = hostOf(exporter.NewFactory(component.MustNewType("sink"), func() component.Config { return &plainConfig{} },
		exporter.WithTraces(func(_ context.Context, _ exporter.Settings, cfg component.Config) (exporter.Traces, error) {
			d.decoded = append(d.decoded, cfg)
			return d.traces, nil
		}, component.StabilityLevelStable),
		exporter.WithLogs(func(_ context.Context, _ exporter.Settings, cfg component.Config) (exporter.Logs, error) {
			d.decoded = append(d.decoded, cfg)
			return d.logs, nil
		}, component.StabilityLevelStable)))
	return d
}

func (d *duo) newTraces(t *testing.T) exporter.Traces {
	t.Helper()
	e, err := d.factory.CreateTraces(t.Context(), exportertest.NewNopSettings(metadata.Type), d.cfg)
	require.NoError(t, err)
	return e
}

func (d *duo) newLogs(t *testing.T) exporter.Logs {
	t.Helper()
	e, err := d.factory.CreateLogs(t.Context(), exportertest.NewNopSettings(metadata.Type), d.cfg)
	require.NoError(t, err)
	return e
}

func (d *duo) start(t *testing.T, all ...component.Component) {
	t.Helper()
	for _, c := range all {
		require.NoError(t, c.Start(t.Context(), d.host))
	}
}

func shutdown(t *testing.T, all ...component.Component) {
	t.Helper()
	for _, c := range all {
		require.NoError(t, c.Shutdown(t.Context()))
	}
}

// What the signals of a batcher share begins with the first Start and ends with
// the last Shutdown. What was never started does not count.
func TestInstance_IsSharedWhileAnySignalRuns(t *testing.T) {
	d := newDuo(t, "exporter: {sink: {path: shared}}")
	idle := d.newLogs(t)
	traces, logs := d.newTraces(t), d.newLogs(t)
	d.start(t, traces, logs)
	shutdown(t, idle)
	require.Len(t, d.decoded, 2)
	assert.Same(t, d.decoded[0], d.decoded[1])
	assert.Equal(t, &plainConfig{Path: "shared"}, d.decoded[0])

	shutdown(t, traces)
	later := d.newTraces(t)
	d.start(t, later)
	assert.Same(t, d.decoded[0], d.decoded[2], "logs run still")
	shutdown(t, later, logs, later, logs)

	again := d.newLogs(t)
	d.start(t, again)
	assert.NotSame(t, d.decoded[0], d.decoded[3], "another run")
	assert.Equal(t, d.decoded[0], d.decoded[3])
	shutdown(t, again)
}

// A Start that fails does not keep the shared part alive.
func TestInstance_FailedStartLetsGo(t *testing.T) {
	d := newDuo(t, "{}")
	metrics, err := d.factory.CreateMetrics(t.Context(), exportertest.NewNopSettings(metadata.Type), d.cfg)
	require.NoError(t, err)
	logs := d.newLogs(t)
	d.start(t, logs)
	require.ErrorIs(t, metrics.Start(t.Context(), d.host), pipeline.ErrSignalNotSupported)
	shutdown(t, logs, metrics)
	again := d.newLogs(t)
	d.start(t, again)
	assert.NotSame(t, d.decoded[0], d.decoded[1])
	shutdown(t, again)
}

// Two batchers of the same factory, or two decodings of the same block, share
// nothing.
func TestInstance_IsOnePerDecodedConfig(t *testing.T) {
	d := newDuo(t, "{}")
	one := d.newLogs(t)
	var err error
	d.cfg, err = rigConfig(t, "{}")
	require.NoError(t, err)
	other := d.newLogs(t)
	d.start(t, one, other)
	assert.NotSame(t, d.decoded[0], d.decoded[1])
	shutdown(t, one, other)
}

// The first Shutdown sends what its siblings have queued. These accept data until
// their own, and what comes after that flush lingers as usual.
func TestInstance_FirstShutdownFlushesSiblings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, patient)
		traces, logs := d.newTraces(t), d.newLogs(t)
		d.start(t, traces, logs)
		send := func(n int, first int64) {
			require.NoError(t, logs.ConsumeLogs(t.Context(), logsOf(n, first)))
			synctest.Wait()
		}
		send(5, 0)
		assert.Empty(t, d.logs.sizes())
		shutdown(t, traces)
		synctest.Wait()
		assert.Equal(t, []int{5}, d.logs.sizes())
		send(7, 5)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, []int{5}, d.logs.sizes())
		shutdown(t, logs)
		assert.Equal(t, sequence(0, 12), d.logs.ids())
	})
}

// The time to drain is one for all signals, and only that inside of Shutdown
// counts: the wrapped exporter hangs, and what the first used up the second lacks.
func TestInstance_OneDrainBudget(t *testing.T) {
	for name, tc := range map[string]struct {
		released      time.Duration // when the wrapped exporter of the first gets on; 0: never
		first, second time.Duration // how long the Shutdowns take
	}{
		"the first takes all":  {first: 20 * time.Second, second: 0},
		"the first takes some": {released: 12 * time.Second, first: 12 * time.Second, second: 8 * time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			d := newDuo(t, patient)
			d.traces.hold()
			d.logs.hold()
			traces, logs := d.newTraces(t), d.newLogs(t)
			d.start(t, traces, logs)
			require.NoError(t, traces.ConsumeTraces(t.Context(), tracesOf(3, 0)))
			require.NoError(t, logs.ConsumeLogs(t.Context(), logsOf(4, 0)))
			if tc.released > 0 {
				time.AfterFunc(tc.released, d.traces.release)
			}
			began := time.Now()
			require.NoError(t, traces.Shutdown(t.Context()))
			assert.Equal(t, tc.first, time.Since(began))

			time.Sleep(stopPause / 2) // other components stop, which costs none of the budget
			began = time.Now()
			require.NoError(t, logs.Shutdown(t.Context()))
			assert.Equal(t, tc.second, time.Since(began))
		})
	}
}

// A stopped instance gives the next run its whole time again.
func TestInstance_NextRunHasTheWholeBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, patient)
		d.logs.hold()
		for range 2 {
			logs := d.newLogs(t)
			d.start(t, logs)
			require.NoError(t, logs.ConsumeLogs(t.Context(), logsOf(4, 0)))
			began := time.Now()
			require.NoError(t, logs.Shutdown(t.Context()))
			assert.Equal(t, 20*time.Second, time.Since(began))
		}
	})
}

// loggerFactory keeps the logger that the wrapped exporter for logs gets.
type loggerFactory struct {
	exporter.Factory
	logger *zap.Logger
}

func (f *loggerFactory) CreateLogs(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Logs, error) {
	f.logger = set.Logger
	return f.Factory.CreateLogs(ctx, set, cfg)
}

// What the backend rejects in a request that it takes is told and counted. It counts
// as sent too.
func TestExporter_PartialSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{}
		f := &loggerFactory{Factory: s.factory()}
		s.answer = func(context.Context, *call) error {
			f.logger.Warn(partialSuccess, zap.String("message", "too old"), zap.Int64("dropped_log_records", 2))
			return nil
		}
		r := newRig(t, kindLogs, s, "sending_queue: {batch: {min_size: 0}}")
		require.NoError(t, r.exporter.Start(t.Context(), hostOf(f)))
		r.started = true
		for i := range int64(100) {
			r.mustSend(logsOf(10, 10*i))
			synctest.Wait()
		}
		require.NoError(t, r.stop())
		assert.EqualValues(t, 200, r.metric("batcher_rejected_items"))
		assert.EqualValues(t, 1000, r.metric("sent_log_records"))
		lines := r.logged.FilterMessage("The backend rejected items of requests that it took.").All()
		require.Len(t, lines, 2)
		sum, _ := sumOfField(r.logged, "rejected_items")
		assert.EqualValues(t, 200, sum)
		assert.Equal(t, "too old", lines[0].ContextMap()["error"])
	})
}

// Without a queue each request is a batch of its own.
func TestExporter_TriggerWithoutQueue(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := startRig(t, k, &sink{}, "sending_queue: {enabled: false}")
		r.mustSend(k.simple(3, 0))
		r.mustSend(k.simple(3, 3))
		assert.EqualValues(t, 2, r.metric("batcher_batches", attribute.String("trigger", "request")))
		assert.EqualValues(t, 2, r.metric("batcher_batches"))
		require.NoError(t, r.stop())
	})
}
