// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// firstPause is how long the second line of a kind waits for what it sums up.
	// The pause doubles with each line, up to longestPause: an outage of hours is
	// told in a line a minute, and the first minute of it in four.
	firstPause   = 10 * time.Second
	longestPause = logInterval
	// roomAfter is how long nothing must have been refused before the queue is
	// said to have room again: at its limit it takes and refuses by turns.
	roomAfter = 5 * time.Second
	// steadyAfter is how long the last OK must be past before an error is told to
	// the collector: a backend that fails now and then must not make health flap.
	steadyAfter = firstPause
)

// report tells people what happens to their data: log lines about what is refused,
// tried again and lost, and the component's status.
//
// Invariants:
//
//  1. Every refused, rejected and lost item is in one line, which is written at
//     last by close: the sums of the lines are the metrics.
//  2. Of each kind there is a line at once, and then one per pause.
//  3. Lines and status come in the order of what they tell.
//
// A line per event was the simpler design: the collector samples its log, so that
// most of them are gone just when they count.
//
// All methods may be called by any number of goroutines. Lock order: lines, then
// mu or the queue's.
type report struct {
	// Fixed after construction.
	logger   *zap.Logger
	source   string            // exporter and signal
	status   func(error)       // tells the collector; nil: all is well
	stats    func() queueStats // takes the queue's lock
	patience time.Duration     // attempts that fail for longer are an error of the component

	troubled atomic.Bool // the next success ends something; atomic, since every success asks

	lines sync.Mutex // held while lines are written and status is told

	mu struct {
		sync.Mutex
		retries, destination, rejected *tally
		full, stopping, oversized      *tally                // of refusals
		dropped                        map[dropReason]*tally // made when needed
		all                            []*tally

		outage  outage
		crowd   crowd
		ready   []line    // to be written next
		overs   pacer     // of the lines that an outage is over
		unwell  error     // what the status should be
		told    error     // what it is
		healthy time.Time // when it last became OK

		timer  *time.Timer // calls tick; nil: was never needed
		closed bool
	}
}

// reportSettings are what a report is made of.
type reportSettings struct {
	logger   *zap.Logger
	source   string
	status   func(error)
	stats    func() queueStats
	patience time.Duration
}

func newReport(set reportSettings) *report {
	r := &report{
		// A stack says where in this file a line is written, at ten lines each.
		logger: set.logger.WithOptions(zap.AddStacktrace(zapcore.DPanicLevel)),
		source: set.source, status: set.status, stats: set.stats, patience: set.patience,
	}
	m := &r.mu
	m.dropped = map[dropReason]*tally{}
	m.retries = r.tallyLocked(tally{
		level: zap.InfoLevel, message: retryMessage, level2: zap.WarnLevel,
		message2: "Exporting keeps failing. The data is kept and tried again.", counts: "failed_attempts",
	})
	m.destination = r.tallyLocked(tally{
		level: zap.ErrorLevel, counts: "refused_attempts",
		message: "The destination refuses the exporter, not the data. It is kept, and one batch at a time asks again.",
	})
	m.full = r.tallyLocked(tally{level: zap.ErrorLevel, message: "The queue is full. Requests are refused.", counts: "refused_items", reason: "queue_full"})
	m.stopping = r.tallyLocked(tally{level: zap.WarnLevel, message: "The exporter is stopping. Requests are refused.", counts: "refused_items", reason: "stopping"})
	m.oversized = r.tallyLocked(tally{level: zap.ErrorLevel, message: "Requests are refused that are larger than the queue.", counts: "refused_items", reason: "larger_than_queue"})
	m.rejected = r.tallyLocked(tally{level: zap.WarnLevel, message: "The backend rejected items of requests that it took.", counts: "rejected_items"})
	return r
}

const retryMessage = "Exporting failed. Will retry the batch after interval."

// dropMessages say why data was given up, in a text of its own for each reason:
// the collector samples lines of the same text.
var dropMessages = map[dropReason]string{
	dropTooLarge:         "Dropping data: it is larger than the backend takes.",
	dropRefused:          "Dropping data: the backend refuses what is in it.",
	dropDestination:      "Dropping data: the destination refuses the exporter.",
	dropRetriesExhausted: "Dropping data: retries are exhausted.",
	dropCallersGone:      "Dropping data: all callers that waited for it have gone.",
	dropShutdown:         "Dropping data that was not delivered before the stop.",
	dropExpired:          "Dropping data: it is older than `max_age`.",
	dropEvicted:          "Dropping data: the queue was full, and the oldest makes room.",
	dropPermanent:        "Dropping data: the error is permanent.",
}

