// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"math"
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

// screen is how many lines somebody reads who is called up at night.
const screen = 50

// TestLogOfOutage has an outage with a full queue, in which requests are refused and
// batches are given up: the log tells all of it on one screen.
func TestLogOfOutage(t *testing.T) {
	t.Parallel()
	for _, wrapped := range []string{"otlp_grpc", "otlp_http"} {
		t.Run(wrapped, func(t *testing.T) {
			t.Parallel()
			testLogOfOutage(t, wrapped)
		})
	}
}

func testLogOfOutage(t *testing.T, wrapped string) {
	outage := newOutages(t, 15*time.Second, 2*time.Minute)
	r := newRig(t)
	_, w, block := withWire(t, wrapped)
	batcher := outage.batcher(wrapped, block, map[string]any{
		"sizer": "items", "queue_size": 2000,
		"batch": map[string]any{"min_size": 200, "max_size": 200, "flush_timeout": "50ms"},
	})
	// As long as some batches are given up, and the outage is not over with that.
	retries, ok := batcher["retry_on_failure"].(map[string]any)
	if !ok {
		retries = map[string]any{}
		batcher["retry_on_failure"] = retries
	}
	retries["max_elapsed_time"] = (outage.length / 4).String()
	r.startBatchingWith(r.configure(otlpdata.Logs, map[string]any{"batcher": batcher}),
		"yaml:service::telemetry::logs::encoding: json")

	c := r.dial(client.GRPC)
	end, ended := make(chan struct{}), make(chan *client.Outcome)
	load := client.Load{
		Signal: otlpdata.Logs, Items: math.MaxInt32, MaxItems: maxRequest, // with an end, it goes on after refusals
		Workers: workers, Pause: 5 * time.Millisecond, End: end,
	}
	go func() { ended <- load.Run(t.Context(), c) }()
	sentAbove := func(items int) {
		r.waitFor(func(s selfmetrics.Snapshot) bool { return s.Value("otelcol_exporter_sent_log_records", nil) > items })
	}
	sentAbove(500)
	w.refuse()
	outage.wait()
	r.waitFor(func(s selfmetrics.Snapshot) bool { return dropped(s, otlpdata.Logs, "*") > 0 && enqueueFailed(s) > 0 })
	sent := r.watch.Latest().Value("otelcol_exporter_sent_log_records", nil)
	w.connect()
	sentAbove(sent + 2000)
	close(end)
	outcome := <-ended
	last := r.stop()

	output := r.batching.Output()
	assert.Contains(t, output, "room again")
	assert.Regexp(t, "(takes|accepts) data again", output)
	lines, sums := readLog(t, output)
	assert.LessOrEqual(t, lines, screen)
	lost, refused := dropped(last, otlpdata.Logs, "*"), enqueueFailed(last)
	assert.Equal(t, lost, sums["dropped_items"], "dropped")
	assert.Equal(t, refused, sums["refused_items"], "refused")
	requireAccounts(t, last, otlpdata.Logs, outcome.Items(), lost)
	told := 0
	for _, request := range outcome.Failed {
		told += request.Items
	}
	assert.Equal(t, told, refused, "what clients were told")
	t.Logf("%d lines tell of %d items dropped and %d refused", lines, lost, refused)
}

func enqueueFailed(s selfmetrics.Snapshot) int {
	return s.Value("otelcol_exporter_enqueue_failed_log_records", nil)
}

// readLog counts the lines after a collector was ready, and adds up their numbers by
// name.
func readLog(t *testing.T, output string) (lines int, sums map[string]int) {
	t.Helper()
	_, after, ok := strings.Cut(output, process.CollectorReady)
	require.True(t, ok)
	sums = map[string]int{}
	for text := range strings.Lines(after[strings.Index(after, "\n")+1:]) {
		lines++
		var line map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &line), text)
		for name, value := range line {
			if number, ok := value.(float64); ok {
				sums[name] += int(number)
			}
		}
	}
	return lines, sums
}
