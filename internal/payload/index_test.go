// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }

// TestFit has an index of two resources with a header of 10 and items of 1, 2,
// 3 and 4, 5, and looks for the end of a range by hand.
func TestFit(t *testing.T) {
	ix := newIndex(5, 1)
	for r, items := range [][]int{{1, 2, 3}, {}, {4, 5}} {
		ix.open(resourceLevel, r)
		for _, c := range items {
			ix.item(cost{c})
		}
		ix.close(resourceLevel, cost{10})
	}
	ix.finish()
	f := func(from, room, want int) {
		t.Helper()
		assert.Equal(t, want, ix.Fit(from, room), "from %d in %d", from, room)
	}
	f(0, -1, 0)
	f(0, 10, 0)
	f(0, 11, 1)
	f(0, 12, 1)
	f(0, 13, 2)
	f(0, 29, 3)
	f(0, 30, 4)
	f(0, 34, 4)
	f(0, 35, 5)
	f(0, math.MaxInt, 5)
	f(2, 12, 2)
	f(2, 13, 3)
	f(2, 27, 4)
	f(4, 14, 4)
	f(4, 15, 5)
	f(5, 100, 5)
}

// TestBounds has the two bounds of a signal whose items share a dictionary: the
// lower one counts.
func TestBounds(t *testing.T) {
	ix := newIndex(4, 2)
	ix.bounds[0].shared = make([]int, 5)
	ix.open(resourceLevel, 0)
	for i := range 4 {
		first := 0 // what the item brings into the dictionary
		if i < 2 {
			first = 10
		}
		ix.bounds[0].shared[i+1] = first
		ix.item(cost{1 + first, 1 + 10})
	}
	ix.close(resourceLevel, cost{5, 5})
	ix.finish()

	assert.Equal(t, 5+2*11, ix.Cost(0, 2))
	assert.Equal(t, 5+2*11+2, ix.Cost(0, 4), "first use is the lower bound")
	assert.Equal(t, 5+11, ix.Cost(3, 4), "what the item needs is the lower bound")
	assert.Equal(t, 4, ix.Fit(0, 29))
	assert.Equal(t, 3, ix.Fit(0, 28))
	assert.Equal(t, 3, ix.Fit(2, 16))
}

func TestFitIsExact(t *testing.T) {
	t.Run("logs", func(t *testing.T) { testFit(t, logsSubject()) })
	t.Run("traces", func(t *testing.T) { testFit(t, tracesSubject()) })
	t.Run("metrics", func(t *testing.T) { testFit(t, metricsSubject()) })
}

// testFit compares Fit with a linear search over Cost.
func testFit[T any](t *testing.T, s subject[T]) {
	rapid.Check(t, func(t *rapid.T) {
		ix := s.Index(s.draw(t, 40), true, 0)
		n := ix.Items()
		from := rapid.IntRange(0, n).Draw(t, "from")
		room := rapid.IntRange(0, 1+ix.Cost(0, n)).Draw(t, "room")
		want := from
		for want < n && ix.Cost(from, want+1) <= room {
			want++
		}
		assert.Equal(t, want, ix.Fit(from, room))
	})
}

// TestFitAllocatesNothing because it is called under the lock of the queue.
func TestFitAllocatesNothing(t *testing.T) {
	s := metricsSubject()
	ix := s.Index(s.random(newRand(1), 500, 0), true, 0)
	assert.Zero(t, testing.AllocsPerRun(10, func() {
		ix.Fit(17, 5000)
		ix.Cost(17, 400)
	}))
}
