// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pullbatch/batcherexporter/internal/e2e/client"
	"github.com/pullbatch/batcherexporter/internal/e2e/process"
	"github.com/pullbatch/batcherexporter/internal/e2e/selfmetrics"
)

// TestPrometheusMetrics reads the metrics page of a collector that has items in its
// queue, under the names that dashboards use.
func TestPrometheusMetrics(t *testing.T) {
	r := newRig(t)
	address, err := process.FreeAddress()
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	r.env = append(r.env, "PROMETHEUS_PORT="+port)
	r.startBackend()
	r.startBatching("wrap_otlp_grpc.yaml", "prometheus.yaml")
	for signal, outcome := range r.sendAll(client.GRPC, maxItems+100) {
		require.NoError(t, outcome.Err, signal)
	}
	r.waitFor(func(s selfmetrics.Snapshot) bool { return s.Value("otelcol_exporter_batcher_batches", nil) == 3 })
	page := get(t, fmt.Sprintf("http://%s/metrics", address))
	for _, line := range []string{
		`otelcol_exporter_queue_size{data_type="logs",exporter="batcher"} `,
		`otelcol_exporter_queue_capacity{data_type="traces",exporter="batcher"} 1e+06`,
		`otelcol_exporter_queue_batch_send_size_count{exporter="batcher"} 3`,
		`otelcol_exporter_queue_batch_send_size_sum{exporter="batcher"} 1536`,
		`otelcol_exporter_batcher_accepted_items{data_type="metrics",exporter="batcher"} 612`,
		`otelcol_exporter_batcher_batches{data_type="logs",exporter="batcher",trigger="size"} 1`,
	} {
		assert.Contains(t, page, line)
	}
	r.stop()
}

func get(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	require.NoError(t, err)
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	return string(page)
}
