// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
)

// in makes r a batcher for logs of a factory that has others. It must not be started.
func (r *rig) in(all *instances) *rig {
	r.exporter.Component.(*signalExporter[plog.Logs]).instances = all
	return r
}

// blackHole takes a call and never answers.
func blackHole(ctx context.Context, _ *call) error {
	<-ctx.Done()
	return ctx.Err()
}

// takes answers with success after that time.
func takes(d time.Duration) func(context.Context, *call) error {
	return func(ctx context.Context, _ *call) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

const (
	hasty     = "drain_timeout: 400ms\nsending_queue: {batch: {min_size: 1000, flush_timeout: 24h}}"
	batchEach = "drain_timeout: 20s\nretry_on_failure: {initial_interval: 1s, max_interval: 1s, randomization_factor: 0, max_elapsed_time: 0}\n" +
		"sending_queue: {num_consumers: 1, batch: {min_size: 1, max_size: 1}}"
)

// startedIn starts a batcher of the factory, and sends it one request.
func startedIn(t *testing.T, all *instances, answer func(context.Context, *call) error) *rig {
	t.Helper()
	r := newRig(t, kindLogs, &sink{answer: answer}, hasty).in(all)
	r.start()
	r.mustSend(logsOf(3, 0))
	return r
}

// elapsed is how long a stop takes.
func (r *rig) elapsed() time.Duration {
	r.t.Helper()
	began := time.Now()
	require.NoError(r.t, r.stop())
	return time.Since(began)
}

// All batchers of a factory have one drain_timeout for a stop, not one each.
func TestStopRound_OneBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newInstances(nil)
		var rigs []*rig
		for range 4 {
			rigs = append(rigs, startedIn(t, all, blackHole))
		}
		began := time.Now()
		for _, r := range rigs {
			require.NoError(t, r.stop())
			assert.EqualValues(t, 3, r.exporter.account().dropped)
		}
		assert.Equal(t, 400*time.Millisecond, time.Since(began))
	})
}

// What the others hold leaves from the first Shutdown on.
func TestStopRound_OthersSendMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newInstances(nil)
		first := startedIn(t, all, blackHole)
		var others []*rig
		for range 3 {
			others = append(others, startedIn(t, all, takes(300*time.Millisecond)))
		}
		began := time.Now()
		require.NoError(t, first.stop())
		for _, r := range others {
			require.NoError(t, r.stop())
			assert.EqualValues(t, 3, r.exporter.account().sent)
			assert.Equal(t, began, r.calls()[0].began)
		}
	})
}

// A stop soon after another belongs to it; later, or after a new start, it has the
// whole time again.
func TestStopRound_Ends(t *testing.T) {
	for name, tc := range map[string]struct {
		pause time.Duration
		start bool
		sent  int64
	}{
		"the same stop": {pause: stopPause - time.Second},
		"a later stop":  {pause: stopPause, sent: 3},
		"a new start":   {pause: time.Second, start: true, sent: 3},
	} {
		inBubble(t, name, func(t *testing.T) {
			all := newInstances(nil)
			first := startedIn(t, all, blackHole)
			second := newRig(t, kindLogs, &sink{answer: takes(300 * time.Millisecond)}, hasty).in(all)
			second.start()
			require.NoError(t, first.stop())
			time.Sleep(tc.pause)
			if tc.start {
				startedIn(t, all, nil)
			}
			second.mustSend(logsOf(3, 0))
			require.NoError(t, second.stop())
			assert.Equal(t, tc.sent, second.exporter.account().sent)
		})
	}
}

// A start while a stop runs leaves the stops that follow as they are: the first of
// each tells the others, and has the whole time.
func TestStopRound_StartMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newInstances(nil)
		first := startedIn(t, all, blackHole)
		var stop sync.WaitGroup
		stop.Go(func() { assert.NoError(t, first.stop()) })
		time.Sleep(100 * time.Millisecond)
		second := startedIn(t, all, takes(300*time.Millisecond))
		third := startedIn(t, all, nil)
		stop.Wait()
		assert.Empty(t, third.calls())
		time.Sleep(time.Hour)
		began := time.Now()
		assert.Equal(t, 300*time.Millisecond, second.elapsed())
		require.Len(t, third.calls(), 1)
		assert.Equal(t, began, third.calls()[0].began)
		require.NoError(t, third.stop())
		assert.EqualValues(t, 3, second.exporter.account().sent)
		assert.EqualValues(t, 3, third.exporter.account().sent)
	})
}

// startAway starts a batcher with a batch per request, and lets n of them wait for a
// backend that has been away for two minutes.
func startAway(t *testing.T, n int64, answer func(context.Context, *call) error) *rig {
	t.Helper()
	r := startRig(t, kindLogs, &sink{answer: answer}, batchEach)
	for id := range n {
		r.mustSend(logsOf(1, id))
	}
	time.Sleep(2*time.Minute + 500*time.Millisecond) // between two attempts
	return r
}

// Where the backend is known to be away each batch is sent once more, and then the
// stop is over.
func TestStopAway_OneLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startAway(t, 20, func(context.Context, *call) error {
			time.Sleep(10 * time.Millisecond)
			return errAway
		})
		before := len(r.calls())
		assert.Equal(t, 200*time.Millisecond, r.elapsed(), "twenty calls")
		var last []int64
		for _, c := range r.calls()[before:] {
			last = append(last, c.ids...)
		}
		assert.Equal(t, sequence(0, 20), sorted(last))
		assert.EqualValues(t, 20, r.metric("batcher_dropped_items", reasonIs(dropShutdown)))
	})
}

