// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/pullbatch/batcherexporter/internal/payload"
)

// Memory: what is live is what the account says, pieces exist only while they can
// be sent, and what is settled is let go of.

// countingSignal counts the pieces that are cut.
type countingSignal struct {
	fakeSignal
	cut *atomic.Int64
}

func (s countingSignal) Cut(l *load, ix *payload.Index, from, to int) *load {
	s.cut.Add(1)
	return s.fakeSignal.Cut(l, ix, from, to)
}

// A huge request never stands in memory as a thousand pieces: one is cut when it
// can be sent, so at any moment there are as many as there are slots.
func TestInvariant_MemoryOfPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, pieces = 3, 1000
		var cut, ended atomic.Int64
		var mu sync.Mutex
		most := int64(0)
		set := hundreds
		set.slots = slots
		p := &pushes{answer: func(context.Context, int, []int) error {
			mu.Lock()
			most = max(most, cut.Load()-ended.Load())
			mu.Unlock()
			time.Sleep(time.Second)
			ended.Add(1)
			return nil
		}}
		s := fakeSender(set, configretry.BackOffConfig{}, p)
		s.q.signal = countingSignal{cut: &cut}
		defer s.stop()
		offer(t, s, 0, 100*pieces)
		require.NoError(t, s.q.flush(t.Context()))
		assert.EqualValues(t, pieces, cut.Load())
		assert.LessOrEqual(t, most, int64(slots))
	})
}

// While the backend is away, as many again may wait out a backoff.
func TestInvariant_MemoryOfPiecesInBackoff(t *testing.T) {
	for _, slots := range []int{1, 3, 10} {
		synctest.Test(t, func(t *testing.T) {
			var cut atomic.Int64
			set := hundreds
			set.slots = slots
			p := &pushes{answer: func(context.Context, int, []int) error {
				time.Sleep(10 * time.Millisecond)
				return errAway
			}}
			s := fakeSender(set, steadyRetry, p)
			s.q.signal = countingSignal{cut: &cut}
			defer s.stop()
			offer(t, s, 0, 100_000)
			runFor(time.Minute)
			assert.LessOrEqual(t, cut.Load(), int64(2*slots))
			assert.Greater(t, p.calls(), 10*slots, "they are tried again")
		})
	}
}

// What is settled is let go of, whole or cut, also while its partition is never
// empty, because of what lingers in it or of a batch that is held up.
func TestInvariant_MemoryOfSettledRequests(t *testing.T) {
	for name, tc := range map[string]struct {
		lingering, heldUp bool
		items             int
	}{
		"whole, one batch held up":  {heldUp: true, items: 100},
		"cut, one batch held up":    {heldUp: true, items: 300},
		"cut, there is always more": {lingering: true, items: 100},
	} {
		inBubble(t, name, func(t *testing.T) {
			gate := make(chan struct{})
			p := &pushes{answer: func(_ context.Context, call int, _ []int) error {
				if call == 1 && tc.heldUp {
					<-gate
				}
				return nil
			}}
			set := hundreds
			set.slots = 2
			s := fakeSender(set, configretry.BackOffConfig{}, p)
			defer s.stop()
			defer close(gate)
			if tc.heldUp {
				offer(t, s, 0, 100)
			}
			if tc.lingering {
				offer(t, s, 0, 50)
			}
			synctest.Wait()
			var offered []weak.Pointer[load]
			for range 100 {
				offered = append(offered, offerWeakly(t, s, tc.items))
				synctest.Wait()
			}
			runtime.GC()
			alive := 0
			for _, w := range offered {
				if w.Value() != nil {
					alive++
				}
			}
			assert.LessOrEqual(t, alive, 2, "requests in memory, while %d items are pending", s.q.account().pending)
		})
	}
}

// offerWeakly offers a request that nobody but the queue holds.
func offerWeakly(t *testing.T, s *sender[*load], items int) weak.Pointer[load] {
	t.Helper()
	l := numbers(0, items)
	_, err := s.q.offer(t.Context(), l)
	require.NoError(t, err)
	return weak.Make(l)
}

// Chunks serve again when they are used up: what the next requests get of them is
// empty.
func TestChunksServeAgain(t *testing.T) {
	set := hundreds
	set.capacity, set.slots, set.batch.maxItems, set.batch.minSize = 1_000_000, 1, 20*chunkEntries, 20*chunkEntries
	q := newQueue(set, payload.Signal[*load](fakeSignal{}), payload.Merger[*load](fakeMerger{}), func() {})
	defer q.abandon()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // two collections empty a pool
	for i := range 20 * chunkEntries {
		_, err := q.offer(t.Context(), numbers(i, 1))
		require.NoError(t, err)
	}
	var b batch[*load]
	require.NotNil(t, q.next(&b))
	q.form(&b)
	assert.Equal(t, numbers(0, 20*chunkEntries).ids, b.content.data.ids)
	again := 0
	for c := q.chunks.Get(); c != nil; c = q.chunks.Get() {
		used := c.(*chunk[*load])
		for i := range used.entries {
			assert.Zero(t, used.entries[i])
		}
		used.entries = nil
		assert.Zero(t, *used)
		again++
	}
	assert.Positive(t, again) // not all: with the race detector the pool forgets some
	assert.LessOrEqual(t, again, 19, "the first and the last may be others' too")
}

// With a backend that does not answer, the live heap grows with queue_size and
// not with what is offered, and when it answers again nothing is left of it.
func TestInvariant_MemoryIsBoundedByQueueSize(t *testing.T) {
	const (
		capacity = 2_000_000
		largest  = 200_000
		slots    = 4
		factor   = 8 // of a record in memory to its protobuf
	)
	eachKind(t, func(t *testing.T, k kind) {
		before := liveBytes()
		r := startRig(t, k, &sink{}, fmt.Sprintf(
			"sending_queue: {sizer: bytes, queue_size: %d, num_consumers: %d, batch: {sizer: bytes, min_size: %d, max_size: %[3]d, flush_timeout: 1s}}",
			capacity, slots, largest))
		r.hold()
		offered, refused := 0, 0
		for refused < 100 {
			data := k.simple(150, int64(offered))
			offered += k.bytes(data)
			if err := r.send(data); err != nil {
				require.ErrorIs(t, err, exporterhelper.ErrQueueIsFull)
				refused++
			}
		}
		synctest.Wait()
		assert.Greater(t, offered, capacity)
		held := liveBytes() - before
		assert.Less(t, held, int64(factor*(capacity+(slots+1)*largest)), "with %d bytes offered", offered)

		r.release()
		r.flush()
		synctest.Wait()
		assert.Less(t, liveBytes()-before, held/4, "after all was sent")
	})
}

// liveBytes is the size of the heap after a collection.
func liveBytes() int64 {
	runtime.GC()
	runtime.GC() // the pools let go at the second one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
