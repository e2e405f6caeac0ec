// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import (
	"math"

	"go.opentelemetry.io/collector/pdata/pprofile"
)

// recentShares are the parts of the limit, one in so many, to which the memories
// of an index are bounded. The larger one is best where a piece can hold almost
// all of a dictionary, the smaller one where most entries are needed by few
// samples, close to each other. In the worst kind of data seen (many stacks of
// which each has frames of its own and frames that all have) pieces are filled to
// 70 percent with the two, and to 30 with a memory without bound.
var recentShares = [...]int{1, 8}

// recent remembers which entries of a dictionary the latest samples of a request
// needed. It serves to bound what any range of samples needs: no more than what
// was remembered when the range began, and what was not remembered when one of
// its samples needed it. That is true whatever is forgotten in between, and close
// if what is needed often is not.
//
// There are two generations: what is needed moves to the young one, and when that
// is full, the old one is forgotten and the young one is old.
//
// To look up again what was forgotten may cost the whole dictionary with each
// sample, if that needs more than fits into the memory. So there is a bound to it,
// beyond which all is remembered, as if the next sample had needed the rest.
type recent struct {
	capacity   int // in bytes; 0 if nothing is to be forgotten
	young, old *remap
	youngBytes int
	oldBytes   int             // of what is in old but not in young
	counted    [tableCount]int // how many entries of young are in youngBytes

	maxSteps int
	all      int // bytes of all entries
	full     bool
}

// newRecent returns one that takes as many steps as it likes.
func newRecent(src dictionary, capacity int) recent {
	return recent{capacity: capacity, young: newRemap(src), old: newRemap(src), maxSteps: math.MaxInt}
}

func (c *recent) release() {
	c.young.release()
	c.old.release()
}

// bytes is the size of what is remembered.
func (c *recent) bytes() int {
	if c.full {
		return c.all
	}
	return c.youngBytes + c.oldBytes
}

// add remembers what a sample needs, and returns the size of what was not
// remembered before.
func (c *recent) add(z *sizer, s pprofile.Sample) int {
	if c.young.steps+c.old.steps > c.maxSteps {
		held := c.bytes()
		c.full = true
		return c.all - held
	}
	c.young.wantSample(s)
	c.young.complete()
	missed := 0
	for t := range tableCount {
		for _, i := range c.young.needed[t][c.counted[t]:] {
			size := z.size(t, i)
			c.youngBytes += size
			if c.old.to[t][i] == wanted {
				c.oldBytes -= size
			} else {
				missed += size
			}
		}
		c.counted[t] = len(c.young.needed[t])
	}
	if c.capacity > 0 && c.youngBytes > c.capacity/2 {
		c.forget()
	}
	return missed
}

func (c *recent) forget() {
	c.old.reset()
	c.old, c.young = c.young, c.old
	c.oldBytes, c.youngBytes = c.youngBytes, 0
	c.counted = [tableCount]int{}
}
