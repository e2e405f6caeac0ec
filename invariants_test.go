// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"pgregory.net/rapid"
)

// One property for each rule that the exporter promises to hold, over random
// data of the four signals, random failures and random stops.

// Conservation: what was accepted was sent or dropped by the end, each item once
// and nothing else, at a stop too, and a stop that drops says so.
func TestInvariant_Conservation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		p.scarce(rt)
		p.troubled(rt)
		p.hurried(rt)
		h := p.run(t)
		h.mustBeSound(rt)

		var accepted, delivered int64
		admitted := map[int64]bool{}
		for _, r := range h.requests {
			if r.err != nil {
				continue
			}
			accepted += int64(len(r.ids))
			for _, id := range r.ids {
				admitted[id] = true
			}
		}
		for _, b := range h.batches {
			for id, times := range b.delivered {
				require.Equal(rt, 1, times, "item %d was taken more than once", id)
				require.True(rt, admitted[id], "item %d was refused and sent", id)
				delivered++
			}
		}
		a := h.account
		require.Equal(rt, account{accepted: accepted, sent: a.sent, dropped: accepted - a.sent}, a)
		require.LessOrEqual(rt, a.sent, delivered)
		require.GreaterOrEqual(rt, a.sent, delivered-h.late())
		require.NoError(rt, h.shutdown)
	})
}

// Bound: no batch on any path is above a bound, but one of a single item, and
// that only if it is not to be dropped.
func TestInvariant_Bound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		if rapid.Bool().Draw(rt, "scarce") {
			p.scarce(rt)
		}
		p.troubled(rt)
		p.hurried(rt)
		h := p.run(t)
		h.mustBeSound(rt)
		b := &h.batch
		for _, s := range h.batches {
			for _, a := range s.attempts {
				if b.max > 0 && b.sizer == "items" {
					require.LessOrEqual(rt, len(a.ids), b.max)
				}
				limit := b.maxBytes
				if b.max > 0 && b.sizer == "bytes" && (limit == 0 || b.max < limit) {
					limit = b.max
				}
				if limit > 0 && a.bytes > limit {
					require.Len(rt, a.ids, 1, "%d bytes, the limit is %d", a.bytes, limit)
					require.False(rt, b.drop, "an item of %d bytes was not dropped, the limit is %d", a.bytes, limit)
				}
			}
		}
	})
}

// failures are the last errors of the batches that took part of r, and how many
// of its items were in none.
func (h *history) failures(r *request) (failed []*attempt, inNone int) {
	seen := map[*sent]bool{}
	for _, id := range r.ids {
		b := h.of[id]
		if b == nil {
			inNone++
			continue
		}
		if a := b.last(); a.err != nil && !seen[b] {
			failed = append(failed, a)
		}
		seen[b] = true
	}
	return failed, inNone
}

// waitingPlan has callers that wait for their results.
func waitingPlan(t *rapid.T) plan {
	p := drawPlan(t)
	p.queue.wait = true
	p.troubled(t)
	return p
}

// Isolation: what fails affects those who are in that batch and nobody else: all
// others are delivered, and hear nothing of it.
func TestInvariant_Isolation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := waitingPlan(rt)
		h := p.run(t)
		h.mustBeSound(rt)
		for _, r := range h.requests {
			failed, inNone := h.failures(r)
			if inNone > 0 {
				require.True(rt, p.batch.drop, "%d items were not sent", inNone)
			}
			if len(failed) > 0 || inNone > 0 {
				continue
			}
			require.NoError(rt, r.err)
			for _, id := range r.ids {
				require.Equal(rt, 1, h.of[id].delivered[id])
			}
		}
	})
}

// Progress: a caller waits no longer than its context lasts, a stop no longer
// than drain_timeout, and in the end nobody waits: the fake time would not go on
// while a goroutine that it does not know is stuck, and a leak fails the run.
func TestInvariant_Progress(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		p.queue.wait = rapid.Bool().Draw(rt, "wait_for_result")
		p.scarce(rt)
		p.queue.block = true
		p.troubled(rt)
		p.hurried(rt)
		h := p.run(t)
		h.mustBeSound(rt)
		require.LessOrEqual(rt, h.stopping, p.drain)
		for _, r := range h.requests {
			if r.patience > 0 {
				require.LessOrEqual(rt, r.ended.Sub(r.began), r.patience)
			}
		}
	})
}

// Exactly one completion: a caller that waits gets one outcome, when the last
// batch that holds a part of its request has one, with all errors, and it is
// permanent if and only if one of them is.
func TestInvariant_ExactlyOneCompletion(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := waitingPlan(rt).run(t)
		h.mustBeSound(rt)
		for _, r := range h.requests {
			failed, inNone := h.failures(r)
			permanent := inNone > 0
			for _, a := range failed {
				if len(failed)+inNone <= maxErrors {
					require.ErrorIs(rt, r.err, causeOf(a))
				}
				permanent = permanent || a.class == "permanent"
			}
			require.Equal(rt, len(failed) > 0 || inNone > 0, r.err != nil, "%v", r.err)
			require.Equal(rt, permanent, consumererror.IsPermanent(r.err), "%v", r.err)
			if inNone > 0 {
				require.ErrorIs(rt, r.err, errTooLarge)
				continue // the last piece may have been one that was never sent
			}
			last := r.began
			for _, id := range r.ids {
				if end := h.of[id].last().ended; end.After(last) {
					last = end
				}
			}
			require.Equal(rt, last, r.ended)
		}
	})
}

