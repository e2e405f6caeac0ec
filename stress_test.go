// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
)

// stressSeeds is how many runs TestStress makes.
const stressSeeds = 60

// Random settings, a backend that changes its mind, callers that leave, flushes, and
// stops that begin elsewhere: at every step the account is closed, every batch is in
// the list where it belongs, no slot is free while a batch that may leave waits for
// one, and in the end what counts as sent was taken, once.
func TestStress(t *testing.T) {
	for seed := range uint64(stressSeeds) {
		inBubble(t, fmt.Sprint("seed ", seed), func(t *testing.T) { newStress(t, seed).run() })
	}
}

// mood is what the backend of a stress run is like for a while.
type mood int

const (
	takesAll mood = iota
	isAway
	refusesUs
	refusesAddress
	isMixed
)

// stress is one run: a sender in front of a backend with moods.
type stress struct {
	t   *testing.T
	rnd *rand.Rand // of the run; its one goroutine owns it
	set queueSettings
	s   *sender[*load]
	p   *pushes

	callers  sync.WaitGroup
	offered  int // items
	hangs    bool
	attempts time.Duration // the longest; 0: they have no end

	mu struct {
		sync.Mutex
		rnd      *rand.Rand // of the backend
		mood     mood
		most     int // items that it takes at once
		patient  bool
		poison   map[int]bool
		taken    map[int]int
		accepted map[int]bool
		told     map[int]bool // a caller was told that they were delivered
	}
}

func newStress(t *testing.T, seed uint64) *stress {
	st := &stress{t: t, rnd: rand.New(rand.NewPCG(seed, 99))}
	st.mu.rnd = rand.New(rand.NewPCG(seed, 100))
	st.mu.poison, st.mu.taken, st.mu.accepted, st.mu.told = map[int]bool{}, map[int]int{}, map[int]bool{}, map[int]bool{}
	st.mu.most = 1000
	st.set = stressQueue(st.rnd)
	st.p = &pushes{answer: st.answer}
	st.s = fakeSender(st.set, stressRetry(st.rnd), st.p)
	st.hangs = st.rnd.IntN(3) == 0
	if st.rnd.IntN(2) == 0 {
		st.s.isolation = &isolation{on: true, maxCalls: oneOf(st.rnd, 8, 64)}
	}
	st.s.set.dropRefusing = st.rnd.IntN(6) == 0
	if st.rnd.IntN(4) == 0 {
		st.attempts = 5 * time.Second
	}
	st.s.set.timeout = st.attempts
	return st
}

func oneOf[E any](rnd *rand.Rand, list ...E) E { return list[rnd.IntN(len(list))] }

// millis is a random time below a number of milliseconds.
func millis(rnd *rand.Rand, below int) time.Duration {
	return time.Duration(rnd.IntN(below)) * time.Millisecond
}

func stressQueue(rnd *rand.Rand) queueSettings {
	set := queueSettings{
		unit: oneOf(rnd, unitRequests, unitItems), capacity: oneOf(rnd, int64(10), 30, 100), slots: oneOf(rnd, 1, 2, 3, 10),
		blockOnOverflow: rnd.IntN(3) == 0, waitForResult: rnd.IntN(3) == 0,
		batch: batchSettings{unit: unitItems, minSize: int64(rnd.IntN(12)), flushTimeout: millis(rnd, 300)},
	}
	if rnd.IntN(3) > 0 {
		set.batch.maxItems = max(set.batch.minSize, 1) + int64(rnd.IntN(6))
	}
	if rnd.IntN(3) == 0 {
		set.maxAge = time.Duration(1+rnd.IntN(20)) * time.Second
	}
	set.dropOldest = rnd.IntN(3) == 0 && !set.blockOnOverflow
	return set
}

// stressRetry has no random part: it would come from a source without a seed.
func stressRetry(rnd *rand.Rand) configretry.BackOffConfig {
	return configretry.BackOffConfig{
		Enabled: rnd.IntN(8) > 0, InitialInterval: 100*time.Millisecond + millis(rnd, 1000), Multiplier: 1.5, MaxInterval: 3 * time.Second,
		MaxElapsedTime: oneOf(rnd, 0, 5*time.Second, 30*time.Second, defaultMaxElapsedTime),
	}
}

