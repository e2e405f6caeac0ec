// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pullbatch/batcherexporter/internal/e2e/client"
	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
	"github.com/pullbatch/batcherexporter/internal/e2e/selfmetrics"
	"github.com/pullbatch/batcherexporter/internal/e2e/sink"
	"github.com/pullbatch/batcherexporter/internal/e2e/strict"
)

// What one refusal costs: what is refused, and nothing besides.

// TestLimitOfCompressedBytes has a server limit what arrives, compressed. One batch is
// above the limit, of a size at which others pass.
func TestLimitOfCompressedBytes(t *testing.T) {
	t.Parallel()
	const (
		batch     = 100
		bodyBytes = 2 << 10    // a batch has 200 kB, and about 100 compressed
		limit     = 30 << 10   // a quarter of it passes
		before    = 10         // batches that compress well, and as many
		after     = 4 * before // come after it
	)
	backend, err := sink.Listen()
	require.NoError(t, err)
	t.Cleanup(backend.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.ContentLength > limit {
			http.Error(w, "", http.StatusRequestEntityTooLarge)
			return
		}
		backend.ServeHTTP(w, request)
	}))
	t.Cleanup(server.Close)
	r := newRig(t)
	r.startBatchingWith(r.configure(otlpdata.Logs, map[string]any{"batcher": map[string]any{
		"exporter": map[string]any{"otlp_http": map[string]any{"endpoint": server.URL, "timeout": patience.String()}},
		"sending_queue": map[string]any{
			"num_consumers": 1, "queue_size": 10_000,
			"batch": map[string]any{"min_size": batch, "max_size": batch, "flush_timeout": "1h"},
		},
	}}))
	c := r.dial(client.GRPC)
	next, all := uint64(1), []otlpdata.Range{}
	send := func(batches int, alike bool) {
		for range 10 * batches {
			request := otlpdata.Range{First: next, Items: batch / 10, BodyBytes: bodyBytes, Alike: alike}
			require.NoError(t, c.Send(t.Context(), otlpdata.Logs, request))
			all = append(all, request)
			next += uint64(request.Items)
		}
	}
	send(before, true)
	send(1, false)
	send(after, true)
	r.waitSettled(batch * (before + 1 + after))
	last := r.stop()
	tally := backend.Tally(otlpdata.Logs)
	difference := tally.Compare(all)
	assert.True(t, difference.Empty(), "%v", difference)
	requireAccounts(t, last, otlpdata.Logs, batch*(before+1+after), 0)
	assert.Positive(t, failedAttempts(last, otlpdata.Logs, "too_large"))
	sizes := tally.Sizes()
	t.Logf("%d requests: %v", len(sizes), sizes)
	for _, items := range sizes[len(sizes)-after/2:] {
		require.Equal(t, batch, items, "batches are full again after an odd refusal")
	}
}

// TestOneTextThatIsNotUTF8 has a backend whose library decodes nothing of a request if
// one text in it is not UTF-8.
func TestOneTextThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	const records, perRequest, bad = 1000, 50, 437
	server, err := strict.Listen()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	r := newRig(t)
	r.startBatchingWith(r.configure(otlpdata.Logs, map[string]any{"batcher": map[string]any{
		"exporter": map[string]any{"otlp_grpc": map[string]any{
			"endpoint": server.Address(), "tls": insecure, "timeout": patience.String(),
		}},
		"sending_queue": map[string]any{
			"sizer": "items", "queue_size": 5 * records,
			"batch": map[string]any{"min_size": records, "max_size": records, "flush_timeout": "1h"},
		},
	}}))
	want := map[string]int{}
	for first := 0; first < records; first += perRequest {
		data := otlpdata.NewLogs(otlpdata.Range{First: uint64(first + 1), Items: perRequest})
		for i, record := range data.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
			body := fmt.Sprintf("record %d", first+i)
			if first+i == bad {
				body = "caf\xe9 in latin-1"
			} else {
				want[body] = 1
			}
			record.Body().SetStr(body)
		}
		encoded, err := plogotlp.NewExportRequestFromLogs(data).MarshalProto()
		require.NoError(t, err)
		r.post(otlpdata.Logs, encoded)
	}
	r.waitSettled(records)
	last := r.stop()
	server.Close()
	assert.Equal(t, want, server.Bodies())
	requireAccounts(t, last, otlpdata.Logs, records, 1)
}

