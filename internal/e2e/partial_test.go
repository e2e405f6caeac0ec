// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"

	"github.com/pullbatch/batcherexporter/internal/e2e/client"
	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
	"github.com/pullbatch/batcherexporter/internal/e2e/selfmetrics"
)

const (
	partialItems    = 10 // of each request
	partialRejected = 3  // of those
	partialRequests = 20
)

// TestPartialSuccess has OTLP servers take each request and reject some of its
// items. That is a success to the exporters, so that only a metric tells of it, and
// a line of the log now and then.
func TestPartialSuccess(t *testing.T) {
	r := newRig(t)
	exporters := map[string]any{
		"batcher/grpc": partialBatcher(otlpGRPC(partialGRPC(t), insecure)),
		"batcher/http": partialBatcher(otlpHTTP(partialHTTP(t))),
	}
	r.startBatchingWith(r.partialConfig(exporters))
	c := r.dial(client.GRPC)
	for _, signal := range otlpdata.Signals() {
		for n := range uint64(partialRequests) {
			require.NoError(t, c.Send(t.Context(), signal, otlpdata.Range{First: 1 + n*partialItems, Items: partialItems}))
		}
	}
	rejected := func(s selfmetrics.Snapshot, exporter string, signal otlpdata.Signal) int {
		return s.Value("otelcol_exporter_batcher_rejected_items", selfmetrics.Match{"exporter": exporter, "data_type": string(signal)})
	}
	r.waitFor(func(s selfmetrics.Snapshot) bool {
		for exporter := range exporters {
			for _, signal := range otlpdata.Signals() {
				if rejected(s, exporter, signal) < partialRequests*partialRejected {
					return false
				}
			}
		}
		return true
	})
	last := r.stop()
	for exporter := range exporters {
		for _, signal := range otlpdata.Signals() {
			assert.Equal(t, partialRequests*partialRejected, rejected(last, exporter, signal), "%s of %s", signal, exporter)
		}
	}
	output := r.batching.Output()
	assert.Contains(t, output, "The backend rejected items of requests that it took.")
	assert.Contains(t, output, "too old")
	assert.NotContains(t, output, "Partial success response", "a line for each request")
}

// partialBatcher sends each request alone, so that the number of calls is known.
func partialBatcher(wrapped map[string]any) map[string]any {
	return map[string]any{
		"exporter":      wrapped,
		"sending_queue": map[string]any{"batch": map[string]any{"min_size": partialItems, "max_size": partialItems}},
	}
}

// partialConfig writes the configuration of a collector that sends every signal to
// all of the exporters.
func (r *rig) partialConfig(exporters map[string]any) string {
	r.t.Helper()
	names := make([]string, 0, len(exporters))
	for name := range exporters {
		names = append(names, name)
	}
	pipelines := map[string]any{}
	for _, signal := range otlpdata.Signals() {
		pipelines[string(signal)] = map[string]any{"receivers": []string{"otlp"}, "exporters": names}
	}
	config, err := json.MarshalIndent(map[string]any{
		"receivers": map[string]any{"otlp": map[string]any{"protocols": map[string]any{
			"grpc": map[string]any{"endpoint": r.addresses["BATCHING_GRPC"]},
		}}},
		"exporters": exporters,
		"service":   map[string]any{"pipelines": pipelines},
	}, "", "  ")
	require.NoError(r.t, err)
	path := filepath.Join(r.dir, "partial.yaml") // JSON is YAML
	require.NoError(r.t, os.WriteFile(path, config, 0o600))
	return path
}

func partialLogs() plogotlp.ExportResponse {
	response := plogotlp.NewExportResponse()
	response.PartialSuccess().SetRejectedLogRecords(partialRejected)
	response.PartialSuccess().SetErrorMessage("too old")
	return response
}

func partialTraces() ptraceotlp.ExportResponse {
	response := ptraceotlp.NewExportResponse()
	response.PartialSuccess().SetRejectedSpans(partialRejected)
	response.PartialSuccess().SetErrorMessage("too old")
	return response
}

func partialMetrics() pmetricotlp.ExportResponse {
	response := pmetricotlp.NewExportResponse()
	response.PartialSuccess().SetRejectedDataPoints(partialRejected)
	response.PartialSuccess().SetErrorMessage("too old")
	return response
}

type partialLogsServer struct {
	plogotlp.UnimplementedGRPCServer
}

func (*partialLogsServer) Export(context.Context, plogotlp.ExportRequest) (plogotlp.ExportResponse, error) {
	return partialLogs(), nil
}

type partialTracesServer struct {
	ptraceotlp.UnimplementedGRPCServer
}

func (*partialTracesServer) Export(context.Context, ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	return partialTraces(), nil
}

type partialMetricsServer struct {
	pmetricotlp.UnimplementedGRPCServer
}

func (*partialMetricsServer) Export(context.Context, pmetricotlp.ExportRequest) (pmetricotlp.ExportResponse, error) {
	return partialMetrics(), nil
}

// partialGRPC returns the address of a gRPC server that takes a part of everything.
func partialGRPC(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	plogotlp.RegisterGRPCServer(server, &partialLogsServer{})
	ptraceotlp.RegisterGRPCServer(server, &partialTracesServer{})
	pmetricotlp.RegisterGRPCServer(server, &partialMetricsServer{})
	go func() { _ = server.Serve(listener) }() // ends with Stop
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// partialHTTP returns the URL of an HTTP server that takes a part of everything.
func partialHTTP(t *testing.T) string {
	mux := http.NewServeMux()
	answer := func(path string, marshal func() ([]byte, error)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			body, err := marshal()
			if err != nil {
				w.WriteHeader(http.StatusTeapot)
				return
			}
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write(body)
		})
	}
	answer("/v1/logs", partialLogs().MarshalProto)
	answer("/v1/traces", partialTraces().MarshalProto)
	answer("/v1/metrics", partialMetrics().MarshalProto)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}