// causeOf is the error of a call, without what it was wrapped in.
func causeOf(a *attempt) error {
	var e *callError
	errors.As(a.err, &e)
	return e
}

// Fidelity: what comes out says the same as what went in, item by item, with
// resource, scope and whatever else belongs to it, and with one slot and without
// joining in the same order.
func TestInvariant_Fidelity(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		p.behaviour.retryable = rapid.IntRange(0, 20).Draw(rt, "retryable %")
		p.behaviour.partial = rapid.IntRange(0, 20).Draw(rt, "partial %")
		h := p.run(t)
		h.mustBeSound(rt)
		var in, out []string
		for _, r := range h.requests {
			require.NoError(rt, r.err)
			in = append(in, r.lines...)
		}
		for _, b := range h.batches {
			out = append(out, b.taken()...)
		}
		if p.queue.slots > 1 || p.batch.join {
			in, out = sorted(in), sorted(out)
		}
		require.Equal(rt, in, out)
	})
}

// taken are the lines of the items that the wrapped exporter took, in order.
func (s *sent) taken() []string {
	var lines []string
	for i, a := range s.attempts {
		if a.err != nil && a.class != "partial" {
			continue
		}
		for j, id := range a.ids {
			if i+1 == len(s.attempts) || !slices.Contains(s.attempts[i+1].ids, id) {
				lines = append(lines, a.lines[j])
			}
		}
	}
	return lines
}

// Time: an item leaves at most flush_timeout after it was accepted, as long as
// there is a slot, and no batch leaves below min_size before that, unless a flush
// or a stop asks for it.
func TestInvariant_Time(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		p.queue.slots = 1000
		p.behaviour.slow = rapid.IntRange(0, 50).Draw(rt, "slow %")
		flushes := rapid.Bool().Draw(rt, "flushes")
		if !flushes {
			p.steps = slices.DeleteFunc(p.steps, func(s step) bool { return s.flush })
		}
		h := p.run(t)
		h.mustBeSound(rt)
		accepted := map[int64]time.Time{}
		for _, r := range h.requests {
			for _, id := range r.ids {
				accepted[id] = r.began
			}
		}
		for _, b := range h.batches {
			began := b.attempts[0].began
			oldest := began
			for _, id := range b.ids {
				if at := accepted[id]; at.Before(oldest) {
					oldest = at
				}
			}
			waited := began.Sub(oldest)
			require.LessOrEqual(rt, waited, p.batch.linger)
			below := p.batch.sizer == "items" && p.batch.maxBytes == 0 && len(b.ids) < p.batch.min
			if below && !flushes {
				require.Equal(rt, p.batch.linger, waited, "%d items left early", len(b.ids))
			}
		}
	})
}

// Truthful numbers: when nothing is going on, every metric tells what happened,
// and every gauge is at rest.
func TestInvariant_TruthfulNumbers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		p.scarce(rt)
		p.troubled(rt)
		h := p.run(t)
		h.mustBeSound(rt)
		want := map[string]int64{"queue_capacity": int64(p.queue.size), "batcher_batches": int64(len(h.batches))}
		for _, r := range h.requests {
			if r.err != nil {
				want["enqueue_failed_"] += int64(len(r.ids))
			} else {
				want["batcher_accepted_items"] += int64(len(r.ids))
			}
		}
		failed := map[string]int64{}
		for _, b := range h.batches {
			want["sent_"] += int64(len(b.delivered))
			for _, a := range b.attempts {
				if a.err != nil {
					failed[classOf(a)]++
				}
			}
		}
		want["send_failed_"] = want["batcher_accepted_items"] - want["sent_"]
		want["batcher_dropped_items"] = want["send_failed_"]
		for _, name := range []string{
			"queue_size", "queue_capacity", "in_flight_requests", "enqueue_failed_", "sent_", "send_failed_",
			"batcher_accepted_items", "batcher_dropped_items", "batcher_batches", "batcher_partitions", "batcher_backoff_batches",
		} {
			assert.Equal(rt, want[name], h.idle[name], name)
		}
		for _, class := range ownAttributes["class"] {
			assert.Equal(rt, failed[class], h.idle["batcher_failed_attempts class "+class], class)
		}
	})
}

// classOf is what the batcher takes the failure of an attempt for.
func classOf(a *attempt) string {
	if a.class == "partial" {
		return "retryable"
	}
	return a.class
}

// While callers wait for their results, the capacity that is taken is that of
// the requests that have no outcome, after each step.
func TestInvariant_TruthfulNumbersOnTheWay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := waitingPlan(rt)
		p.scarce(rt)
		p.queue.block = false
		for i := range p.steps {
			p.steps[i].patience = 0
		}
		p.checkUsed = true
		h := p.run(t)
		h.mustBeSound(rt)
	})
}

// A stop leaves no gauge behind that says that something is under way.
func TestInvariant_AtRestAfterStop(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		p.troubled(rt)
		p.hurried(rt)
		h := p.run(t)
		h.mustBeSound(rt)
		require.Zero(rt, h.stopped["in_flight_requests"])
	})
}
