// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import "sync"

// maxEmptied bounds the number of entries that taking a slice as a whole may
// have to throw away, per item that it gains.
const maxEmptied = 8

// share is the part of a group of items that a cut takes.
type share struct {
	ix   *Index
	of   group
	part span
}

// remains is what is left of a group of items that several cuts share.
//
// The library can move a slice as a whole, or single items, at the price of an
// allocation each. So a cut that wants more than it would leave takes the slice,
// and moves what it leaves; any other moves what it wants, and emptied items
// stay behind. A request of a thousand items that is cut in two is moved by 250
// items on average instead of 1000, and a huge one that is cut in many pieces is
// moved by position, by any number of cuts at a time.
//
// It is guarded by the mutex of the index.
type remains struct {
	slice     group     // what the slice holds, the emptied items in front included
	unclaimed span      // what no cut has asked for yet, if that is one range
	scattered bool      // it is not
	claimed   bool      // a cut is to take the slice, as soon as none is moving items
	moving    int       // cuts that are moving items right now, without the lock
	still     sync.Cond // none is
}

// moveShare moves a share of the items src to dst, which is empty. Other shares
// may be moved at the same time.
func moveShare[L list[L, E], E movable[E]](sh share, src, dst L) {
	if sh.part.covers(sh.of) {
		moveItems(sh.of, src, dst, sh.part)
		return
	}
	mu := &sh.ix.mu
	mu.Lock()
	r := sh.ix.remainsLocked(sh.of)
	if r.claimLocked(sh.part) {
		// What the others move is bounded: behind this part are fewer items than it
		// has, and before it at most maxEmptied times as many.
		for r.claimed = true; r.moving > 0; {
			r.still.Wait()
		}
		r.claimed = false
		takeSlice(src, dst, span{sh.part.from - int(r.slice.first), sh.part.to - int(r.slice.first)})
		r.slice.first = int32(sh.part.to)
		mu.Unlock()
		return
	}
	slice := r.slice
	r.moving++
	mu.Unlock()
	moveItems(slice, src, dst, sh.part)
	mu.Lock()
	defer mu.Unlock()
	if r.moving--; r.moving == 0 {
		r.still.Broadcast()
	}
}

func (ix *Index) remainsLocked(g group) *remains {
	r := ix.mu.remains[g.first]
	if r == nil {
		r = &remains{slice: g, unclaimed: span{int(g.first), int(g.end)}}
		r.still.L = &ix.mu
		if ix.mu.remains == nil {
			ix.mu.remains = map[int32]*remains{}
		}
		ix.mu.remains[g.first] = r
	}
	return r
}

// claimLocked says whether the part is to be moved by taking the slice. It takes
// note of parts that follow each other from the front, as they do unless one
// cut overtakes another.
func (r *remains) claimLocked(part span) bool {
	r.scattered = r.scattered || part.from != r.unclaimed.from
	r.unclaimed.from = part.to
	wanted, left, emptied := part.to-part.from, r.unclaimed.to-part.to, part.from-int(r.slice.first)
	return !r.scattered && !r.claimed && wanted >= left && emptied <= maxEmptied*wanted
}

// takeSlice moves the entries in a span to dst. What is behind them stays in src,
// what is in front is empty.
func takeSlice[L list[L, E], E movable[E]](src, dst L, at span) {
	src.MoveAndAppendTo(dst)
	src.EnsureCapacity(dst.Len() - at.to)
	for i := at.to; i < dst.Len(); i++ {
		dst.At(i).MoveTo(src.AppendEmpty())
	}
	i := -1
	dst.RemoveIf(func(E) bool {
		i++
		return i < at.from || i >= at.to
	})
}
