// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	errWho          = consumererror.NewPermanent(status.Error(codes.Unauthenticated, "who are you"))
	errNoSuchServer = consumererror.NewPermanent(status.Error(codes.Unimplemented, "unknown service opentelemetry.proto.collector.logs.v1.LogsService"))
)

// A call that hangs holds one slot, whether it is a first attempt, a retry or the
// one that asks a destination that has refused.
func TestDestination_HungCall(t *testing.T) {
	for _, slots := range []int{2, 4, 10} {
		for name, failure := range map[string]error{"at once": nil, "as a retry": errAway, "as the probe": errWho} {
			inBubble(t, fmt.Sprint(slots, " slots, ", name), func(t *testing.T) {
				began := time.Now()
				gate := make(chan struct{})
				var hung atomic.Bool
				r := startRig(t, kindLogs, &sink{answer: func(context.Context, *call) error {
					if failure != nil && time.Since(began) < 3*time.Second {
						time.Sleep(100 * time.Millisecond)
						return failure
					}
					if hung.CompareAndSwap(false, true) {
						<-gate
					}
					return nil
				}}, fmt.Sprintf("sending_queue: {num_consumers: %d, batch: {min_size: 0, flush_timeout: 0s}}", slots))
				for i := range int64(30) {
					r.mustSend(kindLogs.simple(1, i))
				}
				time.Sleep(time.Hour)
				assert.Equal(t, account{accepted: 30, sent: 29, pending: 1, used: 1}, r.exporter.account())
				close(gate)
				synctest.Wait()
			})
		}
	}
}

// An hour of refusals costs about one call per longest backoff, and no data.
func TestDestination_RefusesForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &sink{answer: func(context.Context, *call) error {
			if time.Since(began) < time.Hour {
				return errWho
			}
			return nil
		}}
		r := startRig(t, kindLogs, s, "sending_queue: {queue_size: 10000, batch: {min_size: 0, flush_timeout: 0s}}")
		for i := range int64(360) {
			r.mustSend(kindLogs.simple(1, i))
			time.Sleep(10 * time.Second)
		}
		assert.Less(t, len(s.calls()), 300)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, account{accepted: 360, sent: 360}, r.exporter.account())
	})
}

// While the destination refuses, callers are not: the oldest makes room.
func TestDestination_FullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindLogs, &sink{answer: func(context.Context, *call) error { return errWho }},
			"sending_queue: {queue_size: 5, batch: {min_size: 0, flush_timeout: 0s}}\ndrain_timeout: 0s")
		for i := range int64(50) {
			r.mustSend(kindLogs.simple(1, i))
			time.Sleep(time.Second)
		}
		assert.EqualValues(t, 45, r.metric("batcher_dropped_items", reasonIs(dropDestination)))
	})
}

// A wrong address is believed after five minutes, until something passes.
func TestDestination_WrongAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var right atomic.Bool
		r := startRig(t, kindLogs, &sink{answer: func(context.Context, *call) error {
			if right.Load() {
				return nil
			}
			return errNoSuchServer
		}}, "sending_queue: {batch: {min_size: 0, flush_timeout: 0s}}")
		r.mustSend(kindLogs.simple(1, 0))
		time.Sleep(3 * time.Minute)
		assert.Zero(t, r.exporter.account().dropped)
		time.Sleep(3 * time.Minute)
		assert.EqualValues(t, 1, r.metric("batcher_dropped_items", reasonIs(dropDestination)))
		r.mustSend(kindLogs.simple(1, 1))
		synctest.Wait()
		assert.EqualValues(t, 2, r.exporter.account().dropped, "at once")
		right.Store(true)
		r.mustSend(kindLogs.simple(1, 2))
		synctest.Wait()
		right.Store(false)
		r.mustSend(kindLogs.simple(1, 3))
		synctest.Wait()
		assert.EqualValues(t, 1, r.exporter.account().pending, "kept again")
		right.Store(true)
		time.Sleep(time.Minute)
		assert.Equal(t, account{accepted: 4, sent: 2, dropped: 2}, r.exporter.account())
	})
}

