// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pullbatch/batcherexporter/internal/e2e/client"
	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
	"github.com/pullbatch/batcherexporter/internal/e2e/selfmetrics"
)

// TestBackendIsKilled kills the backend under load and starts it again some time
// later: 8 seconds, or 30 when E2E_SCALE is 4 or more. All that was accepted
// arrives. Only a batch that the backend had taken without having said so may
// arrive twice.
func TestBackendIsKilled(t *testing.T) {
	t.Parallel()
	outage := time.Duration(min(scaled(t, 8), 30)) * time.Second
	for _, wrapped := range []string{"otlp_grpc", "otlp_http"} {
		t.Run(wrapped, func(t *testing.T) {
			t.Parallel() // most of the time is waiting
			testBackendIsKilled(t, wrapped, outage)
		})
	}
}

func testBackendIsKilled(t *testing.T, wrapped string, outage time.Duration) {
	r := newRig(t)
	lives := []string{filepath.Join(r.dir, "first"), filepath.Join(r.dir, "second")}
	r.startUnbufferedBackend(lives[0])
	r.startBatching("wrap_" + wrapped + ".yaml")
	finish := r.startPacedLoad()
	r.waitSentAbove(2 * maxItems)

	r.backend.Kill()
	atKill := r.watch.Latest()
	<-time.After(outage)
	var during selfmetrics.Snapshot
	r.waitFor(func(s selfmetrics.Snapshot) bool { // the load goes on through the outage
		during = s
		return accepted(s) > accepted(atKill)
	})
	r.startUnbufferedBackend(lives[1])
	// All that piled up, and the load goes on.
	r.waitSentAbove(during.Value("otelcol_receiver_accepted_log_records", nil))
	outcomes := finish()
	last := r.stop()

	assert.Positive(t, last.Value("otelcol_exporter_batcher_failed_attempts", nil))
	for signal, outcome := range outcomes {
		require.NoError(t, outcome.Err, signal)
		tally, err := otlpdata.ReadFile(signal, filepath.Join(lives[1], string(signal)+".json"))
		require.NoError(t, err)
		second := tally.Items()
		require.Zero(t, tally.Repeats(), "%s: within the second life", signal)
		require.NoError(t, tally.AddKilled(signal, filepath.Join(lives[0], string(signal)+".json")))
		require.Greater(t, tally.Items(), second, "%s: the first life took something", signal)

		difference := tally.Compare(outcome.Accepted)
		assert.Empty(t, difference.Missing, signal)
		assert.Empty(t, difference.Unexpected, signal)
		assert.LessOrEqual(t, tally.Repeats(), consumers*maxItems, "%s: in flight at the kill", signal)
		assert.Equal(t, outcome.Items()+tally.Repeats(), tally.Items(), signal)
		requireAccounts(t, last, signal, outcome.Items(), 0)
		t.Logf("%s: %d items, %d of them twice", signal, outcome.Items(), tally.Repeats())
	}
}

// startUnbufferedBackend starts a backend that writes to this directory.
func (r *rig) startUnbufferedBackend(dir string) {
	r.t.Helper()
	require.NoError(r.t, os.Mkdir(dir, 0o700))
	r.env = append(r.env, "BACKEND_DIR="+dir)
	r.backend = r.start("backend", filepath.Join(configDir, "backend.yaml"), "testdata/backend_unbuffered.yaml")
}

// startPacedLoad sends all signals until finish is called, at a pace that the queue
// can hold through an outage.
func (r *rig) startPacedLoad() (finish func() map[otlpdata.Signal]*client.Outcome) {
	c := r.dial(client.GRPC)
	end := make(chan struct{})
	type result struct {
		signal  otlpdata.Signal
		outcome *client.Outcome
	}
	results := make(chan result, len(otlpdata.Signals()))
	for _, signal := range otlpdata.Signals() {
		load := client.Load{Signal: signal, MaxItems: maxRequest, Workers: workers, Pause: 5 * time.Millisecond, End: end}
		go func() { results <- result{signal, load.Run(r.t.Context(), c)} }()
	}
	return func() map[otlpdata.Signal]*client.Outcome {
		close(end)
		outcomes := map[otlpdata.Signal]*client.Outcome{}
		for range otlpdata.Signals() {
			one := <-results
			outcomes[one.signal] = one.outcome
		}
		return outcomes
	}
}

// waitSentAbove waits until more than so many items of each signal were sent.
func (r *rig) waitSentAbove(items int) {
	r.t.Helper()
	r.waitFor(func(s selfmetrics.Snapshot) bool {
		for _, name := range itemNames {
			if s.Value("otelcol_exporter_sent_"+name, nil) <= items {
				return false
			}
		}
		return true
	})
}

// accepted is the number of items of all signals that the collector has accepted.
func accepted(s selfmetrics.Snapshot) int {
	items := 0
	for _, name := range itemNames {
		items += s.Value("otelcol_receiver_accepted_"+name, nil)
	}
	return items
}

// TestOrderThroughOutage has one consumer, which keeps the order of what it sends through
// an outage.
func TestOrderThroughOutage(t *testing.T) {
	t.Parallel()
	for how, cut := range cuts {
		for _, wrapped := range []string{"otlp_grpc", "otlp_http"} {
			t.Run(how+"/"+wrapped, func(t *testing.T) {
				t.Parallel()
				testOrderThroughOutage(t, wrapped, cut)
			})
		}
	}
}

func testOrderThroughOutage(t *testing.T, wrapped string, cut func(*wire)) {
	outage := newOutages(t, 8*time.Second, time.Minute)
	r := newRig(t)
	backend, w, block := withWire(t, wrapped)
	r.startBatchingWith(r.configure(otlpdata.Logs, map[string]any{
		"batcher": outage.batcher(wrapped, block, map[string]any{
			"sizer": "items", "queue_size": 1_000_000, "num_consumers": 1,
			// Merging sorts the items of a batch by resource.
			"batch": map[string]any{"min_size": 50, "max_size": 50, "flush_timeout": "50ms", "merge_resources": false},
		}),
	}))
	c := r.dial(client.GRPC)
	end, ended := make(chan struct{}), make(chan *client.Outcome)
	load := client.Load{Signal: otlpdata.Logs, MaxItems: maxRequest, Workers: 1, Pause: 5 * time.Millisecond, End: end}
	go func() { ended <- load.Run(t.Context(), c) }()
	sentAbove := func(items int) {
		r.waitFor(func(s selfmetrics.Snapshot) bool { return s.Value("otelcol_exporter_sent_log_records", nil) > items })
	}
	sentAbove(500)
	cut(w)
	outage.wait()
	r.waitFor(func(s selfmetrics.Snapshot) bool { return s.Value("otelcol_exporter_batcher_failed_attempts", nil) > 0 })
	piled := accepted(r.watch.Latest())
	w.connect()
	sentAbove(piled)
	close(end)
	outcome := <-ended
	require.NoError(t, outcome.Err)
	r.waitSettled(outcome.Items())
	last := r.stop()
	tally := backend.Tally(otlpdata.Logs)
	difference := tally.Compare(outcome.Accepted)
	assert.Empty(t, difference.Missing)
	assert.Empty(t, difference.Unexpected)
	assert.Zero(t, tally.Behind(), "of %d items", tally.Items())
	// The batch that was under way may have arrived without an answer.
	assert.LessOrEqual(t, tally.Repeats(), 50)
	requireAccounts(t, last, otlpdata.Logs, outcome.Items(), 0)
}
