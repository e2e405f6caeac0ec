// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"sync"
	"time"
)

const (
	// ceilingPause is how long a ceiling stays as it is before it creeps up, by one
	// in ceilingStep.
	ceilingPause = time.Minute
	ceilingStep  = 8
	// ceilingMemory is how long a refusal is remembered.
	ceilingMemory = time.Hour
	// ceilingSlack is the share, one in so many, by which a request may be above
	// the ceiling and still be tried whole: halves are never quite equal.
	ceilingSlack = 16
)

// ceiling learns how large a request the wrapped exporter's backend takes, in
// bytes: the largest that passed below the smallest that was refused, or half of
// that. A single item teaches no size, since it cannot be made smaller.
//
// It creeps up while things go well, and forgets after a while, so that one odd
// answer does not cap batches for ever. What creeping tries is kept apart from
// what has passed, to fall back to that.
type ceiling struct {
	mu struct {
		sync.Mutex
		passed  int // the largest of several items that passed; 0: none
		refused int // the smallest of several items that was refused; 0: none
		named   int // a limit that the backend named; 0: none
		crept   int // added to these
		changed time.Time
		last    time.Time // refusal
	}
}

// limit is how large a request may be, 0 if nothing is known.
func (c *ceiling) limit() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.limitLocked()
}

func (c *ceiling) limitLocked() int {
	if c.mu.named > 0 {
		return c.mu.named + c.mu.crept
	}
	return max(c.mu.passed, c.mu.refused/2) + c.mu.crept
}

// known is the largest request that the backend takes as far as is known, for
// people: what has passed, unless that is so much smaller than what was refused
// that it tells nothing. 0 if nothing is known.
func (c *ceiling) known() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mu.named > 0:
		return c.mu.named
	case c.provenLocked():
		return c.mu.passed
	}
	return c.mu.refused / 2
}

// provenLocked says whether something of about the limit has passed.
func (c *ceiling) provenLocked() bool { return c.mu.passed > 0 && c.mu.passed >= c.mu.refused/4 }

// allows says whether a request of that size is worth a try.
func (c *ceiling) allows(size int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := c.limitLocked()
	if c.mu.named == 0 {
		limit += limit / ceilingSlack
	}
	return limit == 0 || size <= limit
}

// learns says whether sizes have anything to tell, so that they are not computed
// for nothing.
func (c *ceiling) learns() bool { return c.limit() > 0 }

// refuse notes that a request of several items was refused for its size, with
// the limit that the backend named, if any. It returns how large the next may be.
func (c *ceiling) refuse(size, named int) (next int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.mu.crept, c.mu.changed, c.mu.last = 0, now, now
	if c.mu.refused == 0 || size < c.mu.refused {
		c.mu.refused = size
	}
	if c.mu.passed >= c.mu.refused {
		c.mu.passed = 0
	}
	switch {
	case named > 0 && named < size:
		c.mu.named = named
	case c.mu.named >= size:
		c.mu.named = 0
	}
	return c.limitLocked()
}

// pass notes that a request was taken. It reports whether that made the ceiling
// known, below a refusal.
func (c *ceiling) pass(size, items int) (found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := c.limitLocked()
	if limit == 0 {
		return false
	}
	now := time.Now()
	if now.Sub(c.mu.last) >= ceilingMemory {
		c.mu.passed, c.mu.refused, c.mu.named, c.mu.crept = 0, 0, 0, 0
		return false
	}
	if items > 1 && size > c.mu.passed {
		before := c.provenLocked()
		c.mu.passed = size
		found = !before && c.provenLocked()
		c.mu.crept = max(limit-max(size, c.mu.refused/2, c.mu.named), 0)
	}
	if c.mu.refused > 0 && c.mu.passed >= c.mu.refused {
		c.mu.refused, c.mu.named = 0, 0 // what was refused once passes now
	}
	if now.Sub(c.mu.changed) >= ceilingPause {
		c.mu.crept += max(limit/ceilingStep, 1)
		c.mu.changed = now
	}
	return found
}