// Whoever wants it as without us loses at once what is refused.
func TestDestination_Drop(t *testing.T) {
	for name, refusal := range map[string]error{"us": errWho, "the address": errNoSuchServer} {
		inBubble(t, name, func(t *testing.T) {
			r := startRig(t, kindLogs, &sink{answer: afterFirst(func(context.Context, *call) error { return refusal })},
				"sending_queue: {batch: {min_size: 0, flush_timeout: 0s}}\nrefusals: {destination: drop}")
			r.mustSend(kindLogs.simple(2, 0))
			synctest.Wait()
			assert.EqualValues(t, 2, r.metric("batcher_dropped_items", reasonIs(dropDestination)))
			r.mustSend(kindLogs.simple(1, 2))
			synctest.Wait()
			assert.EqualValues(t, 1, r.exporter.account().sent)
		})
	}
}

// A firewall in front of the backend refuses some batches with what looks like a
// refusal of us: all that it does not mind arrives, and so does what is good of them.
func TestDestination_FirewallRefusesSomeItems(t *testing.T) {
	firewall := consumererror.NewPermanent(status.Error(codes.PermissionDenied, "request to http://b:4318/v1/logs responded with HTTP Status Code 403"))
	for _, slots := range []int{1, 2, 10} {
		for _, n := range []int{1, 3} {
			inBubble(t, fmt.Sprintf("%d slots, %d batches", slots, n), func(t *testing.T) {
				set := unheard(10)
				set.slots = slots
				p := &pushes{answer: refusesItems(firewall, func(id int) bool { return id%10 == 7 && id < 10*n })}
				s := fakeSender(set, configretry.NewDefaultBackOffConfig(), p)
				s.isolation = newIsolation(RefusalsConfig{Isolate: IsolateAuto, MaxAttempts: 64}, "otlp_http")
				defer s.stop()
				for i := range 50 { // a call that began before a refusal tells nothing of it
					offer(t, s, 10*i, 10)
					runFor(100 * time.Millisecond)
				}
				runFor(time.Hour)
				assert.Equal(t, account{accepted: 500, sent: int64(500 - n), dropped: int64(n)}, s.q.account())
			})
		}
	}
}

// A success tells of the time at which its call began: it says nothing against a
// refusal that came later.
//
//	call 1:      begins
//	call 2:      begins, is refused, and waits
//	call 1:      succeeds
//	second try:  is refused: the data of call 2 is as good as before
func TestDestination_SuccessOfACallFromBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := &pushes{answer: func(_ context.Context, _ int, ids []int) error {
			switch {
			case ids[0] == 0:
				time.Sleep(10 * time.Second)
				return nil
			case time.Since(began) < time.Minute:
				return errLogin
			}
			return nil
		}}
		set := unheard(1)
		set.slots = 2
		s := fakeSender(set, steadyRetry, p)
		defer s.stop()
		offer(t, s, 0, 1)
		runFor(time.Second)
		offer(t, s, 1, 1)
		runFor(2 * time.Minute)
		assert.Equal(t, account{accepted: 2, sent: 2}, s.q.account())
		assert.Greater(t, p.calls(), 20, "it was refused after that success too")
	})
}

// Where callers wait, for room or for the outcome, they are told, and nothing that was
// accepted makes room for them.
func TestDestination_NothingIsEvictedWhereCallersWait(t *testing.T) {
	for _, key := range []string{"block_on_overflow", "wait_for_result"} {
		inBubble(t, key, func(t *testing.T) {
			var right atomic.Bool
			r := startRig(t, kindLogs, &sink{answer: func(context.Context, *call) error {
				if right.Load() {
					return nil
				}
				return errWho
			}}, "sending_queue: {queue_size: 5, "+key+": true, batch: {min_size: 0, flush_timeout: 0s}}")
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var delivered, refused atomic.Int64
			for i := range int64(20) {
				go func() {
					if r.exporter.consume(ctx, kindLogs.simple(1, i)) == nil {
						delivered.Add(1)
					} else {
						refused.Add(1)
					}
				}()
				time.Sleep(time.Second)
			}
			assert.Equal(t, account{accepted: 5, pending: 5, used: 5}, r.exporter.account())
			right.Store(true)
			time.Sleep(time.Minute)
			synctest.Wait()
			a := r.exporter.account()
			assert.Equal(t, account{accepted: a.accepted, sent: a.accepted}, a)
			assert.Equal(t, a.accepted, delivered.Load())
			assert.Equal(t, 20-a.accepted, refused.Load())
		})
	}
}
