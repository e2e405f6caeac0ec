// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"slices"
	"time"
)

// wokenBySuccess is how many backoffs of a partition a success ends: each success
// of those ends as many, so a backend that is back is asked twice as much with
// each round, and not by all at once.
const wokenBySuccess = 2

// maxLookedAt is among how many backoffs those are looked for: without a queue there
// may be thousands.
const maxLookedAt = 64

// stubbornAfter is the number of failures after which a batch no longer keeps a
// new one from being tried.
const stubbornAfter = 3

// delay is how long a batch has to wait.
type delay struct {
	wait        time.Duration
	atLeast     time.Duration // what the backend asked for: a success does not shorten it
	destination bool          // the destination refuses, whatever the data
	began       instant       // when the attempt began that failed
}

// delayed is what became of a batch that was to wait.
type delayed uint8

const (
	delayedWaits     delayed = iota
	delayedAbandoned         // the queue was abandoned, which settled the batch
	delayedGone              // nobody waits for its outcome any more
	delayedStops             // the exporter stops, and this was its last attempt
)

// delay makes b wait out a backoff, without a slot, unless that is pointless: then
// b is still its caller's.
func (q *queue[T]) delay(b *batch[T], d delay) delayed {
	q.mu.Lock()
	defer q.mu.Unlock()
	b.began = d.began
	switch {
	case q.mu.abandoned:
		return delayedAbandoned
	case q.goneLocked(b):
		return delayedGone
	case q.mu.stopping && q.mu.lastAttempts:
		return delayedStops
	}
	q.retriedLocked(b)
	q.failedLocked(b)
	q.idleLocked(b)
	p := b.part
	now := q.now()
	b.retryAt, b.notBefore = now.after(d.wait), now.after(d.atLeast)
	switch {
	case d.destination && !b.outlived:
		q.keepLocked(b, d.wait)
	case p.prober == b:
		// It no longer tells what the destination thinks of the others.
		q.releaseLocked(p)
		p.refusing = false
		q.waitLocked(b)
	default:
		q.waitLocked(b)
	}
	q.resumeLocked(p)
	return delayedWaits
}

// failedLocked counts a failure of b.
func (q *queue[T]) failedLocked(b *batch[T]) {
	b.failures++
	switch b.failures {
	case 1:
		b.part.failing++
	case stubbornAfter:
		b.part.stubborn++
	}
}

// idleLocked notes that no worker has b.
func (q *queue[T]) idleLocked(b *batch[T]) {
	b.idle = true
	b.part.backoff++
	q.mu.waiting++
	b.part.ages.insert(aged[T]{b})
	b.part.idleSize += b.held.size
	q.armExpiryLocked(b.part)
}

// claimLocked takes b, which is idle and in no other list, for its caller.
func (q *queue[T]) claimLocked(b *batch[T]) {
	b.idle = false
	b.part.backoff--
	q.mu.waiting--
	b.part.ages.remove(b.place)
	b.part.idleSize -= b.held.size
}

// takeIdleLocked takes b, wherever it waits, for its caller to give it up.
func (q *queue[T]) takeIdleLocked(b *batch[T]) {
	p := b.part
	q.claimLocked(b) // where it is ready, it is passed over
	if b.position >= 0 {
		q.mu.backoff.remove(b.position)
	}
	p.kept = slices.DeleteFunc(p.kept, func(k *batch[T]) bool { return k == b })
	if p.prober == b {
		q.nextProberLocked(p, b.retryAt)
	}
}

// waitLocked lets b wait until its time comes.
func (q *queue[T]) waitLocked(b *batch[T]) {
	q.mu.backoff.insert(b)
	q.armLocked(b.retryAt)
}

// keepLocked keeps b, which the destination refused whatever its data. One batch
// at a time asks again, at the pace of the longest backoff so far; the others wait
// for its answer. After some refusals a different one asks each time, since it may
// be that one batch only that is refused.
func (q *queue[T]) keepLocked(b *batch[T], wait time.Duration) {
	p := b.part
	p.refusing = true
	p.refusals++
	p.pace = max(p.pace, wait)
	b.refusedAt = q.now()
	p.kept = append(p.kept, b)
	switch p.prober {
	case nil:
		// Another may tell at once that only this one is refused; with one slot order
		// counts more.
		p.mayTry = q.set.slots > 1
		q.nextProberLocked(p, b.retryAt)
	case b:
		if p.refusals < stubbornAfter {
			p.kept = slices.Insert(p.kept[:len(p.kept)-1], 0, b)
		}
		q.nextProberLocked(p, b.refusedAt.after(p.pace))
	}
}

