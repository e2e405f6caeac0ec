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
	c.pass(1000)
	assert.False(t, c.learns(), "what passes tells nothing while nothing is refused")

	assert.Equal(t, 200, c.refuse(400, 0))
	assert.Equal(t, 100, c.refuse(200, 0))
	assert.Equal(t, 100, c.limit(), "half of the smallest that was refused")
	c.pass(90)
	assert.Equal(t, 90, c.limit(), "the largest that has passed")
	c.pass(95)
	c.pass(50)
	assert.Equal(t, 95, c.limit())
	assert.True(t, c.allows(100), "halves are not quite equal")
	assert.False(t, c.allows(150))
	assert.Equal(t, 48, c.refuse(95, 0), "what had passed does so no longer")
	assert.Equal(t, 47, c.limit())
}

func TestCeilingTakesANamedLimit(t *testing.T) {
	var c ceiling
	assert.Equal(t, 4000, c.refuse(5000, 4000))
	assert.True(t, c.allows(4000))
	assert.False(t, c.allows(4001), "a named limit has no slack")
	assert.Equal(t, 2000, c.refuse(4000, 4000), "named, and not true")
}

func TestCeilingCreepsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c ceiling
		c.refuse(1000, 0)
		c.pass(500)
		for range 20 {
			c.pass(500)
		}
		assert.Equal(t, 500, c.limit())
		time.Sleep(ceilingPause)
		c.pass(100)
		assert.Equal(t, 500, c.limit(), "a small one proves nothing")
		c.pass(500)
		assert.Equal(t, 562, c.limit())
		for range 20 {
			time.Sleep(ceilingPause)
			c.pass(c.limit())
		}
		assert.Greater(t, c.limit(), 1000, "what was refused once may pass now")
	})
}
