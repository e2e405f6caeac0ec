// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

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
