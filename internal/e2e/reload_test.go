// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pullbatch/batcherexporter/internal/e2e/client"
	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
	"github.com/pullbatch/batcherexporter/internal/e2e/process"
	"github.com/pullbatch/batcherexporter/internal/e2e/selfmetrics"
)

// reloadBound is how long a collector may be away whose backend is known to be down.
const reloadBound = 6 * time.Second

// TestReloadDuringOutage changes a value of the exporter when the backend has been down
// for a minute: the collector comes back soon, and delivers when the backend does.
func TestReloadDuringOutage(t *testing.T) {
	t.Parallel()
	for how, cut := range cuts {
		for _, wrapped := range []string{"otlp_grpc", "otlp_http"} {
			t.Run(how+"/"+wrapped, func(t *testing.T) {
				t.Parallel()
				testReloadDuringOutage(t, wrapped, cut)
			})
		}
	}
}

func testReloadDuringOutage(t *testing.T, wrapped string, cut func(*wire)) {
	outage := newOutages(t, 8*time.Second, time.Minute)
	r := newRig(t)
	backend, w, block := withWire(t, wrapped)
	configure := func(life string) string {
		block["headers"] = map[string]any{"x-life": life}
		return r.configure(otlpdata.Logs, map[string]any{"batcher": outage.batcher(wrapped, block, map[string]any{})})
	}
	r.startBatchingWith(configure("first"))
	before := otlpdata.Range{First: 1, Items: 10}
	r.sendOne(before)
	sent := func(items int) func(selfmetrics.Snapshot) bool {
		return func(s selfmetrics.Snapshot) bool { return s.Value("otelcol_exporter_sent_log_records", nil) == items }
	}
	r.waitFor(sent(before.Items))

	cut(w)
	r.sendOne(otlpdata.Range{First: 101, Items: 10})
	outage.wait()
	configure("second")
	took := r.reload()
	assert.LessOrEqual(t, took, reloadBound+r.busyMachine(), "until the collector was back")
	t.Logf("back after %v", took)

	after := otlpdata.Range{First: 201, Items: 20} // not as many as the first life has sent
	r.sendOne(after)
	w.connect()
	r.waitFor(sent(after.Items))
	last := r.stop()
	tally := backend.Tally(otlpdata.Logs)
	difference := tally.Compare([]otlpdata.Range{before, after})
	assert.True(t, difference.Empty(), "%v", difference)
	requireAccounts(t, last, otlpdata.Logs, after.Items, 0)
	lives := backend.Metadata()
	assert.Equal(t, []string{"first"}, lives[0].Get("x-life"))
	assert.Equal(t, []string{"second"}, lives[len(lives)-1].Get("x-life"))
}

// sendOne sends a request of logs. The connection is a new one: a reload closes others.
func (r *rig) sendOne(request otlpdata.Range) {
	r.t.Helper()
	c, err := client.Dial(client.HTTP, r.addresses["BATCHING_HTTP"])
	require.NoError(r.t, err)
	require.NoError(r.t, c.Send(r.t.Context(), otlpdata.Logs, request))
	require.NoError(r.t, c.Close())
}

// reload has the batching collector read its configuration again, and returns how long
// it took to be ready again.
func (r *rig) reload() time.Duration {
	r.t.Helper()
	lives := func() int { return strings.Count(r.batching.Output(), process.CollectorReady) }
	want := lives() + 1
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	began := time.Now()
	r.batching.Reload()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for lives() < want {
		select {
		case <-tick.C:
		case <-r.batching.Ended():
			require.Fail(r.t, "the collector ended instead of a reload")
		case <-ctx.Done():
			require.Fail(r.t, "the collector did not come back")
		}
	}
	return time.Since(began)
}
