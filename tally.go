// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// The states of a report: plain structs, guarded by its lock.

// line is a line of the log that is to be written.
type line struct {
	level   zapcore.Level
	message string
	fields  []zap.Field
}

// pacer says when the next line of a kind may be written: the first at once, and
// then one per pause, which grows while there is always one to write.
type pacer struct {
	next  time.Time
	pause time.Duration
}

func (p *pacer) due(now time.Time) bool { return !now.Before(p.next) }

func (p *pacer) wrote(now time.Time) {
	if now.Sub(p.next) >= p.pause { // it was quiet for as long
		p.pause = firstPause
	} else {
		p.pause = min(2*p.pause, longestPause)
	}
	p.next = now.Add(p.pause)
}

// tally sums up what one kind of line tells.
type tally struct {
	level, level2     zapcore.Level // of a line about one event, and about several
	message, message2 string        // empty: the same
	counts            string        // what the sum is called
	reason            string        // empty: it has none

	pacer
	began  time.Time // when the sum began, which is when the last line was written
	events int
	sum    int64
	cause  string      // of the first event
	extra  []zap.Field // of the last event; only a line about one has them
}

func (t *tally) add(now time.Time, n int64, err error) {
	if t.events == 0 {
		t.cause = shortText(err)
		if t.due(now) {
			t.began = now
		}
	}
	t.events++
	t.sum += n
}

// take returns the line about all since the last.
func (t *tally) take(now time.Time) line {
	l := line{level: t.level, message: t.message}
	l.fields = []zap.Field{zap.String("error", t.cause)}
	switch {
	case t.events == 1 && t.extra != nil:
		l.fields = append(l.fields, t.extra...)
	case t.message2 != "":
		l.level, l.message = t.level2, t.message2
	}
	if t.reason != "" {
		l.fields = append(l.fields, zap.String("reason", t.reason))
	}
	l.fields = append(l.fields, zap.Int64(t.counts, t.sum))
	if past := round(now.Sub(t.began)); past > 0 {
		l.fields = append(l.fields, zap.String("within", past.String()))
	}
	t.wrote(now)
	t.clear()
	t.began = now
	return l
}

// clear forgets what has been summed up: another line tells it.
func (t *tally) clear() {
	t.events, t.sum, t.cause, t.extra = 0, 0, "", nil
}

// outage is the time since the first of the attempts that have failed without any
// success between them, and what it costs.
type outage struct {
	since    time.Time // zero: there is none
	last     time.Time // of the last failure
	err      error     // of the last failure
	attempts int64
	refuses  bool // the destination refused us
	dropped  int64
	refused  int64
}

func (o *outage) failed(now time.Time, err error) {
	if o.since.IsZero() {
		*o = outage{since: now}
	}
	o.last, o.err = now, err
	o.attempts++
}

// over is the line that it is over.
func (o *outage) over(now time.Time) line {
	l := line{level: zap.InfoLevel, message: "The backend takes data again."}
	if o.refuses {
		l.message = "The destination accepts data again."
	}
	l.fields = []zap.Field{
		zap.String("outage", round(now.Sub(o.since)).String()), zap.Int64("attempts", o.attempts),
		zap.Int64("cost_dropped", o.dropped), zap.Int64("cost_refused", o.refused),
	}
	return l
}

// crowd is the time in which the queue has been full now and then.
type crowd struct {
	items int64 // that were refused; 0: there is no crowd
	since time.Time
	last  time.Time
	check time.Time // when to look whether it is over

	ended time.Time
	quiet time.Duration // how long nothing must have been refused
}

func (c *crowd) refused(now time.Time, items int) {
	if c.items == 0 {
		c.since = now
		if c.quiet == 0 || now.Sub(c.ended) > longestPause {
			c.quiet = roomAfter
		} else {
			c.quiet = min(2*c.quiet, longestPause)
		}
	}
	c.items += int64(items)
	c.last = now
	c.check = now.Add(c.quiet)
}

// over says whether it may be over, if there is room.
func (c *crowd) over(now time.Time) bool { return c.items > 0 && !now.Before(c.check) }

// wait looks again later.
func (c *crowd) wait(now time.Time) { c.check = now.Add(c.quiet) }

// end returns the line that there is room again.
func (c *crowd) end(now time.Time) line {
	l := line{level: zap.InfoLevel, message: "The queue has room again."}
	l.fields = []zap.Field{
		zap.Int64("refused_in_all", c.items), zap.String("full_for", round(c.last.Sub(c.since)).String()),
	}
	*c = crowd{ended: now, quiet: c.quiet}
	return l
}

// round leaves of a duration what a reader wants to know.
func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// maxTextBytes is how much of an error is logged. A backend's text may echo the
// records that it refuses, which do not belong in the collector's log.
const maxTextBytes = 256

// shortText is the text of err as it may be logged.
func shortText(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if len(text) <= maxTextBytes {
		return text
	}
	const mark = "…"
	cut := maxTextBytes - len(mark)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + mark
}
