// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/pullbatch/batcherexporter/internal/payload"
)

// livePieces is a signal that knows the pieces it has cut, by their first item,
// until somebody says that they are gone.
type livePieces struct {
	payload.Signal[plog.Logs]
	mu struct {
		sync.Mutex
		live map[int64]struct{}
		most int
	}
}

func (l *livePieces) Cut(data plog.Logs, ix *payload.Index, from, to int) plog.Logs {
	p := l.Signal.Cut(data, ix, from, to)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.live[kindLogs.ids(p)[0]] = struct{}{}
	l.mu.most = max(l.mu.most, len(l.mu.live))
	return p
}

func (l *livePieces) gone(ids []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.mu.live, func(id int64, _ struct{}) bool { return slices.Contains(ids, id) })
}

// liveHeap is what is in use after a collection.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Behind a slow backend, large requests are not turned into pieces that nobody
// can send: the heap stays within three times the queue, a quarter of the
// reported one here, at every second, and whoever has more is held up.
func TestFieldCase23_SlowBackendBoundsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const queueBytes, requestItems, seconds = 16 << 20, 5 << 10, 30 // requests of 5 MiB
		var slow atomic.Bool
		slow.Store(true)
		live := &livePieces{}
		live.mu.live = map[int64]struct{}{}
		s := &sink{answer: func(_ context.Context, c *call) error {
			if slow.Load() {
				time.Sleep(500 * time.Millisecond)
			}
			live.gone(c.ids)
			return nil
		}}
		r := newRig(t, kindLogs, s, fmt.Sprintf(
			"{drain_timeout: 10m, sending_queue: {sizer: bytes, queue_size: %d, num_consumers: 2, block_on_overflow: true, batch: {min_size: 65536, max_size: 65536}}}", queueBytes))
		e := r.exporter.Component.(*signalExporter[plog.Logs])
		live.Signal = e.signal.payload
		e.signal.payload = live
		r.start()

		request := func(first int64) any {
			data := kindLogs.simple(requestItems, first)
			for i := range requestItems {
				grow(data, i, 900)
			}
			return data
		}
		before := liveHeap()
		accepted := int64(0)
		ctx, cancel := context.WithCancel(t.Context())
		var producer sync.WaitGroup
		producer.Go(func() {
			for r.exporter.consume(ctx, request(accepted)) == nil {
				accepted += requestItems
			}
		})
		for range seconds {
			time.Sleep(time.Second)
			synctest.Wait()
			require.Less(t, liveHeap()-before, int64(3*queueBytes))
		}
		cancel()
		producer.Wait()
		assert.LessOrEqual(t, accepted, int64(6*requestItems), "accepted faster than sent")
		assert.GreaterOrEqual(t, accepted, int64(3*requestItems))
		slow.Store(false)
		require.NoError(t, r.stop())
		assert.Equal(t, sequence(0, accepted), sorted(r.ids()))
		assert.LessOrEqual(t, live.mu.most, 2+1, "pieces alive at the same time")
	})
}

// num_consumers bounds the calls into the wrapped exporter exactly, and nothing
// else waits in a goroutine.
func TestFieldCase24_NumConsumersIsExact(t *testing.T) {
	for name, requests := range map[string]int64{"requests": 1000, "pieces of one request": 1} {
		inBubble(t, name, func(t *testing.T) {
			r := startRig(t, kindLogs, &sink{}, "sending_queue: {num_consumers: 10, batch: {min_size: 1, max_size: 1}}")
			goroutines := runtime.NumGoroutine()
			r.hold()
			for i := range requests {
				r.mustSend(kindLogs.simple(int(1000/requests), i))
			}
			synctest.Wait()
			assert.Len(t, r.calls(), 10)
			assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines+10)
			r.release()
			synctest.Wait()
			assert.Equal(t, 10, r.mu.most)
			assert.Equal(t, sequence(0, 1000), sorted(r.ids()))
		})
	}
}