// nextProberLocked lets the batch that was kept first ask, not before `at`.
func (q *queue[T]) nextProberLocked(p *partition[T], at instant) {
	p.prober = nil
	if len(p.kept) == 0 {
		return
	}
	p.prober = p.kept[0]
	p.kept = slices.Delete(p.kept, 0, 1)
	p.prober.retryAt = max(p.prober.notBefore, at)
	q.waitLocked(p.prober)
}

// yieldsLocked says whether b, whose backoff is over, is a prober that lets a new
// batch ask in its place: every second time, once the destination has refused
// often.
func (q *queue[T]) yieldsLocked(b *batch[T], now instant) bool {
	p := b.part
	if p.prober != b || p.refusals < stubbornAfter || !p.due || p.yielded {
		p.yielded = false
		return false
	}
	p.yielded, p.mayTry = true, true
	b.retryAt = now.after(max(p.pace, 1))
	q.mu.backoff.fix(b.position)
	q.resumeLocked(p)
	return true
}

// releaseLocked lets the batches that are kept wait as others do.
func (q *queue[T]) releaseLocked(p *partition[T]) {
	p.prober, p.refusals, p.pace, p.mayTry, p.yielded = nil, 0, 0, false, false
	for _, k := range p.kept {
		q.waitLocked(k)
	}
	p.kept = nil
}

// heldBackLocked says whether nothing new may be taken from p. As many of its
// batches have failed as there are slots: what comes behind them would fail as
// well, and out of order. Or the destination refuses the exporter.
//
// A batch that always fails must not stop its partition for ever. So one place
// more is for a batch that has not failed, once all that have did so several
// times. With one slot there is such a place only for what the destination refuses:
// through an outage the order counts, as it does without us.
//
// A batch that was tried and has not been answered for the longest backoff no
// longer holds back others.
func (q *queue[T]) heldBackLocked(p *partition[T]) bool {
	free := p.prober == nil && p.failing < q.set.slots
	if free && !p.refusing || q.attemptsAllLocked(p) {
		return false
	}
	tried := p.active > p.failing && q.now() < p.pulledAt.after(q.set.patience)
	if tried {
		q.bePatientLocked(p, p.pulledAt)
	}
	switch {
	case p.prober != nil:
		return !p.mayTry || tried
	case free: // all that was refused was given up: the next one asks, alone
		return tried
	}
	return q.set.slots == 1 || p.failing > q.set.slots || p.stubborn < p.failing || tried
}

// attemptsAllLocked says whether what p holds is to have its last attempt, since a
// stop has begun and the backend is away.
func (q *queue[T]) attemptsAllLocked(p *partition[T]) bool {
	c := p.front()
	return q.mu.lastAttempts && c != nil && c.epoch != q.mu.current
}

// watchRetryLocked looks again at the partition of b, whose next attempt begins, when
// that should have been answered.
func (q *queue[T]) watchRetryLocked(b *batch[T]) {
	b.triedAt = q.now()
	b.part.retrying = append(b.part.retrying, b)
	q.bePatientLocked(b.part, b.triedAt)
}

// retriedLocked notes that a retry of b has ended.
func (q *queue[T]) retriedLocked(b *batch[T]) {
	if i := slices.Index(b.part.retrying, b); i >= 0 {
		b.part.retrying = slices.Delete(b.part.retrying, i, i+1)
	}
}

// bePatientLocked looks at p again when an attempt that began at `since` has had
// the time of the longest backoff.
func (q *queue[T]) bePatientLocked(p *partition[T], since instant) {
	if !p.patient {
		p.patient = true
		q.mu.patient = append(q.mu.patient, p)
	}
	q.armLocked(since.after(q.set.patience))
}