func (r *report) tallyLocked(t tally) *tally {
	r.mu.all = append(r.mu.all, &t)
	return &t
}

// refused tells of items that were not accepted, for err.
func (r *report) refused(items int, err error) {
	r.mu.Lock()
	now := time.Now()
	t := r.mu.full
	switch {
	case errors.Is(err, errStopping):
		t = r.mu.stopping
	case consumererror.IsPermanent(err):
		t = r.mu.oversized
	default:
		r.mu.crowd.refused(now, items)
		r.mu.outage.refused += int64(items)
	}
	t.add(now, int64(items), err)
	r.unlock(now)
}

// dropped tells of accepted items that were given up, for err.
func (r *report) dropped(reason dropReason, items int, err error) {
	r.mu.Lock()
	now := time.Now()
	t := r.mu.dropped[reason]
	if t == nil {
		t = r.tallyLocked(tally{level: zap.ErrorLevel, message: dropMessages[reason], counts: "dropped_items", reason: string(reason)})
		if t.message == "" {
			t.message = "Dropping data: " + string(reason) + "."
		}
		r.mu.dropped[reason] = t
	}
	t.add(now, int64(items), err)
	r.mu.outage.dropped += int64(items)
	if reason == dropRetriesExhausted {
		r.unwellLocked(err)
	}
	r.unlock(now)
}

// rejected tells of items that the backend rejected in a request that it took; 0
// if it only had something to say.
func (r *report) rejected(items int, text string) {
	r.mu.Lock()
	now := time.Now()
	r.mu.rejected.add(now, int64(items), errors.New(text))
	r.unlock(now)
}

// failed tells of an attempt that failed for something that may pass. refuses says
// that the destination refuses us and not the data.
func (r *report) failed(err error, refuses bool) {
	r.mu.Lock()
	now := time.Now()
	r.mu.outage.failed(now, err)
	r.troubled.Store(true)
	if refuses {
		r.mu.outage.refuses = true
		r.mu.destination.add(now, 1, err)
		r.unwellLocked(err)
	}
	r.unlock(now)
}

// waits tells that a batch waits for its next attempt.
func (r *report) waits(err error, wait time.Duration, items int) {
	r.mu.Lock()
	now := time.Now()
	t := r.mu.retries
	t.add(now, 1, err)
	t.extra = []zap.Field{zap.String("interval", wait.String()), zap.Int("items", items)}
	summed := !t.due(now)
	r.unlock(now)
	if summed {
		r.logger.Debug(retryMessage, zap.String("error", shortText(err)), zap.String("interval", wait.String()), zap.Int("items", items))
	}
}

// passed tells that the wrapped exporter took something.
func (r *report) passed() {
	if !r.troubled.Load() {
		return
	}
	r.mu.Lock()
	now := time.Now()
	r.troubled.Store(false)
	o := r.mu.outage
	r.mu.outage = outage{}
	r.mu.unwell = nil
	if !o.since.IsZero() && (now.Sub(o.since) >= firstPause || r.mu.overs.due(now)) {
		r.mu.overs.wrote(now)
		r.mu.retries.clear()
		r.mu.ready = append(r.mu.ready, o.over(now))
	}
	r.unlock(now)
}

// close writes what is pending of losses, and ends the timer. What comes later is written
// when a line is due. It may be called twice.
func (r *report) close() {
	r.mu.Lock()
	r.mu.closed = true
	if r.mu.timer != nil {
		r.mu.timer.Stop()
	}
	r.mu.Unlock()
	r.write(true)
}

// unwellLocked wants an error to be told, until the next success.
func (r *report) unwellLocked(err error) {
	if r.mu.unwell == nil {
		r.mu.unwell = err
	}
	r.troubled.Store(true)
}

// unlock ends an event: it writes what is due because of it.
func (r *report) unlock(now time.Time) {
	next, some := r.nextLocked()
	due := len(r.mu.ready) > 0 || some && !next.After(now)
	if !due {
		r.armLocked(now)
	}
	r.mu.Unlock()
	if due {
		r.write(false)
	}
}

