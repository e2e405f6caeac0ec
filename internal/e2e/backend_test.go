// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pullbatch/batcherexporter/internal/e2e/client"
	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
	"github.com/pullbatch/batcherexporter/internal/e2e/selfmetrics"
	"github.com/pullbatch/batcherexporter/internal/e2e/sink"
)

// withSink makes a sink the backend of the rig.
func withSink(t *testing.T, r *rig) *sink.Sink {
	s, err := sink.Listen()
	require.NoError(t, err)
	t.Cleanup(s.Close)
	r.addresses["BACKEND_GRPC"] = s.Address()
	return s
}

// TestBackendStartsLate has the batcher wait for its backend.
func TestBackendStartsLate(t *testing.T) {
	for _, wrapped := range []string{"otlp_grpc", "otlp_http"} {
		t.Run(wrapped, func(t *testing.T) {
			r := newRig(t)
			r.startBatching("wrap_" + wrapped + ".yaml")
			outcomes := r.sendAll(client.GRPC, scaled(t, 2_000))
			for signal, outcome := range outcomes {
				require.NoError(t, outcome.Err, signal)
			}
			failed := func(s selfmetrics.Snapshot) bool { return s.Value("otelcol_exporter_batcher_failed_attempts", nil) > 0 }
			r.waitFor(failed)
			r.startBackend()
			last := r.stop()
			for signal, outcome := range outcomes {
				tally := r.written(signal)
				requireOnce(t, signal, outcome, tally)
				requireTruthful(t, last, signal, tally)
			}
		})
	}
}

// TestBackendRefusesForAWhile has some batches sent again.
func TestBackendRefusesForAWhile(t *testing.T) {
	r := newRig(t)
	backend := withSink(t, r)
	backend.Refuse(10, status.Error(codes.Unavailable, "overloaded"))
	r.startBatching("wrap_otlp_grpc.yaml")
	outcomes := r.sendAll(client.GRPC, scaled(t, 10_000))
	last := r.stop()
	backend.Close()
	for signal, outcome := range outcomes {
		require.NoError(t, outcome.Err, signal)
		tally := backend.Tally(signal)
		requireOnce(t, signal, outcome, tally)
		requireTruthful(t, last, signal, tally)
	}
	assert.Equal(t, 10, backend.Refused())
	assert.Equal(t, 10, last.Value("otelcol_exporter_batcher_failed_attempts", nil))
}

// TestFullQueue fills the queue while the backend takes nothing: clients are told,
// and only what was accepted arrives afterwards.
func TestFullQueue(t *testing.T) {
	forEachTransport(t, testFullQueue)
}

func testFullQueue(t *testing.T, transport client.Transport) {
	const queueSize = 2000 // in testdata/small_queue.yaml
	r := newRig(t)
	backend := withSink(t, r)
	backend.Refuse(math.MaxInt, status.Error(codes.Unavailable, "overloaded"))
	r.startBatching("wrap_otlp_grpc.yaml", "small_queue.yaml")
	outcomes := r.sendAll(transport, 2*queueSize)
	backend.Refuse(0, nil)
	r.stop()
	backend.Close()
	for signal, outcome := range outcomes {
		require.ErrorContains(t, outcome.Err, "queue is full", signal)
		assert.LessOrEqual(t, outcome.Items(), queueSize, signal)
		assert.Greater(t, outcome.Items(), queueSize-maxRequest, signal)
		requireOnce(t, signal, outcome, backend.Tally(signal))
	}
}

// TestEnvironmentValueStaysText gives the wrapped block a value from the
// environment that YAML would read as the octal number 83.
func TestEnvironmentValueStaysText(t *testing.T) {
	r := newRig(t)
	backend := withSink(t, r)
	r.env = append(r.env, "X_ID=0123")
	r.startBatching("wrap_otlp_grpc.yaml", "header.yaml")
	c := r.dial(client.GRPC)
	require.NoError(t, c.Send(t.Context(), otlpdata.Logs, otlpdata.Range{First: 1, Items: 1}))
	r.stop()
	require.Len(t, backend.Metadata(), 1)
	assert.Equal(t, []string{"0123"}, backend.Metadata()[0].Get("x-id"))
}
