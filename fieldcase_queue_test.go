// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
)

// A request that is larger than the whole queue never waits for room that cannot
// come: it is refused for good, by name, and the next one gets in.
func TestFieldCase06_RequestLargerThanTheQueue(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := startRig(t, k, &sink{}, "sending_queue: {sizer: items, queue_size: 10, block_on_overflow: true}")
		began := time.Now()
		err := r.send(k.simple(11, 0))
		assert.Zero(t, time.Since(began))
		require.ErrorContains(t, err, "11 items can never fit a `queue_size` of 10")
		assert.True(t, consumererror.IsPermanent(err), "%v", err)
		assert.EqualValues(t, 11, r.metric("enqueue_failed_"+k.items))
		r.mustSend(k.simple(1, 11))
		r.flush()
		assert.Equal(t, []int64{11}, r.ids())
	})
}

// Callers that wait for the result of a batch do not keep it from filling: what
// they wait in holds no slot.
func TestFieldCase63_WaitingCallersDoNotStarveTheirBatch(t *testing.T) {
	for _, c := range []struct {
		callers      int
		flushTimeout string
		size         int
		takes        time.Duration
	}{
		{5, "1h", 20, 0},
		{4, "100ms", 16, 100 * time.Millisecond},
	} {
		inBubble(t, fmt.Sprintf("%d callers", c.callers), func(t *testing.T) {
			r := startRig(t, kindLogs, &sink{}, "sending_queue: {wait_for_result: true, num_consumers: 2, batch: {min_size: 19, flush_timeout: "+c.flushTimeout+"}}")
			began := time.Now()
			var callers sync.WaitGroup
			for i := range c.callers {
				callers.Go(func() {
					assert.NoError(t, r.send(kindLogs.simple(4, int64(4*i))))
					assert.Equal(t, c.takes, time.Since(began))
				})
			}
			callers.Wait()
			assert.Equal(t, []int{c.size}, r.sizes())
		})
	}
}

// Under load a batch is full, whatever the number of producers, of consumers and
// of processors.
func TestFieldCase84_BatchesReachTheirSize(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, processors := range []int{1, runtime.NumCPU()} {
		runtime.GOMAXPROCS(processors)
		for _, producers := range []int{1, 64} {
			for _, consumers := range []int{1, 10} {
				inBubble(t, fmt.Sprintf("processors=%d producers=%d consumers=%d", processors, producers, consumers), func(t *testing.T) {
					r := startRig(t, kindLogs, &sink{}, fmt.Sprintf(
						"sending_queue: {queue_size: 20000, num_consumers: %d, batch: {min_size: 1000, max_size: 1000, flush_timeout: 1s}}", consumers))
					var next atomic.Int64
					var running sync.WaitGroup
					for range producers {
						running.Go(func() {
							for id := next.Add(1) - 1; id < 10_000; id = next.Add(1) - 1 {
								assert.NoError(t, r.send(kindLogs.simple(1, id)))
							}
						})
					}
					running.Wait()
					synctest.Wait()
					assert.Equal(t, slices.Repeat([]int{1000}, 10), r.sizes())
					assert.Equal(t, sequence(0, 10_000), sorted(r.ids()))
				})
			}
		}
	}
}

// What lingers does not hold the capacity that others are refused: with a slot
// free it leaves when the queue is full, not at its timeout.
func TestFieldCase85_FullQueueEndsLinger(t *testing.T) {
	for _, block := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("block=%v", block), func(t *testing.T) {
			r := startRig(t, kindLogs, &sink{}, fmt.Sprintf(
				"sending_queue: {queue_size: 10, block_on_overflow: %v, batch: {min_size: 1000, flush_timeout: 2s}}", block))
			began := time.Now()
			for i := range int64(30) {
				r.mustSend(kindLogs.simple(1, i))
				time.Sleep(5 * time.Millisecond)
			}
			synctest.Wait()
			assert.Equal(t, 150*time.Millisecond, time.Since(began))
			require.NotEmpty(t, r.calls())
			assert.LessOrEqual(t, r.calls()[0].began.Sub(began), 60*time.Millisecond)
			r.flush()
			assert.Equal(t, sequence(0, 30), sorted(r.ids()))
		})
	}
}

// With the default queue and batches of the default size an idle backend is
// used: of 3,000 small requests none is refused, and none waits for the timer
// while others need its room.
func TestProbe01_DefaultQueueTakesABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindLogs, &sink{}, "sending_queue: {batch: {flush_timeout: 2s}}")
		for i := range int64(3000) {
			r.mustSend(kindLogs.simple(1, i))
			synctest.Wait()
		}
		assert.GreaterOrEqual(t, len(r.ids()), 2000)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, sequence(0, 3000), sorted(r.ids()))
		assert.Zero(t, r.metric("enqueue_failed_log_records"))
	})
}
