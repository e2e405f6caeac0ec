// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pullbatch/batcherexporter/internal/e2e/client"
	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
	"github.com/pullbatch/batcherexporter/internal/e2e/selfmetrics"
)

// itemNames are how metrics name the items of a signal.
var itemNames = map[otlpdata.Signal]string{
	otlpdata.Traces: "spans", otlpdata.Logs: "log_records", otlpdata.Metrics: "metric_points",
}

// TestDelivery sends all signals through a batcher to the exporter that it wraps,
// and stops the collector: all that was accepted arrives, once, in full batches.
func TestDelivery(t *testing.T) {
	for _, wrapped := range []string{"otlp_grpc", "otlp_http", "file"} {
		t.Run(wrapped, func(t *testing.T) {
			forEachTransport(t, func(t *testing.T, transport client.Transport) { testDelivery(t, wrapped, transport) })
		})
	}
}

func testDelivery(t *testing.T, wrapped string, transport client.Transport) {
	r := newRig(t)
	written := r.written
	if wrapped == "file" {
		written = func(signal otlpdata.Signal) *otlpdata.Tally { return r.writtenTo(signal, "all.json") }
	} else {
		r.startBackend()
	}
	r.startBatching("wrap_" + wrapped + ".yaml")
	items := scaled(t, 20_000)
	outcomes := r.sendAll(transport, items)
	last := r.stop()
	for signal, outcome := range outcomes {
		require.NoError(t, outcome.Err, signal)
		require.Equal(t, items, outcome.Items(), signal)
		tally := written(signal)
		requireOnce(t, signal, outcome, tally)
		// The flush at the stop alone leaves what does not fill a batch.
		assert.GreaterOrEqual(t, tally.RequestsOf(maxItems), tally.Requests()-1, "%s: full batches", signal)
		requireTruthful(t, last, signal, tally)
	}
}

// requireTruthful checks the metrics of a collector that delivered everything.
func requireTruthful(t *testing.T, last selfmetrics.Snapshot, signal otlpdata.Signal, tally *otlpdata.Tally) {
	t.Helper()
	ours := selfmetrics.Match{"exporter": "batcher", "data_type": string(signal)}
	items := itemNames[signal]
	assert.Equal(t, tally.Items(), last.Value("otelcol_receiver_accepted_"+items, nil), "%s: received", signal)
	assert.Equal(t, tally.Items(), last.Value("otelcol_exporter_sent_"+items, nil), "%s: sent", signal)
	assert.Zero(t, last.Value("otelcol_exporter_send_failed_"+items, nil), "%s: failed", signal)
	assert.Zero(t, last.Value("otelcol_exporter_batcher_dropped_items", ours), "%s: dropped", signal)
	assert.Equal(t, tally.Requests(), last.Value("otelcol_exporter_batcher_batches", ours), "%s: batches", signal)
}

// TestPartialBatchLeavesByTimeout sends less than a batch, and waits for it without
// stopping anything.
func TestPartialBatchLeavesByTimeout(t *testing.T) {
	r := newRig(t)
	r.startBackend()
	r.startBatching("wrap_otlp_grpc.yaml", "short_timeout.yaml")
	outcomes := r.sendAll(client.GRPC, 100)
	for signal, outcome := range outcomes {
		require.NoError(t, outcome.Err, signal)
		sent := "otelcol_exporter_sent_" + itemNames[signal]
		r.waitFor(func(s selfmetrics.Snapshot) bool { return s.Value(sent, nil) == 100 })
	}
	last := r.stop()
	byTimeout := selfmetrics.Match{"exporter": "batcher", "trigger": "timeout"}
	assert.Equal(t, last.Value("otelcol_exporter_batcher_batches", nil), last.Value("otelcol_exporter_batcher_batches", byTimeout))
	for signal, outcome := range outcomes {
		requireOnce(t, signal, outcome, r.written(signal))
	}
}
