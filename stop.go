// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import "time"

const (
	// stopPause is after which time without a Shutdown another one is a stop of its
	// own, and not one more of a collector that stops.
	stopPause = time.Minute
	// awayTimeout is how long a stop may take whose backend was away when it began.
	awayTimeout = 5 * time.Second
)

// stopRound is one stop of all batchers of a factory. A collector stops its
// components one after the other, and is killed when its grace period is over: so
// the time that one of them spends is gone for the others, which have been sending
// too since the first began.
//
// A budget for each was the simpler design: three batchers with dead backends took
// a minute.
type stopRound struct {
	spent   time.Duration // inside of Shutdowns that have ended
	running int           // Shutdowns
	since   time.Time     // when the first of them began
	ended   time.Time     // when the last one did; zero: there was none
}

// takes is how long the round has taken until now.
func (r *stopRound) takes(now time.Time) time.Duration {
	if r.running == 0 {
		return r.spent
	}
	return r.spent + now.Sub(r.since)
}

// enter begins a Shutdown, and says whether it is the first of a round.
func (r *stopRound) enter(now time.Time) (first bool) {
	first = r.running == 0 && (r.ended.IsZero() || now.Sub(r.ended) >= stopPause)
	if first {
		*r = stopRound{}
	}
	if r.running == 0 {
		r.since = now
	}
	r.running++
	return first
}

func (r *stopRound) exit(now time.Time) {
	if r.running--; r.running == 0 {
		r.spent += now.Sub(r.since)
		r.ended = now
	}
}

// enterStop begins the Shutdown of one signal. The first of a stop tells all others.
// It returns how long others have taken in the same stop, and what to call when the
// Shutdown ends.
func (all *instances) enterStop(s stopper) (taken time.Duration, exit func()) {
	now := time.Now()
	all.mu.Lock()
	first := all.mu.stop.enter(now)
	taken = all.mu.stop.takes(now)
	var others []*instance
	if first {
		for _, in := range all.mu.running {
			others = append(others, in)
		}
	}
	all.mu.Unlock()
	if first {
		s.beginStop()
	}
	for _, in := range others {
		in.beginStop()
	}
	return taken, func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		all.mu.stop.exit(time.Now())
	}
}
