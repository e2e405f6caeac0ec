// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package batcherexporter

import (
	"math"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
)

// tiny is a request of records of some twenty bytes.
func tiny(items int, first int64) plog.Logs {
	data := kindLogs.simple(items, first).(plog.Logs)
	data.ResourceLogs().At(0).Resource().Attributes().Clear()
	for _, rec := range data.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
		rec.Attributes().Clear()
		rec.Body().SetStr("twenty bytes of text")
	}
	return data
}

// tinies is so many of them, of one item each or as one.
func tinies(items int, asOne bool) []plog.Logs {
	if asOne {
		return []plog.Logs{tiny(items, 0)}
	}
	requests := make([]plog.Logs, items)
	for i := range requests {
		requests[i] = tiny(1, int64(i))
	}
	return requests
}

// processorTime is for how long this process has computed so far. Unlike the time
// that passes, it does not depend on who else uses the machine, nor on how long
// the system takes to hand out memory.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano())
}

// costOf sends requests and stops. It returns the allocations per item and the
// processor time that this took, without garbage collection.
func costOf(t *testing.T, batch string, requests []plog.Logs) (allocations float64, took time.Duration) {
	t.Helper()
	// This is in real time: on a busy machine the default of `drain_timeout` runs out.
	r := startRig(t, kindLogs, &sink{}, "{drain_timeout: 1h, sending_queue: {queue_size: 1000000, num_consumers: 1, batch: "+batch+"}}")
	var before, after runtime.MemStats
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.ReadMemStats(&before)
	began := processorTime(t)
	items := 0
	for _, data := range requests {
		items += data.LogRecordCount()
		r.mustSend(data)
	}
	require.NoError(t, r.exporter.Shutdown(t.Context()))
	took = processorTime(t) - began
	runtime.ReadMemStats(&after)
	require.NoError(t, r.stop())
	require.Len(t, r.ids(), items)
	return float64(after.Mallocs-before.Mallocs) / float64(items), took
}

// Cutting and merging cost as much per item for many items as for few. What grows
// with the square takes sixteen times as long for all items at once as for a
// sixteenth of them sixteen times; four times is allowed, for caches. Others who use
// the machine can take caches away and add to either side, so the best of a few
// comparisons counts: what grows with the square fails in each of them. How fast it
// is, is for the benchmarks.
func TestFieldCase25_CostIsLinear(t *testing.T) {
	const few, times, comparisons = 5_000, 16, 5
	for _, c := range []struct {
		name, batch string
		asOne       bool
	}{
		{"cut by items", "{min_size: 10, max_size: 10}", true},
		{"cut by bytes", "{sizer: bytes, min_size: 400, max_size: 400}", true},
		{"merge", "{min_size: 1000000, flush_timeout: 1h}", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			perItem, perTime := math.Inf(1), math.Inf(1)
			for range comparisons {
				var allocationsFew float64
				var tookFew time.Duration
				for range times {
					allocations, took := costOf(t, c.batch, tinies(few, c.asOne))
					allocationsFew = allocations
					tookFew += took
				}
				allocationsMany, tookMany := costOf(t, c.batch, tinies(times*few, c.asOne))
				perItem = min(perItem, allocationsMany/allocationsFew)
				perTime = min(perTime, float64(tookMany)/float64(tookFew))
				if perItem <= 1.2 && perTime <= 4 {
					return
				}
			}
			assert.LessOrEqual(t, perItem, 1.2, "allocations per item, of %d compared with %d", times*few, few)
			assert.LessOrEqual(t, perTime, 4.0, "time of %d items, compared with %d times %d", times*few, times, few)
		})
	}
}
