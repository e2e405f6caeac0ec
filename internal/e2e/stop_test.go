// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pullbatch/batcherexporter/internal/e2e/client"
	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
	"github.com/pullbatch/batcherexporter/internal/e2e/selfmetrics"
)

// TestStopUnderLoad stops the collector while clients send: what they were told is
// accepted arrives, and what they were told is not does not.
func TestStopUnderLoad(t *testing.T) {
	for range scaled(t, 1) {
		forEachTransport(t, testStopUnderLoad)
	}
}

func testStopUnderLoad(t *testing.T, transport client.Transport) {
	r := newRig(t)
	r.startBackend()
	r.startBatching("wrap_otlp_grpc.yaml")
	ended := make(chan map[otlpdata.Signal]*client.Outcome)
	go func() { ended <- r.sendAll(transport, 0) }()
	r.waitFor(func(s selfmetrics.Snapshot) bool {
		for _, items := range itemNames {
			if s.Value("otelcol_receiver_accepted_"+items, nil) < 2*maxItems {
				return false
			}
		}
		return true
	})
	last := r.stop()
	for signal, outcome := range <-ended {
		require.Error(t, outcome.Err, "%s: the load ends with the collector", signal)
		tally := r.written(signal)
		requireOnce(t, signal, outcome, tally)
		requireTruthful(t, last, signal, tally)
	}
}

// TestStopIdle stops a collector that has nothing to do.
func TestStopIdle(t *testing.T) {
	r := newRig(t)
	r.startBatching("wrap_otlp_grpc.yaml")
	r.stop()
}

// stopBound is the default of `drain_timeout`, and what ending things may take.
const stopBound = 22 * time.Second

// TestStopWithDeadBackends stops a collector whose three batchers have something to send
// that nobody takes: they stop one after the other, within the time of one.
func TestStopWithDeadBackends(t *testing.T) {
	t.Parallel()
	for how, cut := range cuts {
		for _, wrapped := range []string{"otlp_grpc", "otlp_http"} {
			t.Run(how+"/"+wrapped, func(t *testing.T) {
				t.Parallel()
				testStopWithDeadBackends(t, wrapped, cut)
			})
		}
	}
}

func testStopWithDeadBackends(t *testing.T, wrapped string, cut func(*wire)) {
	const batchers = 3
	r := newRig(t)
	exporters := map[string]any{}
	for n := range batchers {
		_, w, block := withWire(t, wrapped)
		cut(w)
		exporters[fmt.Sprintf("batcher/%d", n)] = map[string]any{"exporter": map[string]any{wrapped: block}}
	}
	r.startBatchingWith(r.configure(otlpdata.Logs, exporters))
	r.sendOne(otlpdata.Range{First: 1, Items: 10})
	r.waitFor(func(s selfmetrics.Snapshot) bool {
		return s.Value("otelcol_exporter_in_flight_requests", nil)+
			s.Value("otelcol_exporter_batcher_failed_attempts", nil) >= batchers
	})
	began := time.Now()
	last := r.stop() // which is an error if the exit status is not 0
	took := time.Since(began)
	assert.LessOrEqual(t, took, stopBound+r.busyMachine())
	assert.Equal(t, batchers*10, dropped(last, otlpdata.Logs, "shutdown"))
	t.Logf("stopped after %v", took)
}
