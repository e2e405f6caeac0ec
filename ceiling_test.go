// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inTime runs f with a ceiling in fake time: evidence grows old.
func inTime(t *testing.T, f func(c *ceiling)) {
	synctest.Test(t, func(*testing.T) { f(&ceiling{}) })
}

func TestCeilingLearns(t *testing.T) {
	inTime(t, func(c *ceiling) {
		assert.False(t, c.learns())
		assert.GreaterOrEqual(t, c.allowed(), 1<<40)
		assert.Equal(t, 200, c.refuse(400, 0))
		assert.Equal(t, 100, c.refuse(200, 0), "half of the smallest that was refused")
		assert.False(t, c.pass(10, 2))
		assert.Equal(t, 100, c.limit(), "a small one that passes says nothing against a larger one")
		assert.True(t, c.pass(95, 2), "known now")
		assert.Equal(t, 95, c.known())
		assert.Equal(t, 100, c.limit(), "which may be tried")
		assert.False(t, c.pass(120, 2))
		assert.Equal(t, 120, c.limit(), "the largest that has passed")
		assert.Equal(t, 120, c.known())
		c.pass(150, 1)
		assert.Equal(t, 120, c.limit(), "a single item teaches no size")
		assert.GreaterOrEqual(t, c.allowed(), 125, "halves are not quite equal")
		assert.Less(t, c.allowed(), 150)
	})
}

func TestCeilingTakesANamedLimit(t *testing.T) {
	inTime(t, func(c *ceiling) {
		assert.Equal(t, 4000, c.refuse(5000, 4000))
		assert.GreaterOrEqual(t, c.allowed(), 4000)
		assert.Less(t, c.allowed(), 4001, "a named limit has no slack")
		assert.Equal(t, 2000, c.refuse(4000, 4000), "named, and not true")
	})
}

// Nothing is learned of a size at which others have passed lately: what was refused
// is halved, and that is all.
func TestCeilingHeedsWhatPasses(t *testing.T) {
	inTime(t, func(c *ceiling) {
		require.True(t, c.asks())
		assert.False(t, c.asks(), "sizes cost a walk each")
		c.pass(1000, 10)
		assert.True(t, c.contradicts(1000))
		assert.False(t, c.contradicts(2000))
		assert.Equal(t, 500, c.refuse(1000, 0))
		assert.False(t, c.learns())
		assert.Equal(t, 1000, c.refuse(2000, 0), "nothing of that size has passed")
		assert.True(t, c.learns())
		time.Sleep(evidenceMemory)
		assert.Equal(t, 500, c.refuse(1000, 0), "it was long ago")
		c.pass(1000, 2)
		assert.False(t, c.learns(), "what was refused once passes now")
	})
}

// After one odd answer, down to a few records, a handful of requests is enough.
func TestCeilingForgetsAnOddAnswer(t *testing.T) {
	inTime(t, func(c *ceiling) {
		for size := 1 << 20; size > 200; size /= 2 {
			c.refuse(size, 0)
		}
		requests := 0
		for c.learns() {
			c.pass(c.limit(), max(c.limit()/100, 1))
			requests++
		}
		assert.LessOrEqual(t, requests, 5*trustDoubtful)
	})
}

// The surer a limit, the fewer refused calls does it cost to ask for more.
func TestCeilingAsksLessAndLess(t *testing.T) {
	const limit = 1_000_000
	inTime(t, func(c *ceiling) {
		size, refused := 1_500_000, 0
		for range 100_000 {
			if size > limit {
				c.refuse(size, 0)
				refused++
			} else {
				c.pass(size, 100)
			}
			size = min(c.limit(), 1_500_000)
		}
		assert.Less(t, refused, 100_000/1000)
		assert.GreaterOrEqual(t, c.known(), limit*3/4)
		assert.LessOrEqual(t, c.known(), limit)
		time.Sleep(ceilingMemory)
		c.pass(100, 5)
		assert.False(t, c.learns())
	})
}