// post sends a request as it is to the batching collector, which must take it.
func (r *rig) post(signal otlpdata.Signal, encoded []byte) {
	r.t.Helper()
	url := fmt.Sprintf("http://%s/v1/%s", r.addresses["BATCHING_HTTP"], signal)
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, url, bytes.NewReader(encoded))
	require.NoError(r.t, err)
	request.Header.Set("Content-Type", "application/x-protobuf")
	answer, err := http.DefaultClient.Do(request)
	require.NoError(r.t, err)
	require.NoError(r.t, answer.Body.Close())
	require.Equal(r.t, http.StatusOK, answer.StatusCode)
}

// TestMissingService sends metrics to a server that takes only logs, beside one that
// takes them, as somebody does who enables all signals at once: clients do not notice,
// since a plain exporter would have dropped what the first refuses.
func TestMissingService(t *testing.T) {
	t.Parallel()
	const requests = 1500 // more than the default of `queue_size`
	server, err := strict.Listen()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	r := newRig(t)
	good := withSink(t, r)
	otlp := func(address string) map[string]any {
		return map[string]any{"otlp_grpc": map[string]any{"endpoint": address, "tls": insecure}}
	}
	r.startBatchingWith(r.configure(otlpdata.Metrics, map[string]any{
		"batcher/bad": map[string]any{"exporter": otlp(server.Address())},
		// A machine may be so busy that the default, too, is full now and then.
		"batcher/good": map[string]any{"exporter": otlp(good.Address()), "sending_queue": map[string]any{"queue_size": requests}},
	}))
	outcome := client.Load{Signal: otlpdata.Metrics, Items: requests, MaxItems: 1, Workers: 1}.Run(t.Context(), r.dial(client.HTTP))
	require.NoError(t, outcome.Err)
	require.Equal(t, requests, outcome.Items())
	last := r.stop()
	good.Close()
	difference := good.Tally(otlpdata.Metrics).Compare(outcome.Accepted)
	assert.True(t, difference.Empty(), "%v", difference)
	bad, ours := selfmetrics.Match{"exporter": "batcher/bad"}, selfmetrics.Match{"exporter": "batcher/good"}
	assert.Equal(t, requests, last.Value("otelcol_exporter_sent_metric_points", ours))
	assert.Equal(t, requests, last.Value("otelcol_exporter_batcher_dropped_items", bad))
	assert.Zero(t, last.Value("otelcol_exporter_enqueue_failed_metric_points", nil))
}

// TestOneRefusedByProxy has a proxy answer 403 for one record: a firewall that takes it
// for an attack. With one consumer, nothing else can overtake the batch that it is in.
func TestOneRefusedByProxy(t *testing.T) {
	t.Parallel()
	const batch, batches, poisoned = 10, 60, 314
	pace := newOutages(t, 0, 0)
	r := newRig(t)
	backend, _, block := withWire(t, "otlp_http")
	backend.RefuseIf(func(request *otlpdata.Tally) error {
		if request.Has(poisoned) {
			return status.Error(codes.PermissionDenied, "blocked")
		}
		return nil
	})
	r.startBatchingWith(r.configure(otlpdata.Logs, map[string]any{
		"batcher": pace.batcher("otlp_http", block, map[string]any{
			"num_consumers": 1,
			"batch":         map[string]any{"min_size": batch, "max_size": batch, "flush_timeout": "1h"},
		}),
	}))
	outcome := r.send(client.Load{Signal: otlpdata.Logs, Items: batch * batches, MaxItems: batch, Workers: 1})
	require.NoError(t, outcome.Err)
	began := time.Now()
	r.waitFor(func(s selfmetrics.Snapshot) bool {
		return s.Value("otelcol_exporter_sent_log_records", nil) >= batch*(batches-1)
	})
	t.Logf("the other batches have arrived after %v", time.Since(began))
	// It is no use to keep what others show to be refused for its content.
	r.waitSettled(batch * batches)
	last := r.stop()
	difference := backend.Tally(otlpdata.Logs).Compare(outcome.Accepted)
	assert.Equal(t, otlpdata.Difference{Missing: []uint64{poisoned}}, difference)
	requireAccounts(t, last, otlpdata.Logs, batch*batches, 1)
}