// Who waits for a result when the last attempt fails may try again elsewhere, also
// where the destination calls its refusal permanent.
func TestStopAway_CallersMayTryAgain(t *testing.T) {
	for name, answer := range map[string]error{"away": errAway, "refuses": errLogin} {
		inBubble(t, name, func(t *testing.T) {
			p := &pushes{answer: func(context.Context, int, []int) error { return answer }}
			set := wholeBatches(1)
			set.slots = 4
			s := fakeSender(set, steadyRetry, p)
			defer s.stop()
			results := make(chan error, 4)
			for i := range 4 {
				w, err := s.q.offer(t.Context(), numbers(i, 1))
				require.NoError(t, err)
				go func() { results <- s.q.await(t.Context(), w) }()
			}
			runFor(10 * time.Second)
			s.beginStop()
			require.True(t, s.q.attemptsLast())
			runFor(time.Second)
			covered, spent := s.q.stop()
			s.q.giveUpAll(spent, dropShutdown, errStopping)
			require.NoError(t, covered.wait(t.Context()))
			for range 4 {
				err := <-results
				require.ErrorIs(t, err, errStopping)
				assert.False(t, consumererror.IsPermanent(err), "%v", err)
			}
		})
	}
}

// A backend that has not answered at all costs five seconds.
func TestStopAway_BlackHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startAway(t, 20, blackHole)
		assert.LessOrEqual(t, r.elapsed(), awayTimeout)
		assert.EqualValues(t, 20, r.exporter.account().dropped)
	})
}

// A backend that comes back gets the rest, for which there is then all the time.
func TestStopAway_ComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := startAway(t, 12, func(context.Context, *call) error {
			time.Sleep(time.Second)
			if time.Since(began) < 2*time.Minute+3*time.Second {
				return errAway
			}
			return nil
		})
		took := r.elapsed()
		a := r.exporter.account()
		assert.GreaterOrEqual(t, a.sent, int64(8), "those whose last attempt was before that are lost")
		assert.Greater(t, took, awayTimeout)
		assert.Less(t, took, 20*time.Second)
	})
}

// A short outage, or none that is known of, is none: all of the time is for retries.
func TestStopAway_NotKnown(t *testing.T) {
	for name, idle := range map[string]bool{"for a second": false, "nothing was sent": true} {
		inBubble(t, name, func(t *testing.T) {
			yaml := "drain_timeout: 20s\nretry_on_failure: {initial_interval: 2s, max_interval: 10s, randomization_factor: 0, multiplier: 1}\n" +
				"sending_queue: {batch: {min_size: 5, flush_timeout: 24h}}"
			back := time.Now().Add(15 * time.Second)
			r := startRig(t, kindLogs, &sink{answer: func(context.Context, *call) error {
				if time.Now().Before(back) {
					return errAway
				}
				return nil
			}}, yaml)
			n := 5
			if idle {
				n = 3
				time.Sleep(time.Hour)
				back = time.Now().Add(15 * time.Second)
			}
			r.mustSend(logsOf(n, 0))
			time.Sleep(time.Second)
			require.NoError(t, r.stop())
			assert.EqualValues(t, n, r.exporter.account().sent)
		})
	}
}

// Shutdown keeps to its context while a Start hangs. What that has made by then is
// taken down when it comes back.
func TestStop_WhileStartHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		e := &ends{sink: &sink{}, start: func(context.Context) error {
			<-gate
			return nil
		}}
		r := newRig(t, kindLogs, e.sink, patient)
		started := make(chan error, 1)
		go func() { started <- r.exporter.Start(t.Context(), hostOf(e.logsFactory())) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		require.NoError(t, r.exporter.Shutdown(ctx))
		assert.Equal(t, time.Second, time.Since(began))
		assert.Zero(t, e.shutdowns)
		close(gate)
		require.Error(t, <-started)
		assert.Equal(t, 1, e.shutdowns)
		require.Error(t, r.send(logsOf(1, 0)))
	})
}

// Shutdown keeps to its context while another one drains.
func TestStop_WhileAnotherRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindLogs, &sink{answer: takes(10 * time.Second)}, patient)
		r.mustSend(logsOf(3, 0))
		var first sync.WaitGroup
		first.Go(func() { assert.NoError(t, r.stop()) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		require.NoError(t, r.exporter.Shutdown(ctx))
		assert.Equal(t, time.Second, time.Since(began))
		first.Wait()
		assert.EqualValues(t, 3, r.exporter.account().sent)
	})
}

// A call that hangs keeps its own data, and nothing else of an exporter that has
// stopped.
func TestStop_MemoryBehindAHungCall(t *testing.T) {
	for _, wait := range []bool{false, true} {
		inBubble(t, fmt.Sprint("wait_for_result ", wait), func(t *testing.T) {
			gate := make(chan struct{})
			p := &pushes{answer: func(_ context.Context, call int, _ []int) error {
				if call == 1 {
					return errAway
				}
				<-gate
				return nil
			}}
			set := wholeBatches(10)
			set.slots, set.waitForResult = 2, wait
			retry := steadyRetry
			retry.InitialInterval, retry.MaxInterval = time.Hour, time.Hour
			s := fakeSender(set, retry, p)
			var offered []weak.Pointer[load]
			for range 50 {
				offered = append(offered, offerWeakly(t, s, 10))
				synctest.Wait()
			}
			runFor(2 * time.Hour)
			s.q.abandon()
			s.closeGiven()
			runtime.GC()
			runtime.GC()
			alive := 0
			for _, w := range offered {
				alive += countIf(w.Value() != nil)
			}
			assert.LessOrEqual(t, alive, set.slots)
			close(gate)
			<-s.q.ended
			s.telemetry.close()
			runtime.KeepAlive(s)
		})
	}
}