// answer is the backend's.
func (st *stress) answer(ctx context.Context, _ int, ids []int) error {
	st.mu.Lock()
	dice, pause, cut := st.mu.rnd.IntN(100), millis(st.mu.rnd, 200), st.mu.rnd.IntN(len(ids))
	if dice < 5 && st.hangs && !st.mu.patient {
		pause = time.Hour
	}
	now, most := st.mu.mood, st.mu.most
	bad := slices.ContainsFunc(ids, func(id int) bool { return st.mu.poison[id] })
	st.mu.Unlock()
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return ctx.Err()
	}
	switch {
	case len(ids) > most:
		return tooLarge["otlp_http"]
	case now == isMixed && dice < 70:
		return st.trouble(ids, dice, cut)
	case now != takesAll && now != isMixed:
		return map[mood]error{isAway: errAway, refusesUs: errLogin, refusesAddress: errNoSuchServer}[now]
	case bad:
		return []error{errContent, errLogin, errBad}[dice%3]
	}
	st.take(ids)
	return nil
}

// trouble is one of all kinds of failure. Some take a part of what they got.
func (st *stress) trouble(ids []int, dice, cut int) error {
	switch {
	case dice < 15:
		return errAway
	case dice < 25:
		return errLogin
	case dice < 35:
		return errContent
	case dice < 45:
		return errBad
	case dice < 55:
		return exporterhelper.NewThrottleRetry(errAway, time.Duration(dice)*100*time.Millisecond)
	case dice < 65:
		st.take(ids[:cut])
		return partialError{left: slices.Clone(ids[cut:])}
	}
	if cut = len(ids) / 2; cut == 0 {
		return errAway
	}
	st.take(ids[:cut])
	return errors.Join(partialError{left: slices.Clone(ids[cut:])})
}

func (st *stress) take(ids []int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, id := range ids {
		st.mu.taken[id]++
	}
}

// run is the whole of it: steps, sometimes a recovery, and the stop.
func (st *stress) run() {
	defer st.end() // also after a check that failed: nothing of the bubble may go on
	for range 30 + st.rnd.IntN(60) {
		st.step()
		synctest.Wait()
		st.check()
	}
	if st.rnd.IntN(2) == 0 {
		st.recoverAll()
	}
	if st.rnd.IntN(2) == 0 {
		st.s.beginStop()
		time.Sleep(millis(st.rnd, 3000))
	}
	covered, spent := st.s.q.stop()
	st.s.q.giveUpAll(spent, dropShutdown, errStopping)
	ctx, cancel := context.WithTimeout(context.Background(), millis(st.rnd, 6000))
	defer cancel()
	_ = covered.wait(ctx)
	st.s.q.halt()
	time.Sleep(10 * time.Millisecond) // callers leave between the two
	st.end()
	st.checkEnd()
}

// end abandons what is left, unless that was done.
func (st *stress) end() {
	if st.s.q.mu.abandoned { // nobody else ends it
		return
	}
	st.s.q.abandon()
	st.s.closeGiven()
	<-st.s.q.ended
	st.callers.Wait()
	st.s.telemetry.close()
	st.s.report.close()
}

// step is one thing that happens from outside.
func (st *stress) step() {
	switch dice := st.rnd.IntN(20); {
	case dice < 11:
		for range 1 + st.rnd.IntN(3) {
			st.offer()
		}
	case dice < 13:
		st.mu.Lock()
		defer st.mu.Unlock()
		st.mu.mood = oneOf(st.rnd, takesAll, takesAll, isAway, refusesUs, refusesAddress, isMixed, isMixed)
		st.mu.most = oneOf(st.rnd, 1000, 1000, 4, 1)
	case dice < 14:
		st.callers.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_ = st.s.q.flush(ctx)
		})
	case dice < 15 && st.rnd.IntN(3) == 0:
		st.s.beginStop()
	default:
		time.Sleep(millis(st.rnd, 2000))
	}
}

// offer is a caller, who may leave before the outcome.
func (st *stress) offer() {
	n := 1 + st.rnd.IntN(14)
	if st.set.unit == unitItems {
		n = min(n, int(st.set.capacity))
	}
	l := numbers(st.offered, n)
	ids := slices.Clone(l.ids)
	if st.rnd.IntN(40) == 0 {
		st.mu.Lock()
		st.mu.poison[ids[0]] = true
		st.mu.Unlock()
	}
	st.offered += n
	ctx, cancel := context.WithCancel(context.Background())
	if st.rnd.IntN(3) == 0 {
		ctx, cancel = context.WithTimeout(context.Background(), millis(st.rnd, 4000))
	}
	st.callers.Go(func() {
		defer cancel()
		w, err := st.s.q.offer(ctx, l)
		if err != nil {
			return
		}
		st.note(st.mu.accepted, ids)
		if w != nil && st.s.q.await(ctx, w) == nil {
			st.note(st.mu.told, ids)
		}
	})
}

