// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"time"
)

// wokenBySuccess is how many backoffs of a partition a success ends: each success
// of those ends as many, so a backend that is back is asked twice as much with
// each round, and not by all at once.
const wokenBySuccess = 2

// stubbornAfter is the number of failures after which a batch no longer keeps a
// new one from being tried.
const stubbornAfter = 3

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
	q.failedLocked(b)
	now := q.now()
	b.retryAt, b.notBefore = now.after(d.wait), now.after(d.atLeast)
	switch {
	case d.destination && !b.outlived:
		q.keepLocked(b)
	case p.prober == b:
		// It no longer tells what the destination thinks of the others.
		q.releaseLocked(p)
		q.waitLocked(b)
	default:
		q.waitLocked(b)
	}
	q.resumeLocked(p)
	return true
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

// waitLocked lets b wait until its time comes.
func (q *queue[T]) waitLocked(b *batch[T]) {
	q.mu.backoff.insert(b)
	q.armLocked(b.retryAt)
}

// keepLocked keeps b, which the destination refused whatever its data. One batch
// asks again, the one that was kept first; the others wait for its answer.
func (q *queue[T]) keepLocked(b *batch[T]) {
	p := b.part
	p.kept = append(p.kept, b)
	if p.prober != nil && p.prober != b {
		return
	}
	p.prober = p.kept[0]
	p.kept = p.kept[1:]
	p.prober.retryAt = max(p.prober.retryAt, b.retryAt)
	q.waitLocked(p.prober)
}

// releaseLocked lets the batches that are kept wait as others do.
func (q *queue[T]) releaseLocked(p *partition[T]) {
	p.prober = nil
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
// times. With one slot there is no such place: there the order counts.
func (q *queue[T]) heldBackLocked(p *partition[T]) bool {
	switch tried := p.active > p.failing; {
	case p.prober != nil:
		return q.set.slots == 1 || len(p.kept) >= q.set.slots || p.prober.failures < stubbornAfter || tried
	case p.failing < q.set.slots:
		return false
	default:
		return q.set.slots == 1 || p.failing > q.set.slots || p.stubborn < p.failing || tried
	}
}

// answeredLocked draws the consequence of b's end for what waits in its
// partition.
func (q *queue[T]) answeredLocked(b *batch[T], delivered bool) {
	p := b.part
	if b.failures > 0 {
		p.failing--
	}
	if b.failures >= stubbornAfter {
		p.stubborn--
	}
	switch {
	case p.prober == nil:
	case delivered:
		q.acceptedLocked(p)
	case p.prober == b:
		q.releaseLocked(p)
	}
	if delivered && p.failing > 0 {
		q.wakeBackoffsLocked(p, wokenBySuccess)
	}
}

// acceptedLocked lets all go that the destination refused. A batch that it
// refuses again, although it takes others, is not held up for them.
func (q *queue[T]) acceptedLocked(p *partition[T]) {
	p.prober.outlived = true
	now := q.now()
	for _, k := range p.kept {
		k.outlived = true
		k.retryAt = max(now, k.notBefore)
	}
	q.releaseLocked(p)
}

// wakeBackoffsLocked ends up to n backoffs of p, but no delay that the backend
// asked for. It wakes a batch once: one that fails although others pass would
// otherwise be tried again with each of them.
func (q *queue[T]) wakeBackoffsLocked(p *partition[T], n int) {
	now := q.now()
	var woken [wokenBySuccess]*batch[T]
	found := woken[:0]
	for _, b := range q.mu.backoff.list {
		if len(found) == n {
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
