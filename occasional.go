// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"sync"
	"time"
)

// occasional lets one event of a kind through per interval, so that a log line
// that every batch could cause does not fill the log.
type occasional struct {
	// Fixed after construction.
	interval time.Duration

	mu struct {
		sync.Mutex
		last time.Time // of the last event let through
		held int64     // events held back since
	}
}

// allow reports whether this event is let through, and how many were held back
// since the last one that was. It may be called concurrently.
func (o *occasional) allow() (ok bool, held int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := time.Now()
	if !o.mu.last.IsZero() && t.Sub(o.mu.last) < o.interval {
		o.mu.held++
		return false, 0
	}
	held = o.mu.held
	o.mu.last, o.mu.held = t, 0
	return true, held
}
