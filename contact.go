// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/config/configretry"
)

// contact knows for how long the backend has not answered: attempts fail or hang,
// and none was answered since. One that has nothing to send knows nothing.
type contact struct {
	mu struct {
		sync.Mutex
		running int
		since   time.Time // when the first attempt began that is without an answer; zero: none is
		failed  int       // attempts since then
		refused int       // those of them with which the destination refused us
	}
}

const (
	// surelyLost is how many attempts must have failed for a short time without an
	// answer to tell something: where backoffs are short, one slow call is no outage.
	surelyLost = 3
	// shortTime is that time.
	shortTime = time.Second
)

// asks notes that an attempt begins.
func (c *contact) asks() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.running++
	if c.mu.since.IsZero() {
		c.mu.since = time.Now()
	}
}

// answered notes that an attempt has ended, and whether the backend took the data or
// refused it for good, rather than being away, or refusing us.
func (c *contact) answered(yes, refusesUs bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.running--
	if refusesUs {
		c.mu.refused++
	}
	if !yes {
		c.mu.failed++
		return
	}
	c.mu.since, c.mu.failed, c.mu.refused = time.Time{}, 0, 0
	if c.mu.running > 0 {
		c.mu.since = time.Now()
	}
}

// lost says whether there was no answer for longer than the longest backoff, or the
// destination does not want to hear of us, which no stop will see the end of.
func (c *contact) lost(longest time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.refused >= surelyLost {
		return true
	}
	if c.mu.failed < surelyLost {
		longest = max(longest, shortTime)
	}
	return !c.mu.since.IsZero() && time.Since(c.mu.since) > longest
}

// addressPatience is how long data is kept for an address that does not want it: a
// rollout takes minutes. What is a mistake in the configuration must not keep the
// queue full for ever.
const addressPatience = 5 * time.Minute

// address knows for how long the wrapped exporter's address has not wanted data: it
// is not found there, or the service is not.
type address struct {
	since atomic.Int64 // Unix nanoseconds of the first refusal; 0: it accepts
	long  atomic.Bool  // it was given up since
}

// refused notes a refusal, and says since when that lasts, and whether that is too
// long to wait once more. limit is that of all retries; 0: none.
func (a *address) refused(wait, limit time.Duration) (age time.Duration, long bool) {
	now := time.Now()
	a.since.CompareAndSwap(0, now.UnixNano())
	age = now.Sub(time.Unix(0, a.since.Load()))
	if limit == 0 || limit > addressPatience {
		limit = addressPatience
	}
	if long = wait > limit-age; long {
		a.long.Store(true)
	}
	return age, long
}

// accepted notes that something was taken.
func (a *address) accepted() {
	if a.since.Load() != 0 {
		a.since.Store(0)
		a.long.Store(false)
	}
}

// defaultMaxElapsedTime is that of retries which nobody has limited otherwise.
var defaultMaxElapsedTime = configretry.NewDefaultBackOffConfig().MaxElapsedTime

// longestBackoff is how long an attempt may be without an answer before that tells
// something.
func longestBackoff(r configretry.BackOffConfig) time.Duration {
	return max(r.MaxInterval, r.InitialInterval)
}
