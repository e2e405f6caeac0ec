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

// delay is how long a batch has to wait.
type delay struct {
	wait        time.Duration
	atLeast     time.Duration // what the backend asked for: a success does not shorten it
	destination bool          // the destination refuses, whatever the data
}

// delay makes b wait out a backoff, without a slot. It reports false if the queue
// was abandoned; the batch is lost then.
func (q *queue[T]) delay(b *batch[T], d delay) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.abandoned {
		return false
	}
	b.idle = true
	p := b.part
	p.backoff++
	q.mu.waiting++
	if b.failures++; b.failures >= stubbornAfter {
		p.stubborn++
	}
	now := q.now()
	b.retryAt, b.notBefore = now.after(d.wait), now.after(d.atLeast)
	if d.destination && p.prober == nil {
		p.prober = b
	}
	if d.destination && p.prober != b {
		p.kept = append(p.kept, b)
		return true
	}
	q.mu.backoff.insert(b)
	q.armLocked(b.retryAt)
	return true
}

// heldBackLocked says whether nothing new may be taken from p. It has as many
// batches in backoff as there are slots: what waits behind them would fail as
// well, and out of order.
//
// A batch that always fails must not stop its partition for ever. So one place
// more is for a batch that has not failed, if all that wait have failed
// several times. With one slot there is no such place: there the order counts.
func (q *queue[T]) heldBackLocked(p *partition[T]) bool {
	if p.prober != nil {
		return true
	}
	if p.backoff < q.set.slots {
		return false
	}
	return q.set.slots == 1 || p.backoff > q.set.slots || p.stubborn < p.backoff
}

// stubbornAfter is the number of failures after which a batch no longer keeps a
// new one from being tried.
const stubbornAfter = 3

// answeredLocked draws the consequence of b's end for what waits in its
// partition. It reports whether a destination that refused has accepted.
func (q *queue[T]) answeredLocked(b *batch[T], delivered bool) (recovered bool) {
	p := b.part
	recovered = p.prober != nil && delivered
	switch {
	case recovered:
		p.prober = nil
		for _, k := range p.kept {
			q.mu.ready.push(k)
		}
		p.kept = nil
	case p.prober == b:
		p.prober = nil
		q.probeNextLocked(p)
	}
	if delivered && p.backoff > 0 {
		q.wakeBackoffsLocked(p, wokenBySuccess)
	}
	return recovered
}

// probeNextLocked lets the batch that was refused first ask again.
func (q *queue[T]) probeNextLocked(p *partition[T]) {
	if len(p.kept) == 0 {
		return
	}
	p.prober = p.kept[0]
	p.kept = slices.Delete(p.kept, 0, 1)
	q.mu.backoff.insert(p.prober)
	q.armLocked(p.prober.retryAt)
}

// wakeBackoffsLocked ends up to n backoffs of p, but no delay that the backend
// asked for. It wakes a batch once: one that fails although others pass would
// otherwise be tried again with each of them.
func (q *queue[T]) wakeBackoffsLocked(p *partition[T], n int) {
	now := q.now()
	for i := 0; i < q.mu.backoff.Len() && n > 0; i++ {
		if b := q.mu.backoff.list[i]; b.part == p && !b.woken && b.retryAt > max(now, b.notBefore) {
			b.retryAt, b.woken = max(now, b.notBefore), true
			q.mu.backoff.fix(b.position)
			q.armLocked(b.retryAt)
			n--
		}
	}
}
