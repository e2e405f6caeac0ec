// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestCeilingLearns(t *testing.T) {
	var c ceiling
	assert.False(t, c.learns())
	assert.True(t, c.allows(1<<40))
	assert.False(t, c.pass(1000, 10), "what passes tells nothing while nothing is refused")
	assert.False(t, c.learns())

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
	c.pass(50, 2)
	c.pass(150, 1)
	assert.Equal(t, 120, c.limit(), "a single item teaches no size")
	assert.True(t, c.allows(125), "halves are not quite equal")
	assert.False(t, c.allows(150))
	assert.Equal(t, 60, c.refuse(120, 0), "what had passed does so no longer")
}

func TestCeilingTakesANamedLimit(t *testing.T) {
	var c ceiling
	assert.Equal(t, 4000, c.refuse(5000, 4000))
	assert.True(t, c.allows(4000))
	assert.False(t, c.allows(4001), "a named limit has no slack")
	assert.Equal(t, 2000, c.refuse(4000, 4000), "named, and not true")
}

// It creeps up while things go well, falls back to what has passed if that was
// too much, and forgets an hour after the last refusal.
func TestCeilingCreepsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c ceiling
		c.refuse(1000, 0)
		for range 20 {
			c.pass(520, 5)
		}
		assert.Equal(t, 520, c.limit())
		time.Sleep(ceilingPause)
		c.pass(10, 1)
		assert.Equal(t, 585, c.limit(), "also by single items, or it would never leave them")
		c.pass(560, 5)
		assert.Equal(t, 585, c.limit(), "what creeping allowed stays")
		assert.Equal(t, 560, c.refuse(585, 0), "back to what has passed")
		for range 50 {
			time.Sleep(ceilingPause)
			c.pass(c.limit(), 5)
		}
		assert.Greater(t, c.limit(), 1000, "what was refused once may pass now")
		time.Sleep(ceilingMemory)
		c.pass(100, 5)
		assert.False(t, c.learns())
	})
}
