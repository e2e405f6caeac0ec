// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
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
)

// A batch that becomes full at the moment when its timer fires: neither waits for
// the other, nor does a stop for both.
func TestFieldCase56_SizeMeetsTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lasts = 2 * time.Second
		s := &sink{answer: func(_ context.Context, c *call) error {
			time.Sleep(time.Duration(c.ids[0]%3) * time.Millisecond)
			return nil
		}}
		r := startRig(t, kindLogs, s, "sending_queue: {batch: {min_size: 2, flush_timeout: 1ms}}")
		began := time.Now()
		var running sync.WaitGroup
		var next, accepted atomic.Int64
		for range 8 {
			running.Go(func() {
				for {
					if r.send(kindLogs.simple(1, next.Add(1))) != nil {
						return
					}
					accepted.Add(1)
					time.Sleep(time.Millisecond) // in step with the timer
				}
			})
		}
		time.Sleep(lasts)
		require.NoError(t, r.stop())
		assert.Less(t, time.Since(began)-lasts, time.Second)
		running.Wait()

		assert.Len(t, r.ids(), int(accepted.Load()))
		last := began
		for _, c := range r.calls() {
			assert.Less(t, c.began.Sub(last), 200*time.Millisecond)
			last = c.began
		}
	})
}

// trickle sends a request of one item every so often, and returns how old the
// oldest item of each batch was when it left.
func trickle(r *rig, every time.Duration, items int64) (ages []time.Duration) {
	began := time.Now()
	for i := range items {
		r.mustSend(r.kind.simple(1, i))
		time.Sleep(every)
	}
	synctest.Wait()
	for _, c := range r.calls() {
		ages = append(ages, c.began.Sub(began.Add(time.Duration(c.ids[0])*every)))
	}
	return ages
}

// taking is a sink whose calls last for some time.
func taking(d time.Duration) *sink {
	return &sink{answer: func(context.Context, *call) error {
		time.Sleep(d)
		return nil
	}}
}

// A window is per batch, and begins with its oldest item. So the item is as old as
// flush_timeout when it leaves, in the hundredth window as in the first.
func TestFieldCase81_WindowsDoNotDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindLogs, taking(300*time.Millisecond), "sending_queue: {batch: {flush_timeout: 60s}}")
		ages := trickle(r, 100*time.Millisecond, 100*601)
		require.Len(t, ages, 100)
		assert.Equal(t, slices.Repeat([]time.Duration{time.Minute}, 100), ages)
	})
}

// The time that an export takes is not added to the window.
func TestFieldCase82_WindowDoesNotIncludeTheExport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindLogs, taking(2*time.Second), "sending_queue: {num_consumers: 2, batch: {flush_timeout: 9s}}")
		ages := trickle(r, time.Second, 200)
		require.GreaterOrEqual(t, len(ages), 20)
		for i, c := range r.calls() {
			assert.Equal(t, 9*time.Second, ages[i])
			assert.Contains(t, []int{9, 10}, len(c.ids))
		}
	})
}

// With no min_size a flush_timeout of 0 is fine: requests are cut at once, without
// any timer. With a min_size it would be for ever, and is refused.
func TestFieldCase86_SplitOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindLogs, &sink{}, "sending_queue: {num_consumers: 1, batch: {min_size: 0, max_size: 10, flush_timeout: 0}}")
		goroutines := runtime.NumGoroutine()
		r.mustSend(kindLogs.simple(25, 0))
		synctest.Wait()
		assert.Equal(t, []int{10, 10, 5}, r.sizes())
		assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines+1, "the worker")
		q := r.exporter.Component.(*signalExporter[plog.Logs]).running.Load().queue
		assert.Nil(t, q.mu.timer)
	})
	_, err := rigConfig(t, "sending_queue: {batch: {min_size: 5, flush_timeout: 0}}")
	wantError(t, err, "`sending_queue::batch::flush_timeout`", "`sending_queue::batch::min_size`")
}
