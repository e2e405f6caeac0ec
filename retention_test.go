// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A full queue lets its oldest data go for new data, also while every slot hangs:
// the newest is kept, in order, and what went is counted.
func TestRetention_DropOldest(t *testing.T) {
	for sizer, size := range map[string]string{"requests": "requests, queue_size: 5", "items": "items, queue_size: 10"} {
		inBubble(t, sizer, func(t *testing.T) {
			s := &sink{}
			r := startRig(t, kindLogs, s, `
sending_queue: {sizer: `+size+`, num_consumers: 1, drop_oldest_on_overflow: true, batch: {sizer: items, min_size: 0, max_size: 2, flush_timeout: 0s}}`)
			s.hold()
			for i := range int64(20) {
				r.mustSend(kindLogs.simple(2, 2*i))
				synctest.Wait()
			}
			a := r.exporter.account()
			assert.EqualValues(t, 30, a.dropped, "what hangs is not in the way: %+v", a)
			assert.EqualValues(t, 30, r.metric("batcher_dropped_items", reasonIs(dropEvicted)))
			s.release()
			time.Sleep(time.Minute)
			assert.Equal(t, append(sequence(0, 2), sequence(32, 8)...), s.ids(), "what hung, and the newest in order")
		})
	}
}

// The rest of a request whose first part is being sent goes too.
func TestRetention_DropOldestOfCutRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{}
		r := startRig(t, kindLogs, s, `
sending_queue: {sizer: items, queue_size: 10, num_consumers: 1, drop_oldest_on_overflow: true, batch: {min_size: 2, max_size: 2, flush_timeout: 1s}}`)
		s.hold()
		r.mustSend(kindLogs.simple(8, 0)) // 0 and 1 hang
		synctest.Wait()
		r.mustSend(kindLogs.simple(2, 8))
		r.mustSend(kindLogs.simple(2, 10))
		s.release()
		time.Sleep(time.Minute)
		assert.Equal(t, []int64{0, 1, 8, 9, 10, 11}, s.ids(), "its room is free at once, so that nothing else has to go")
	})
}

// What is queued, cut or waits for its next attempt is given up once all of it has
// reached max_age; what is being sent is not touched.
func TestRetention_MaxAge(t *testing.T) {
	const yaml = `
sending_queue: {num_consumers: 1, max_age: 10s, batch: {min_size: 2, max_size: 2, flush_timeout: 1s}}
retry_on_failure: {initial_interval: 4s, randomization_factor: 0, multiplier: 1}`
	inBubble(t, "queued and in flight", func(t *testing.T) {
		s := &sink{}
		r := startRig(t, kindLogs, s, yaml)
		s.hold()
		r.mustSend(kindLogs.simple(5, 0))
		time.Sleep(9 * time.Second)
		synctest.Wait()
		assert.EqualValues(t, 5, r.exporter.account().pending)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.EqualValues(t, 3, r.metric("batcher_dropped_items", reasonIs(dropExpired)))
		assert.EqualValues(t, 2, r.exporter.account().pending, "in flight")
		s.release()
		synctest.Wait()
		assert.Equal(t, sequence(0, 2), s.ids())
	})
	inBubble(t, "in backoff", func(t *testing.T) {
		r := startRig(t, kindLogs, &sink{answer: func(context.Context, *call) error { return errAway }}, yaml)
		r.mustSend(kindLogs.simple(2, 0))
		time.Sleep(11 * time.Second)
		synctest.Wait()
		assert.EqualValues(t, 2, r.metric("batcher_dropped_items", reasonIs(dropExpired)))
		assert.Zero(t, r.exporter.account().pending)
	})
	inBubble(t, "wait_for_result", func(t *testing.T) {
		s := &sink{}
		r := startRig(t, kindLogs, s, "sending_queue: {wait_for_result: true, num_consumers: 1, max_age: 10s, batch: {min_size: 0, flush_timeout: 0s}}")
		s.hold()
		go func() { _ = r.send(kindLogs.simple(1, 0)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.ErrorIs(t, r.exporter.consume(ctx, kindLogs.simple(1, 1)), errExpired)
	})
}

// A batch whose last caller goes while it waits for its next attempt is settled
// then, and a stop has nothing left to wait for.
func TestRetention_CallersGone(t *testing.T) {
	for name, queue := range map[string]string{
		"wait_for_result": "sending_queue: {wait_for_result: true, batch: {min_size: 0, flush_timeout: 0s}}",
		"no queue":        "sending_queue: {enabled: false}",
	} {
		inBubble(t, name, func(t *testing.T) {
			r := startRig(t, kindLogs, &sink{answer: func(context.Context, *call) error { return errAway }}, queue+`
retry_on_failure: {initial_interval: 1h, max_interval: 1h, max_elapsed_time: 0s}`)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- r.exporter.consume(ctx, kindLogs.simple(3, 0)) }()
			time.Sleep(time.Second)
			synctest.Wait()
			cancel()
			synctest.Wait()
			require.Error(t, <-ended)
			assert.EqualValues(t, 3, r.metric("batcher_dropped_items", reasonIs(dropCallersGone)))
			began := time.Now()
			require.NoError(t, r.stop())
			assert.Zero(t, time.Since(began))
		})
	}
}

// One caller that still waits keeps the batch that it shares with others.
func TestRetention_RemainingCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{answer: afterFirst(func(context.Context, *call) error { return errAway })}
		r := startRig(t, kindLogs, s, `
sending_queue: {wait_for_result: true, batch: {min_size: 2, flush_timeout: 1h}}
retry_on_failure: {initial_interval: 10s}`)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = r.exporter.consume(ctx, kindLogs.simple(1, 0)) }()
		stays := make(chan error, 1)
		go func() { stays <- r.send(kindLogs.simple(1, 1)) }()
		synctest.Wait()
		cancel()
		require.NoError(t, <-stays)
		assert.Equal(t, sequence(0, 2), sorted(s.ids()))
	})
}
