// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"math"
	"sync"
	"time"
)

const (
	// trustDoubtful is how many requests must pass below a ceiling before a larger one
	// is tried, as long as one refusal only has told of it, or nothing of several items
	// has passed near to what was refused; trustProven is that after, and trustNamed where the backend
	// has named its limit. trustGrows is by what that grows each time that a larger one
	// is refused indeed, up to trustMost: the surer the ceiling, the fewer calls it costs.
	trustDoubtful = 3
	trustProven   = 32
	trustNamed    = 64
	trustGrows    = 4
	trustMost     = 1 << 12
	// leastRaise is the smallest share, one in so many, by which a ceiling is
	// raised. The first raise doubles it, and each that is refused halves the next.
	leastRaise = 8
	// ceilingMemory is how long a refusal is remembered.
	ceilingMemory = time.Hour
	// evidenceMemory is how long a request that passed is evidence of what passes.
	evidenceMemory = time.Minute
	// evidencePause is how often the size of what passes is asked for, while nothing
	// was refused: it costs a walk over the data.
	evidencePause = time.Second
	// ceilingSlack is the share, one in so many, by which a request may be above
	// the ceiling and still be tried whole: halves are never quite equal.
	ceilingSlack = 16
)

// ceiling learns how large a request the wrapped exporter's backend takes, in
// bytes: the largest that passed below the smallest that was refused, or half of
// that. A single item teaches no size, since it cannot be made smaller.
//
// It learns only what the evidence agrees with. Where a request of the size that is
// refused has passed lately, the limit is not one of that size (it may be of
// compressed bytes, or one odd answer). It asks again for more after a few requests
// that passed, and less often each time that this is refused: so one odd answer is
// forgotten within a few batches, and a real limit costs a refused call now and then.
type ceiling struct {
	mu struct {
		sync.Mutex
		limit   int       // how large a request may be; 0: nothing is known
		passed  int       // the largest of several items that passed below the limit; 0: none
		refused int       // the smallest of several items that was refused; 0: none
		named   bool      // the backend has named the limit
		sure    bool      // it has, or has refused twice what was above
		last    time.Time // refusal
		streak  int       // requests of about the limit that passed since it was set
		trust   int       // how long a streak raises it, once it is proven
		raise   int       // by one in how many
		raised  bool      // it was, and nothing was refused since

		witness     int       // the largest of several items that passed lately
		witnessedAt time.Time // when
		askedAt     time.Time // when the size of one that passed was asked for
	}
}

// limit is how large a request may be, 0 if nothing is known.
func (c *ceiling) limit() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.limit
}

// known is the largest request that the backend takes as far as is known, for
// people: what has passed, unless that is so much smaller than what was refused
// that it tells nothing. 0 if nothing is known.
func (c *ceiling) known() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.provenLocked() && !c.mu.named {
		return c.mu.passed
	}
	return c.mu.limit
}

// provenLocked says whether something of about the limit has passed.
func (c *ceiling) provenLocked() bool { return c.mu.passed > 0 && c.mu.passed >= c.mu.refused/4 }

// allowed is how large a request is worth a try; without a limit, any.
func (c *ceiling) allowed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mu.limit == 0:
		return math.MaxInt
	case c.mu.named:
		return c.mu.limit
	}
	return c.mu.limit + c.mu.limit/ceilingSlack
}

// learns says whether there is a limit, so that sizes matter.
func (c *ceiling) learns() bool { return c.limit() > 0 }

// asks says whether the size of a request that has passed is to be told by pass.
func (c *ceiling) asks() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.mu.limit == 0 && now.Sub(c.mu.askedAt) < evidencePause {
		return false
	}
	c.mu.askedAt = now
	return true
}

// contradicts says whether a request of about that size has passed lately.
func (c *ceiling) contradicts(size int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.contradictsLocked(size)
}

func (c *ceiling) contradictsLocked(size int) bool {
	return c.mu.witness > 0 && c.mu.witness+c.mu.witness/ceilingSlack >= size && time.Since(c.mu.witnessedAt) < evidenceMemory
}

// refuse notes that a request of several items was refused for its size, with the
// limit that the backend named, if any. It returns how large its pieces may be.
func (c *ceiling) refuse(size, named int) (next int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	half := max(size/2, 1)
	if named > 0 && named < size {
		half = named
	}
	if c.contradictsLocked(size) {
		return half
	}
	switch {
	case c.mu.limit == 0:
		c.mu.trust, c.mu.raise = trustProven, 1
	case size > c.mu.passed:
		c.mu.sure = true
		if c.mu.raised {
			c.mu.trust = min(c.mu.trust*trustGrows, trustMost)
			c.mu.raise = min(c.mu.raise*2, leastRaise)
		}
	}
	c.mu.raised = false
	c.mu.last, c.mu.streak = time.Now(), 0
	if c.mu.refused == 0 || size < c.mu.refused {
		c.mu.refused = size
	}
	if c.mu.passed >= c.mu.refused {
		c.mu.passed = 0
	}
	if c.mu.named = named > 0 && named < size; c.mu.named {
		c.mu.sure, c.mu.trust = true, max(c.mu.trust, trustNamed)
		c.mu.limit = named
	} else {
		c.mu.limit = max(c.mu.passed, c.mu.refused/2, 1)
	}
	return c.mu.limit
}

// pass notes that a request was taken. It reports whether that made a limit known
// that is worth telling people.
func (c *ceiling) pass(size, items int) (found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if items > 1 && (size >= c.mu.witness || now.Sub(c.mu.witnessedAt) >= evidenceMemory) {
		c.mu.witness, c.mu.witnessedAt = size, now
	}
	switch {
	case c.mu.limit == 0:
		return false
	case now.Sub(c.mu.last) >= ceilingMemory, items > 1 && size >= c.mu.refused:
		c.forgetLocked() // or what was refused once passes now
		return false
	}
	before := c.mu.sure && c.provenLocked()
	if items > 1 && size > c.mu.passed {
		c.mu.passed = size
		c.mu.limit = max(c.mu.limit, size)
	}
	if size > c.mu.limit/2 {
		c.mu.streak++
	}
	c.raiseLocked()
	return !before && c.mu.sure && c.provenLocked()
}

// raiseLocked lets a larger request be tried once enough have passed.
func (c *ceiling) raiseLocked() {
	trust := c.mu.trust
	if doubtful := !c.mu.sure || !c.provenLocked(); doubtful && !c.mu.named {
		trust = trustDoubtful
	}
	if c.mu.streak >= trust {
		c.mu.limit += max(c.mu.limit/c.mu.raise, 1)
		c.mu.named, c.mu.streak, c.mu.raised = false, 0, true
	}
}

func (c *ceiling) forgetLocked() {
	c.mu.limit, c.mu.passed, c.mu.refused, c.mu.named, c.mu.sure, c.mu.raised, c.mu.streak = 0, 0, 0, false, false, false, 0
}