// unlocked is a signal whose methods fail the test if the queue's lock is held
// when they run. All runs in one goroutine, so whoever holds it is the caller.
type unlocked struct {
	payload.Signal[plog.Logs]
	t     *testing.T
	q     *queue[plog.Logs]
	calls map[string]int
}

func (u *unlocked) check(method string) {
	u.calls[method]++
	if assert.True(u.t, u.q.mu.TryLock(), "the queue's lock is held in %s", method) {
		u.q.mu.Unlock()
	}
}

func (u *unlocked) Items(data plog.Logs) int {
	u.check("Items")
	return u.Signal.Items(data)
}

func (u *unlocked) Bytes(data plog.Logs) int {
	u.check("Bytes")
	return u.Signal.Bytes(data)
}

func (u *unlocked) Cost(data plog.Logs, limit int) int {
	u.check("Cost")
	return u.Signal.Cost(data, limit)
}

// Index may be made under the lock for a small request at the boundary of a batch,
// at most once per batch: an index for every small request would cost more.
func (u *unlocked) Index(data plog.Logs, bytes bool, limit int) *payload.Index {
	if data.LogRecordCount() > indexAbove {
		u.check("Index")
	}
	return u.Signal.Index(data, bytes, limit)
}

func (u *unlocked) Cut(data plog.Logs, ix *payload.Index, from, to int) plog.Logs {
	u.check("Cut")
	return u.Signal.Cut(data, ix, from, to)
}

// unlockedMerger is unlocked for merging.
type unlockedMerger struct {
	payload.Merger[plog.Logs]
	u *unlocked
}

type unlockedBatch struct {
	payload.Batch[plog.Logs]
	u *unlocked
}

func (m unlockedMerger) Begin(ordered bool) payload.Batch[plog.Logs] {
	return unlockedBatch{m.Merger.Begin(ordered), m.u}
}

func (b unlockedBatch) Add(data plog.Logs) {
	b.u.check("Add")
	b.Batch.Add(data)
}

// The lock is free while data is sized, cut and merged, so producers and workers
// do that at the same time on as many processors as there are. How items per
// second grow with the producers is for the benchmarks.
func TestFieldCase26_NoLockWhileDataIsTouched(t *testing.T) {
	for _, items := range []int{1, 10, indexAbove, indexAbove + 1, 5000} {
		t.Run(fmt.Sprintf("requests of %d", items), func(t *testing.T) {
			const limit = 1 << 16
			u := &unlocked{Signal: payload.Logs(), t: t, calls: map[string]int{}}
			set := queueSettings{
				unit: unitBytes, capacity: 1 << 40, slots: 1,
				batch: batchSettings{unit: unitBytes, minSize: limit, maxBytes: limit, flushTimeout: time.Hour},
			}
			u.q = newQueue(set, payload.Signal[plog.Logs](u), payload.Merger[plog.Logs](unlockedMerger{u.NewMerger(true), u}), func() {})
			defer u.q.abandon()
			for first := 0; first < 10_000; first += items {
				_, err := u.q.offer(t.Context(), kindLogs.simple(items, int64(first)).(plog.Logs))
				require.NoError(t, err)
			}
			u.q.beginFlush()
			var ids []int64
			for {
				u.q.mu.Lock()
				b := u.q.tryNextLocked(&batch[plog.Logs]{})
				u.q.mu.Unlock()
				if b == nil {
					break
				}
				u.q.form(b)
				ids = append(ids, kindLogs.ids(b.content.data)...)
				u.q.settle(b, outcome{sent: b.items})
			}
			assert.Equal(t, sequence(0, int64(len(ids))), ids)
			assert.GreaterOrEqual(t, len(ids), 10_000)
			sizing := "Cost"
			if items > indexAbove {
				sizing = "Index"
			}
			for _, method := range []string{"Items", sizing, "Add"} {
				assert.Positive(t, u.calls[method], method)
			}
			assert.Equal(t, items > 1, u.calls["Cut"] > 0)
		})
	}
}
