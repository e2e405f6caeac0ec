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
	"go.opentelemetry.io/collector/pdata/pprofile"

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
type unlocked[T any] struct {
	payload.Signal[T]
	t     *testing.T
	q     *queue[T]
	calls map[string]int
}

func (u *unlocked[T]) check(method string) {
	u.calls[method]++
	if assert.True(u.t, u.q.mu.TryLock(), "the queue's lock is held in %s", method) {
		u.q.mu.Unlock()
	}
}

func (u *unlocked[T]) Items(data T) int {
	u.check("Items")
	return u.Signal.Items(data)
}

func (u *unlocked[T]) Bytes(data T) int {
	u.check("Bytes")
	return u.Signal.Bytes(data)
}

func (u *unlocked[T]) Cost(data T, limit int) int {
	u.check("Cost")
	return u.Signal.Cost(data, limit)
}

// Index may be made under the lock for a small request at the boundary of a batch,
// at most once per batch: an index for every small request would cost more. Small
// means that it takes little whatever the request holds, so it has few items, few
// bytes, and no dictionary; and of one item nothing can be cut.
func (u *unlocked[T]) Index(data T, bytes bool, limit int) *payload.Index {
	items := u.Signal.Items(data)
	if items == 1 || items > indexAbove || u.Signal.Bytes(data) > indexAboveBytes || !u.ExactCost() {
		u.check("Index")
	}
	return u.Signal.Index(data, bytes, limit)
}

func (u *unlocked[T]) Cut(data T, ix *payload.Index, from, to int) T {
	u.check("Cut")
	return u.Signal.Cut(data, ix, from, to)
}

// unlockedMerger is unlocked for merging.
type unlockedMerger[T any] struct {
	payload.Merger[T]
	u *unlocked[T]
}

type unlockedBatch[T any] struct {
	payload.Batch[T]
	u *unlocked[T]
}

func (m unlockedMerger[T]) Begin(ordered bool) payload.Batch[T] {
	return unlockedBatch[T]{m.Merger.Begin(ordered), m.u}
}

func (b unlockedBatch[T]) Add(data T) {
	b.u.check("Add")
	b.Batch.Add(data)
}

// passUnlocked sends items through a queue, in requests of some items each, and
// returns how often the data was touched.
func passUnlocked[T any](t *testing.T, k kind, signal payload.Signal[T], limit int64, items, perRequest int, request func(first int) any) map[string]int {
	t.Helper()
	u := &unlocked[T]{Signal: signal, t: t, calls: map[string]int{}}
	set := queueSettings{
		unit: unitBytes, capacity: 1 << 40, slots: 1,
		batch: batchSettings{unit: unitBytes, minSize: limit, maxBytes: limit, flushTimeout: time.Hour},
	}
	u.q = newQueue(set, payload.Signal[T](u), payload.Merger[T](unlockedMerger[T]{u.NewMerger(true), u}), func() {})
	defer u.q.abandon()
	for first := 0; first < items; first += perRequest {
		_, err := u.q.offer(t.Context(), request(first).(T))
		require.NoError(t, err)
	}
	u.q.beginFlush()
	var ids []int64
	for {
		u.q.mu.Lock()
		b := u.q.tryNextLocked(&batch[T]{})
		u.q.mu.Unlock()
		if b == nil {
			break
		}
		u.q.form(b)
		ids = append(ids, k.ids(b.content.data)...)
		u.q.settle(b, outcome{sent: b.items})
	}
	assert.Equal(t, sequence(0, int64(len(ids))), ids)
	assert.GreaterOrEqual(t, len(ids), items)
	return u.calls
}

// The lock is free while data is sized, cut and merged, so producers and workers
// do that at the same time on as many processors as there are. How items per
// second grow with the producers is for the benchmarks.
func TestFieldCase26_NoLockWhileDataIsTouched(t *testing.T) {
	for _, items := range []int{1, 10, indexAbove, indexAbove + 1, 5000} {
		t.Run(fmt.Sprintf("requests of %d", items), func(t *testing.T) {
			calls := passUnlocked(t, kindLogs, payload.Logs(), 1<<16, 10_000, items, func(first int) any {
				return kindLogs.simple(items, int64(first))
			})
			sizing := "Cost"
			if items > indexAbove {
				sizing = "Index"
			}
			for _, method := range []string{"Items", sizing, "Add"} {
				assert.Positive(t, calls[method], method)
			}
			assert.Equal(t, items > 1, calls["Cut"] > 0)
		})
	}
}

// Few items can be as much work as many: what holds the lock up is what they hold.
func TestFieldCase26_NoLockWhileLargeItemsAreTouched(t *testing.T) {
	for _, items := range []int{1, 2, 100} {
		t.Run(fmt.Sprintf("requests of %d records of many values", items), func(t *testing.T) {
			calls := passUnlocked(t, kindLogs, payload.Logs(), 100_000, 200, items, func(first int) any {
				data := kindLogs.simple(items, int64(first))
				for _, rl := range data.(plog.Logs).ResourceLogs().All() {
					for _, rec := range rl.ScopeLogs().At(0).LogRecords().All() {
						list := rec.Attributes().PutEmptySlice("list")
						for range 4200 {
							list.AppendEmpty().SetInt(1)
						}
					}
				}
				return data
			})
			assert.Equal(t, items > 1, calls["Index"] > 0)
			assert.Equal(t, items > 1, calls["Cut"] > 0)
		})
	}
	for _, items := range []int{1, 10} {
		t.Run(fmt.Sprintf("profiles of %d samples with a dictionary", items), func(t *testing.T) {
			calls := passUnlocked(t, kindProfiles, payload.Profiles(), 5_000_000, 3*items, items, func(first int) any {
				data := kindProfiles.simple(items, int64(first))
				dic := data.(pprofile.Profiles).Dictionary()
				location := dic.LocationTable().At(dic.LocationTable().Len() - 1)
				location.AttributeIndices().FromRaw(make([]int32, 3_500_000))
				return data
			})
			assert.Positive(t, calls["Index"])
		})
	}
}