func (st *stress) note(in map[int]bool, ids []int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, id := range ids {
		in[id] = true
	}
}

// recoverAll lets the backend be well for two minutes, after which nothing is left but
// what hangs, and nothing waits for a slot that is free.
func (st *stress) recoverAll() {
	st.mu.Lock()
	st.mu.mood, st.mu.most, st.mu.patient = takesAll, 1000, true
	st.mu.Unlock()
	st.offer()
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	st.check()
	st.p.mu.Lock()
	hung := st.p.mu.running
	st.p.mu.Unlock()
	q := st.s.q
	if st.hangs && st.attempts == 0 {
		require.True(st.t, hung == st.set.slots || q.only.held.requests == 0, "held, although a slot is free")
		return
	}
	a := q.account()
	require.Equal(st.t, account{accepted: a.accepted, sent: a.sent, dropped: a.dropped}, a, "nothing is pending")
	require.Equal(st.t, []int{0, 0, 0, 0}, []int{q.only.failing, q.only.stubborn, q.only.backoff, q.mu.waiting})
	require.Zero(st.t, q.mu.current.pending)
	require.Same(st.t, q.mu.oldest, q.mu.current, "every flush is over")
}

// check is what holds at any moment at which all goroutines wait.
func (st *stress) check() {
	a := st.s.q.account()
	require.Equal(st.t, a.accepted, a.sent+a.dropped+a.pending)
	require.LessOrEqual(st.t, a.used, st.set.capacity)
	checkShape(st.t, st.s.q)
}

// checkEnd is what holds when all is over.
func (st *stress) checkEnd() {
	st.mu.Lock()
	defer st.mu.Unlock()
	a := st.s.q.account()
	require.Equal(st.t, account{accepted: int64(len(st.mu.accepted)), sent: int64(len(st.mu.taken)), dropped: a.accepted - a.sent}, a)
	for id, times := range st.mu.taken {
		require.Equal(st.t, 1, times, "item %d", id)
		require.True(st.t, st.mu.accepted[id], "item %d was not accepted", id)
	}
	for id := range st.mu.told {
		require.Equal(st.t, 1, st.mu.taken[id], "item %d is said to be delivered", id)
	}
	st.p.mu.Lock()
	defer st.p.mu.Unlock()
	require.LessOrEqual(st.t, st.p.mu.most, st.set.slots)
}

// checkShape checks that each batch is in the list where it belongs, and that the
// counts which decide who may leave are true.
func checkShape(t *testing.T, q *queue[*load]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lists := listsOf(q)
	idle, failing, stubborn := 0, 0, 0
	for b := range q.mu.active {
		failing += countIf(b.failures > 0)
		stubborn += countIf(b.failures >= stubbornAfter)
		idle += countIf(b.idle)
		require.Len(t, lists[b], countIf(b.idle), "a batch that waits is in one list, any other in none: %v", lists[b])
		delete(lists, b)
	}
	require.Empty(t, lists, "settled, and still in a list")
	p := q.only
	require.Equal(t, []int{idle, idle, idle}, []int{p.backoff, q.mu.waiting, len(p.ages.list)})
	require.Equal(t, []int{failing, stubborn, len(q.mu.active)}, []int{p.failing, p.stubborn, p.active})
	if p.prober == nil {
		require.Empty(t, p.kept, "kept for one that asks")
	} else {
		require.Contains(t, q.mu.active, p.prober, "settled, and still the one that asks")
	}
	if mayLeave(q) && !q.mu.halted {
		require.GreaterOrEqual(t, q.mu.running-q.mu.parked, q.set.slots, "nobody is awake for what may leave")
	}
}

// listsOf names, for each batch that waits, the lists that it is in.
func listsOf(q *queue[*load]) map[*batch[*load]][]string {
	lists := map[*batch[*load]][]string{}
	for _, b := range q.mu.backoff.list {
		lists[b] = append(lists[b], "backoff")
	}
	for _, b := range q.mu.ready.all() {
		if b.idle { // else it was given up, and is skipped
			lists[b] = append(lists[b], "ready")
		}
	}
	for _, b := range q.only.kept {
		lists[b] = append(lists[b], "kept")
	}
	return lists
}

// mayLeave says whether something needs no more than a slot.
func mayLeave(q *queue[*load]) bool {
	ready := slices.ContainsFunc(q.mu.ready.all(), func(b *batch[*load]) bool { return b.idle })
	if q.mu.due.len() == 0 {
		return ready
	}
	return q.only.due && !q.heldBackLocked(q.only)
}

func countIf(b bool) int {
	if b {
		return 1
	}
	return 0
}