// endPatienceLocked looks again at the partitions that calls without an answer hold
// back. One hung call must not stop what has free slots.
func (q *queue[T]) endPatienceLocked(now instant) {
	again := q.mu.patient
	q.mu.patient = nil
	for _, p := range again {
		p.patient = false
		for len(p.retrying) > 0 && p.retrying[0].triedAt.after(q.set.patience) <= now {
			q.hangsLocked(p.retrying[0], now)
		}
		if len(p.retrying) > 0 {
			q.bePatientLocked(p, p.retrying[0].triedAt)
		}
		q.resumeLocked(p)
	}
}

// hangsLocked makes of b, whose retry is not answered, one that holds back nothing:
// neither as the prober, nor until it has failed more often.
func (q *queue[T]) hangsLocked(b *batch[T], now instant) {
	q.retriedLocked(b)
	if b.failures < stubbornAfter {
		b.failures = stubbornAfter
		b.part.stubborn++
	}
	if b.part.prober == b {
		q.nextProberLocked(b.part, now)
	}
}

// answeredLocked draws the consequence of b's end for what waits in its
// partition.
func (q *queue[T]) answeredLocked(b *batch[T], o *outcome) {
	p := b.part
	if b.failures > 0 {
		p.failing--
	}
	if b.failures >= stubbornAfter {
		p.stubborn--
	}
	q.retriedLocked(b)
	// What it delivered before it failed tells nothing of now.
	delivered := o.sent > 0 && o.passedAt > b.began
	if delivered {
		q.mu.lastAttempts = q.mu.lastAttempts && o.passedAt < q.mu.stopBegan
		q.acceptedLocked(p, o.passedAt)
	}
	switch {
	case p.prober != b:
	case o.expired && !delivered:
		q.hurryKeptLocked(p)
		q.releaseLocked(p)
	default:
		q.nextProberLocked(p, q.now())
	}
	if delivered && p.failing > 0 {
		q.wakeBackoffsLocked(p, wokenBySuccess)
	}
}

// acceptedLocked lets all go that the destination refused, since it took what began
// at `at`. What it refused before that is not held up for it any longer, and if it
// refuses that again, that is for what is in it. An attempt that began before the
// refusal proves nothing: the key may have been rotated in between.
func (q *queue[T]) acceptedLocked(p *partition[T], at instant) {
	if p.prober == nil {
		p.refusing = false
		return
	}
	if at <= p.prober.refusedAt {
		return
	}
	p.refusing = false
	p.prober.outlived = true
	for _, k := range p.kept {
		k.outlived = k.refusedAt < at
	}
	q.hurryKeptLocked(p)
	q.releaseLocked(p)
}

// hurryKeptLocked ends the wait of all that is kept.
func (q *queue[T]) hurryKeptLocked(p *partition[T]) {
	now := q.now()
	for _, k := range p.kept {
		k.retryAt = max(now, k.notBefore)
	}
	if b := p.prober; b != nil && b.position >= 0 {
		b.retryAt = max(now, b.notBefore)
		q.mu.backoff.fix(b.position)
		q.armLocked(b.retryAt)
	}
}

// outlived says whether the destination has refused b and taken others since.
func (q *queue[T]) outlived(b *batch[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return b.outlived
}

// hurryAllLocked ends all backoffs, for a stop.
func (q *queue[T]) hurryAllLocked() {
	for _, p := range q.mu.partitions {
		q.releaseLocked(p)
	}
	now := q.now()
	for _, b := range q.mu.backoff.list {
		b.retryAt = now
	}
	if q.mu.backoff.Len() > 0 {
		q.mu.backoff.init()
		q.armLocked(now)
	}
}

// wakeBackoffsLocked ends up to n backoffs of p, but no delay that the backend
// asked for. It wakes a batch once: one that fails although others pass would
// otherwise be tried again with each of them.
func (q *queue[T]) wakeBackoffsLocked(p *partition[T], n int) {
	now := q.now()
	var woken [wokenBySuccess]*batch[T]
	found := woken[:0]
	for i, b := range q.mu.backoff.list {
		if len(found) == n || i == maxLookedAt {
			break
		}
		if b.part == p && !b.woken && b.retryAt > max(now, b.notBefore) {
			found = append(found, b)
		}
	}
	for _, b := range found {
		b.retryAt, b.woken = max(now, b.notBefore), true
		q.mu.backoff.fix(b.position)
		q.armLocked(b.retryAt)
	}
}
