// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// A field case is something that users of queues and batchers have reported in
// public, as a test with numbers of the same class. A probe is what another
// batcher was seen to do, turned around. Where a case leaves a choice, the comment
// says which one this exporter makes.

// grow makes an item of simple data larger by about n bytes.
func grow(data any, item, n int) {
	text := strings.Repeat("x", n)
	switch d := data.(type) {
	case ptrace.Traces:
		d.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(item).Attributes().PutStr("text", text)
	case pmetric.Metrics:
		d.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Gauge().DataPoints().At(item).Attributes().PutStr("text", text)
	case plog.Logs:
		d.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(item).Attributes().PutStr("text", text)
	case pprofile.Profiles:
		d.ResourceProfiles().At(0).ScopeProfiles().At(0).Profiles().At(0).Samples().At(item).TimestampsUnixNano().FromRaw(make([]uint64, n/8))
	}
}

// A limit of 4 MiB, as gRPC receivers have it, turns a request of 5.3 MB into two
// that fit.
func TestFieldCase01_FourMiBLimitHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 4_194_304
		s := &sink{answer: func(_ context.Context, c *call) error {
			if c.bytes > limit {
				return consumererror.NewPermanent(fmt.Errorf("received message larger than max (%d vs. %d)", c.bytes, limit))
			}
			return nil
		}}
		r := startRig(t, kindTraces, s, "sending_queue: {batch: {sizer: bytes, min_size: 4194304, max_size: 4194304, flush_timeout: 200ms}}")
		data := kindTraces.simple(4725, 0)
		for i := range 4725 {
			grow(data, i, 1004)
		}
		require.InDelta(t, 5_297_928, kindTraces.bytes(data), 5000)
		r.mustSend(data)
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		assert.Len(t, r.calls(), 2)
		assert.Equal(t, sequence(0, 4725), sorted(r.ids()))
		require.NoError(t, r.stop())
		assert.Zero(t, r.metric("batcher_dropped_items"))
	})
}

// An item that is too large takes none of its neighbours down. It is handed over
// alone, the backend decides; with `oversize: drop` it is counted, and its caller
// gets a permanent error.
func TestFieldCase03_OversizedItemHurtsNoOther(t *testing.T) {
	const limit = 1_000_000
	for _, c := range []struct {
		name     string
		kB       []int // per item
		tooLarge []int64
	}{
		{"two of ten", []int{200, 400, 700, 300, 1200, 200, 300, 1000, 400, 500}, []int64{4, 7}}, // 1000 with its frame is too large
		{"one of ten", []int{200, 400, 700, 300, 1200, 200, 300, 990, 400, 500}, []int64{4}},
		{"first", []int{1200, 10, 10}, []int64{0}},
		{"last", []int{10, 10, 1200}, []int64{2}},
		{"two in a row", []int{10, 1200, 1300, 10}, []int64{1, 2}},
		{"all", []int{1200, 1200, 1200}, []int64{0, 1, 2}},
	} {
		for _, oversize := range []Oversize{OversizeSend, OversizeDrop} {
			t.Run(c.name+"/"+string(oversize), func(t *testing.T) {
				eachKind(t, func(t *testing.T, k kind) {
					r := startRig(t, k, &sink{}, fmt.Sprintf(
						"sending_queue: {wait_for_result: true, batch: {sizer: bytes, min_size: 0, max_size: %d, oversize: %s}}", limit, oversize))
					data := k.simple(len(c.kB), 0)
					for i, kB := range c.kB {
						grow(data, i, kB*1000)
					}
					err := r.send(data)
					synctest.Wait() // counted a moment after the caller is told

					want := sequence(0, int64(len(c.kB)))
					if oversize == OversizeDrop {
						want = slices.DeleteFunc(want, func(id int64) bool { return slices.Contains(c.tooLarge, id) })
						require.ErrorIs(t, err, errTooLarge)
						assert.True(t, consumererror.IsPermanent(err), "%v", err)
						assert.EqualValues(t, len(c.tooLarge), r.metric("batcher_dropped_items", reasonIs(dropTooLarge)))
					} else {
						require.NoError(t, err)
					}
					assert.Equal(t, want, sorted(r.ids()))
					for _, c := range r.taken() {
						assert.True(t, c.bytes <= limit || len(c.ids) == 1, "%d bytes with %d items", c.bytes, len(c.ids))
					}
				})
			})
		}
	}
}