// tick writes what has become due.
func (r *report) tick() {
	r.mu.Lock()
	closed := r.mu.closed
	r.mu.Unlock()
	if !closed {
		r.write(false)
	}
}

// write writes the lines that are due, or all, and tells the status if it has
// changed.
func (r *report) write(all bool) {
	r.lines.Lock()
	defer r.lines.Unlock()
	room := r.looksForRoom(all)
	r.mu.Lock()
	now := time.Now()
	lines := r.takeLocked(now, room, all)
	change, status := r.changeLocked(now)
	r.armLocked(now)
	r.mu.Unlock()
	for _, l := range lines {
		r.log(l)
	}
	if change {
		r.status(status)
	}
}

// looksForRoom says whether the queue has room again after refusals, if it is time
// to look. At a stop it is, unless there is room for what has been given up.
func (r *report) looksForRoom(stop bool) bool {
	r.mu.Lock()
	look := r.mu.crowd.over(time.Now()) || stop && r.mu.crowd.items > 0 && r.mu.outage.since.IsZero()
	r.mu.Unlock()
	if !look {
		return false
	}
	st := r.stats()
	return st.Size < st.Capacity
}

// takeLocked takes the lines that are to be written now. room says that the queue
// has room again.
func (r *report) takeLocked(now time.Time, room, all bool) []line {
	m := &r.mu
	if !room && m.crowd.over(now) {
		m.crowd.wait(now)
	}
	var lines []line
	for _, t := range m.all {
		last := all && t != m.retries && t != m.destination // after the end nothing is kept or tried again
		if t.events > 0 && (last || t.due(now) || room && t == m.full) {
			lines = append(lines, t.take(now))
		}
	}
	if room {
		lines = append(lines, m.crowd.end(now))
	}
	lines = append(lines, m.ready...)
	m.ready = nil
	if o := &m.outage; !o.since.IsZero() && now.Sub(o.since) >= r.patience {
		r.unwellLocked(o.err)
	}
	return lines
}

// changeLocked decides whether the collector is to be told a new status.
func (r *report) changeLocked(now time.Time) (bool, error) {
	m := &r.mu
	switch {
	case m.unwell == nil && m.told != nil:
		m.healthy = now
	case m.unwell != nil && m.told == nil && now.Sub(m.healthy) >= steadyAfter:
	default:
		return false, nil
	}
	m.told = m.unwell
	return true, m.told
}

// nextLocked is when something becomes due, if anything does.
func (r *report) nextLocked() (next time.Time, some bool) {
	m := &r.mu
	at := func(t time.Time) {
		if !some || t.Before(next) {
			next, some = t, true
		}
	}
	for _, t := range m.all {
		if t.events > 0 {
			at(t.next)
		}
	}
	if m.crowd.items > 0 {
		at(m.crowd.check)
	}
	switch {
	case m.unwell != nil && m.told == nil:
		at(m.healthy.Add(steadyAfter))
	case m.unwell == nil && m.told != nil:
		at(time.Time{}) // at once
	case m.unwell == nil && !m.outage.since.IsZero():
		at(m.outage.since.Add(r.patience))
	}
	return next, some
}

// armLocked lets tick run when something becomes due, and not before.
func (r *report) armLocked(now time.Time) {
	m := &r.mu
	next, some := r.nextLocked()
	switch {
	case m.closed:
	case !some:
		if m.timer != nil {
			m.timer.Stop()
		}
	case m.timer == nil:
		m.timer = time.AfterFunc(next.Sub(now), r.tick)
	default:
		m.timer.Reset(next.Sub(now))
	}
}

// log writes a line, with the fill of the queue. One that the collector's sampling swallows, since many
// exporters have the same to say, is written with a text of its own.
func (r *report) log(l line) {
	entry := r.logger.Check(l.level, l.message)
	if entry == nil && r.logger.Core().Enabled(l.level) {
		entry = r.logger.Check(l.level, l.message+" ("+r.source+")")
	}
	if entry == nil {
		return
	}
	if st := r.stats(); st.Capacity < math.MaxInt64 {
		l.fields = append(l.fields, zap.Int64("queue_size", st.Size), zap.Int64("queue_capacity", st.Capacity))
	}
	entry.Write(l.fields...)
}

// itemsOf is a number of items in words.
func itemsOf[N int | int64](n N) string {
	if n == 1 {
		return "1 item"
	}
	return fmt.Sprintf("%d items", n)
}
