// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"sync"
	"time"
)

const (
	// ceilingPause is how long a ceiling stays as it is before it creeps up.
	ceilingPause = time.Minute
	// ceilingStep is the share by which it then grows with each pause.
	ceilingStep = 8
	// ceilingSlack is the share by which a request may be above what has passed
	// and still be tried whole: halves are never quite equal.
	ceilingSlack = 16
)

// ceiling learns how large a request the wrapped exporter's backend takes, in
// bytes: the largest that passed below the smallest that was refused. It learns
// nothing from a single item, which cannot be made smaller, and creeps up again,
// so that one odd answer does not cap batches for ever.
type ceiling struct {
	mu struct {
		sync.Mutex
		passed  int       // the largest that passed; 0: none since the last refusal below
		refused int       // the smallest that was refused; 0: none
		named   bool      // passed is a limit that the backend named
		since   time.Time // of the last change
	}
}

// limit is how large a request may be, 0 if nothing is known.
func (c *ceiling) limit() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.passed > 0 {
		return c.mu.passed
	}
	return c.mu.refused / 2
}

// allows says whether a request of that size is worth a try.
func (c *ceiling) allows(size int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mu.refused == 0 && c.mu.passed == 0:
		return true
	case c.mu.named:
		return size <= c.mu.passed
	case c.mu.passed > 0:
		return size <= c.mu.passed+c.mu.passed/ceilingSlack
	}
	return size <= c.mu.refused/2+c.mu.refused/2/ceilingSlack
}

// learns says whether passed has anything to tell, so that sizes are not
// computed for nothing.
func (c *ceiling) learns() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.refused > 0 || c.mu.passed > 0
}

// refuse notes that a request of several items was refused for its size, with
// the limit that the backend named, if any. It reports how large the next may be.
func (c *ceiling) refuse(size, named int) (next int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.since = time.Now()
	if c.mu.refused == 0 || size < c.mu.refused {
		c.mu.refused = size
	}
	if named > 0 && named < size {
		c.mu.passed, c.mu.named = named, true
		return named
	}
	if c.mu.passed >= size {
		c.mu.passed, c.mu.named = 0, false
	}
	if c.mu.passed > 0 {
		return c.mu.passed
	}
	return (size + 1) / 2
}

// pass notes that a request of several items was taken.
func (c *ceiling) pass(size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.refused == 0 && c.mu.passed == 0 {
		return
	}
	now := time.Now()
	if size > c.mu.passed {
		c.mu.passed, c.mu.named, c.mu.since = size, false, now
	}
	if now.Sub(c.mu.since) >= ceilingPause && size > c.mu.passed-c.mu.passed/ceilingStep {
		c.mu.passed, c.mu.named, c.mu.since = c.mu.passed+max(c.mu.passed/ceilingStep, 1), false, now
	}
	if c.mu.refused > 0 && c.mu.passed >= c.mu.refused {
		c.mu.refused = 0 // what was refused once has passed, or is to be tried again
	}
}