// One large record among 4,552 is loud: a count with its reason, and a log line
// with its size, the limit and the signal, but one a minute at the most.
func TestFieldCase04_OversizedItemIsReported(t *testing.T) {
	const limit = 750_000
	for _, oversize := range []Oversize{OversizeSend, OversizeDrop} {
		inBubble(t, string(oversize), func(t *testing.T) {
			r := startRig(t, kindLogs, &sink{}, fmt.Sprintf("sending_queue: {batch: {sizer: bytes, min_size: 0, max_size: %d, oversize: %s}}", limit, oversize))
			request := func(items int) any {
				data := kindLogs.simple(items, 0)
				grow(data, items/2, 900_000)
				return data
			}
			r.mustSend(request(4553))
			synctest.Wait()
			above := 0
			for _, c := range r.taken() {
				if c.bytes > limit {
					above++
					assert.Equal(t, []int64{2276}, c.ids)
				}
			}
			if oversize == OversizeSend {
				assert.Len(t, r.ids(), 4553)
				assert.Equal(t, 1, above)
				assert.Zero(t, r.metric("batcher_dropped_items"))
			} else {
				assert.Len(t, r.ids(), 4552)
				assert.Zero(t, above)
				assert.EqualValues(t, 1, r.metric("batcher_dropped_items", reasonIs(dropTooLarge)))
			}

			lines := func() []map[string]any {
				var fields []map[string]any
				for _, e := range r.logged.FilterMessage("An item is larger than a batch may be.").All() {
					fields = append(fields, e.ContextMap())
				}
				return fields
			}
			require.Len(t, lines(), 1)
			assert.Greater(t, lines()[0]["item_bytes"], int64(900_000))
			assert.EqualValues(t, limit, lines()[0]["limit_bytes"])
			assert.Equal(t, "logs", lines()[0]["otelcol.signal"])
			assert.Equal(t, oversize == OversizeDrop, lines()[0]["dropped"])
			r.mustSend(request(1))
			synctest.Wait()
			require.Len(t, lines(), 1)
			time.Sleep(logInterval)
			r.mustSend(request(1))
			synctest.Wait()
			require.Len(t, lines(), 2)
			assert.EqualValues(t, 1, lines()[1]["not_logged_since"])
		})
	}
}

// Bytes bound a batch inside one fat resource too, and every piece has the
// resource and the scope.
func TestFieldCase10_OneFatResourceIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindLogs, &sink{keep: true}, "sending_queue: {num_consumers: 1, batch: {sizer: bytes, min_size: 1048576, max_size: 1048576}}")
		data := kindLogs.simple(10_000, 0)
		for i := range 10_000 {
			grow(data, i, 375)
		}
		require.InDelta(t, 500*10_000, kindLogs.bytes(data), 200_000)
		want := sorted(kindLogs.flatten(data))
		r.mustSend(data)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Contains(t, []int{5, 6}, len(r.taken()))
		for _, c := range r.taken() {
			assert.LessOrEqual(t, c.bytes, 1_048_576)
		}
		assert.Equal(t, sequence(0, 10_000), r.ids())
		assert.Equal(t, want, r.lines())
	})
}

// Ten records under a byte bound, one of them above it: the answer that the caller
// waits for is true either way.
func TestProbe08_CallerOfAnOversizedItem(t *testing.T) {
	for _, oversize := range []Oversize{OversizeSend, OversizeDrop} {
		inBubble(t, string(oversize), func(t *testing.T) {
			r := startRig(t, kindLogs, &sink{}, fmt.Sprintf(
				"sending_queue: {wait_for_result: true, batch: {sizer: bytes, min_size: 0, max_size: 1000, oversize: %s}}", oversize))
			data := kindLogs.simple(10, 0)
			grow(data, 4, 2000)
			err := r.send(data)
			if oversize == OversizeSend {
				require.NoError(t, err)
				assert.Equal(t, sequence(0, 10), sorted(r.ids()))
				return
			}
			require.ErrorIs(t, err, errTooLarge)
			assert.True(t, consumererror.IsPermanent(err), "%v", err)
			assert.Equal(t, []int64{0, 1, 2, 3, 5, 6, 7, 8, 9}, sorted(r.ids()))
		})
	}
}
