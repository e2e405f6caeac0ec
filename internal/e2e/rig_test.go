// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pullbatch/batcherexporter/internal/e2e/client"
	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
	"github.com/pullbatch/batcherexporter/internal/e2e/process"
	"github.com/pullbatch/batcherexporter/internal/e2e/selfmetrics"
)

const (
	root       = "../.."
	configDir  = root + "/distro/config"
	maxItems   = 512 // `max_size` in testdata/batching.yaml
	reportMS   = 50  // how often the collector reports its metrics
	maxRequest = 20  // items of a request
	workers    = 4   // of each signal
	// A condition that has not come true by then never will, even on a busy machine.
	patience = 2 * time.Minute
)

var collectorBinary = os.Getenv("E2E_COLLECTOR")

func TestMain(m *testing.M) {
	if collectorBinary == "" {
		build := exec.Command("make", "-C", root, "distro")
		build.Stdout, build.Stderr = os.Stdout, os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "the collector does not build:", err)
			os.Exit(1)
		}
		collectorBinary = root + "/distro/build/otelcol-batcher"
	}
	os.Exit(m.Run())
}

// scaled multiplies an amount of data by E2E_SCALE.
func scaled(t *testing.T, n int) int {
	text, ok := os.LookupEnv("E2E_SCALE")
	if !ok {
		return n
	}
	scale, err := strconv.Atoi(text)
	require.NoError(t, err, "E2E_SCALE")
	return n * scale
}

// rig is a batching collector with what is before and behind it.
type rig struct {
	t         *testing.T
	dir       string // where backends write
	addresses map[string]string
	env       []string
	watch     *selfmetrics.Server
	batching  *process.Process
	backend   *process.Process // nil if the test has another
	took      time.Duration    // the start of the batching collector: what this machine takes for a second of work or so
}

func newRig(t *testing.T) *rig {
	watch, err := selfmetrics.Listen()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, watch.Close()) })
	r := &rig{t: t, dir: t.TempDir(), addresses: map[string]string{}, watch: watch}
	for _, name := range []string{"BACKEND_GRPC", "BACKEND_HTTP", "BATCHING_GRPC", "BATCHING_HTTP"} {
		address, err := process.FreeAddress()
		require.NoError(t, err)
		r.addresses[name] = address
	}
	r.env = []string{
		"BACKEND_DIR=" + r.dir,
		"WATCH_URL=" + watch.URL(),
		"WATCH_INTERVAL_MS=" + strconv.Itoa(reportMS),
	}
	return r
}

// configure writes the configuration of a collector with one pipeline, to all of the
// exporters, and returns where it is.
func (r *rig) configure(signal otlpdata.Signal, exporters map[string]any) string {
	r.t.Helper()
	names := slices.Sorted(maps.Keys(exporters))
	config, err := json.MarshalIndent(map[string]any{
		"receivers": map[string]any{"otlp": map[string]any{"protocols": map[string]any{
			"grpc": map[string]any{"endpoint": r.addresses["BATCHING_GRPC"]},
			"http": map[string]any{"endpoint": r.addresses["BATCHING_HTTP"]},
		}}},
		"exporters": exporters,
		"service": map[string]any{
			"telemetry": map[string]any{"metrics": map[string]any{"level": "detailed"}},
			"pipelines": map[string]any{string(signal): map[string]any{"receivers": []string{"otlp"}, "exporters": names}},
		},
	}, "", "  ")
	require.NoError(r.t, err)
	path := filepath.Join(r.dir, "collector.yaml") // JSON is YAML
	require.NoError(r.t, os.WriteFile(path, config, 0o600))
	return path
}

func (r *rig) startBackend() {
	r.t.Helper()
	r.backend = r.start("backend", filepath.Join(configDir, "backend.yaml"))
}

// startBatching starts the collector under test with these files of testdata on
// top of batching.yaml.
func (r *rig) startBatching(names ...string) {
	r.t.Helper()
	configs := []string{"testdata/batching.yaml"}
	for _, name := range names {
		configs = append(configs, "testdata/"+name)
	}
	r.startBatchingWith(configs...)
}

// startBatchingWith starts the collector under test with these configurations,
// which may be paths or YAML after "yaml:".
func (r *rig) startBatchingWith(configs ...string) {
	r.t.Helper()
	// First, because a list that comes later replaces the readers in it.
	configs = append([]string{filepath.Join(configDir, "watch.yaml")}, configs...)
	began := time.Now()
	r.batching = r.start("batching", configs...)
	r.took = time.Since(began)
	// A collector says that it is ready a moment before it listens to signals, and
	// nothing tells when it does. Two reports later it has had time to.
	for range 2 {
		since := time.Now()
		r.waitFor(func(s selfmetrics.Snapshot) bool { return s.At.After(since) })
	}
}

func (r *rig) start(name string, configs ...string) *process.Process {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	p, err := process.Start(ctx, r.collector(name, configs...))
	require.NoError(r.t, err)
	r.t.Cleanup(func() {
		p.Kill()
		if r.t.Failed() {
			r.t.Logf("output of the %s collector:\n%s", name, p.Output())
		}
	})
	return p
}

// collector returns how to run a collector with these configurations.
func (r *rig) collector(name string, configs ...string) process.Settings {
	set := process.Settings{
		Name:    name + " collector",
		Command: []string{collectorBinary},
		Env:     r.env,
		Ready:   process.CollectorReady,

		KeepOutput: true, // a line may not be looked for before it has left the end
	}
	for _, config := range configs {
		set.Command = append(set.Command, "--config="+config)
	}
	for variable, address := range r.addresses {
		set.Env = append(set.Env, variable+"="+address)
	}
	return set
}

// stop stops the batching collector, then the backend, and returns the last
// metrics of the batching collector.
func (r *rig) stop() selfmetrics.Snapshot {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	require.NoError(r.t, r.batching.Stop(ctx))
	if r.backend != nil {
		require.NoError(r.t, r.backend.Stop(ctx))
	}
	return r.watch.Latest()
}

// waitFor waits until the metrics of the batching collector satisfy the condition.
func (r *rig) waitFor(condition func(selfmetrics.Snapshot) bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	_, err := r.watch.Wait(ctx, condition)
	require.NoError(r.t, err)
}

// written returns what the backend wrote.
func (r *rig) written(signal otlpdata.Signal) *otlpdata.Tally {
	return r.writtenTo(signal, string(signal)+".json")
}

func (r *rig) writtenTo(signal otlpdata.Signal, name string) *otlpdata.Tally {
	r.t.Helper()
	tally, err := otlpdata.ReadFile(signal, filepath.Join(r.dir, name))
	require.NoError(r.t, err)
	return tally
}

// dial returns a client of the batching collector.
func (r *rig) dial(transport client.Transport) client.Client {
	r.t.Helper()
	address := r.addresses["BATCHING_GRPC"]
	if transport == client.HTTP {
		address = r.addresses["BATCHING_HTTP"]
	}
	c, err := client.Dial(transport, address)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { assert.NoError(r.t, c.Close()) })
	return c
}

// sendAll sends a load of each signal at the same time; 0 items: until a request
// fails.
func (r *rig) sendAll(transport client.Transport, items int) map[otlpdata.Signal]*client.Outcome {
	r.t.Helper()
	c := r.dial(transport)
	signals := otlpdata.Signals()
	outcomes := make([]*client.Outcome, len(signals))
	var loads sync.WaitGroup
	for n, signal := range signals {
		load := client.Load{Signal: signal, Items: items, MaxItems: maxRequest, Workers: workers, Seed: uint64(n)}
		loads.Go(func() { outcomes[n] = load.Run(r.t.Context(), c) })
	}
	loads.Wait()
	bySignal := map[otlpdata.Signal]*client.Outcome{}
	for n, signal := range signals {
		bySignal[signal] = outcomes[n]
	}
	return bySignal
}

// forEachTransport runs a test once with each kind of client.
func forEachTransport(t *testing.T, test func(*testing.T, client.Transport)) {
	for _, transport := range client.Transports() {
		t.Run(string(transport), func(t *testing.T) { test(t, transport) })
	}
}

// requireOnce checks that each accepted item arrived once, and that no batch is
// above its bound.
func requireOnce(t *testing.T, signal otlpdata.Signal, outcome *client.Outcome, tally *otlpdata.Tally) {
	t.Helper()
	difference := tally.Compare(outcome.Accepted)
	require.True(t, difference.Empty(), "%s: %v", signal, difference)
	require.Equal(t, outcome.Items(), tally.Items(), "%s: items", signal)
	require.LessOrEqual(t, tally.Largest(), maxItems, "%s: largest batch", signal)
}
