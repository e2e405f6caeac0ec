// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import (
	"math/bits"
	"sort"
	"sync"
)

// maxLevels is the number of levels of groups above the items: resource and
// scope in every signal, and metric or profile in two of them.
const maxLevels = 3

// Index says where the items of one request are, and what each of them adds to
// the size of a batch.
//
// Rules:
//
//  1. Items are numbered from 0 in the order in which they stand in the data.
//     The groups of a level cover all of them without a gap: groups without
//     items are not in the index, hence in no cut.
//  2. Nothing that its exported methods read changes once it is made, so any
//     number of goroutines may call them, the queue under its lock among them:
//     each is O(log n) and allocates nothing.
//  3. Cost is never below the exact size of what Cut makes. Of a group that a
//     cut takes a part of it counts the length prefix of the whole group, which
//     may be a few bytes too long.
//
// A list with the exact size of each possible piece would need the sizes of the
// prefixes of all partial groups, that is, a search within the search.
type Index struct {
	items  int
	levels [maxLevels][]group
	// bounds are ways to bound the size of a range from above. The lowest of
	// them counts. None without bytes, one for most signals, three for profiles.
	bounds []bound
	whole  int // cost of all of the data

	// Until the index is finished: the bytes of the groups without items in the
	// open group of the level above, which is the data itself for the first; the
	// cost of all that is closed, under the first bound; and that cost when the
	// open group of a level began.
	empty  [maxLevels + 1]int
	total  int
	opened [maxLevels]int

	// common is where the lists begin: most requests have one resource with one
	// scope, and their index then takes two allocations.
	common struct {
		bound   [1]bound
		groups  [maxLevels][1]group
		headers [maxLevels][1]int
	}

	mu struct { // used by Cut alone
		sync.Mutex
		remains map[int32]*remains // by first item, of groups of items that are cut
	}
}

// group is a resource, scope, metric or profile that has items. Positions take
// four bytes: data with more entries does not fit into memory.
type group struct {
	first, end int32 // its items
	pos        int32 // its place in the slice of its parent
}

// cost is a number of bytes under each of the bounds.
type cost [3]int

// bound gives an upper bound of the size of each range of items.
type bound struct {
	// base is what every request costs, even one without items.
	base int
	// cum[i] is the cost of the items [0, i). The header of a group counts with
	// its first item, so one subtraction gives the cost of a range, but for the
	// headers that were opened before it.
	cum []int
	// headers holds the cost of the header of each group of each level.
	headers [maxLevels][]int
	// shared[i] is what items before i have brought in and later ones may need
	// as well (entries of a dictionary); nil if there is no such thing.
	shared []int
}

// Items is the number of items.
func (ix *Index) Items() int { return ix.items }

// Whole is the cost of all of the data, the groups without items included: what
// Signal.Cost returns. The index must have been made with bytes.
func (ix *Index) Whole() int { return ix.whole }

// Cost is the number of bytes that the items [from, to) need at the most as a
// request of their own. The index must have been made with bytes.
func (ix *Index) Cost(from, to int) int {
	least := 0
	for i := range ix.bounds {
		b := &ix.bounds[i]
		c := b.base
		if from < to {
			c = ix.lead(b, from) + b.cum[to] - b.cum[from]
		}
		if i == 0 || c < least {
			least = c
		}
	}
	return least
}

// Fit returns the largest `to` such that Cost(from, to) is at most room; from if
// not even one item fits. The index must have been made with bytes.
func (ix *Index) Fit(from, room int) int {
	if from >= ix.items {
		return from
	}
	to := from
	for i := range ix.bounds {
		b := &ix.bounds[i]
		left := room - ix.lead(b, from)
		rest := b.cum[from+1:]
		to = max(to, from+sort.Search(len(rest), func(n int) bool { return rest[n]-b.cum[from] > left }))
	}
	return to
}

// lead is what a request that begins with item from costs before its first
// item: the headers of all groups that began earlier, and what it may share
// with earlier items.
func (ix *Index) lead(b *bound, from int) int {
	lead := b.base
	if b.shared != nil {
		lead += b.shared[from]
	}
	for level := range ix.levels {
		g := ix.at(level, from)
		if g >= 0 && int(ix.levels[level][g].first) < from {
			lead += b.headers[level][g]
		}
	}
	return lead
}

// group is the group of a level that holds an item.
func (ix *Index) group(level, item int) group { return ix.levels[level][ix.at(level, item)] }

// at is the number of the group of a level that holds an item, or -1 if the
// level is not used or there is no such item.
func (ix *Index) at(level, item int) int {
	groups := ix.levels[level]
	if item >= ix.items {
		return -1
	}
	return sort.Search(len(groups), func(n int) bool { return int(groups[n].first) > item }) - 1
}

// span is the range of items [from, to).
type span struct{ from, to int }

// within is the part of the span that lies in the group.
func (s span) within(g group) span {
	return span{max(s.from, int(g.first)), min(s.to, int(g.end))}
}

// covers says whether the span holds all items of the group.
func (s span) covers(g group) bool {
	return s.from <= int(g.first) && int(g.end) <= s.to
}

// groups are the groups of a level that hold some of the items of a span.
func (ix *Index) groups(level int, s span) []group {
	lo := ix.at(level, s.from)
	if lo < 0 || s.from >= s.to {
		return nil
	}
	groups := ix.levels[level][lo:]
	n := 1 + sort.Search(len(groups)-1, func(n int) bool { return int(groups[n+1].first) >= s.to })
	return groups[:n]
}

// newIndex returns an empty index, to be filled in the order of the items with
// open, item or skip, and close, and finished with finish. With no bounds it
// holds positions only. items is the number of items, if known.
func newIndex(items, bounds int) *Index {
	ix := &Index{}
	if ix.bounds = ix.common.bound[:]; bounds != len(ix.bounds) {
		ix.bounds = make([]bound, bounds)
	}
	for level := range maxLevels {
		ix.levels[level] = ix.common.groups[level][:0]
		if bounds > 0 {
			ix.bounds[0].headers[level] = ix.common.headers[level][:0]
		}
	}
	for i := range ix.bounds {
		ix.bounds[i].cum = make([]int, 1, items+1)
	}
	return ix
}

// hasBytes says whether costs are asked for.
func (ix *Index) hasBytes() bool { return len(ix.bounds) > 0 }

// open begins a group, which stands at pos in the slice of its parent.
func (ix *Index) open(level, pos int) {
	ix.levels[level] = append(ix.levels[level], group{first: int32(ix.items), pos: int32(pos)})
	ix.opened[level] = ix.total
}

// item adds one item to the open groups. Its cost is its size with tag and
// length prefix.
func (ix *Index) item(c cost) {
	ix.items++
	ix.total += c[0]
	for i := range ix.bounds {
		b := &ix.bounds[i]
		b.cum = append(b.cum, c[i])
	}
}

// skip adds n items without their cost.
func (ix *Index) skip(n int) { ix.items += n }

// spent is the sum of the costs of all items since the open group of that level
// began, with the headers of the groups closed within. It is right for an index
// with one bound.
func (ix *Index) spent(level int) int { return ix.total - ix.opened[level] }

// frame is the cost of the header of the open group of a level, if the group is
// headerSize bytes large without content. It is right for an index with one
// bound, and nothing for one without bytes.
func (ix *Index) frame(level, headerSize int) cost {
	if !ix.hasBytes() {
		return cost{}
	}
	content := ix.spent(level) + ix.empty[level+1]
	return cost{framed(headerSize+content) - content}
}

// close ends the open group of a level, and forgets it if it has no items. header
// is the cost of all that the group needs but its items, its own tag and length
// prefix included.
func (ix *Index) close(level int, header cost) {
	groups := ix.levels[level]
	last := &groups[len(groups)-1]
	ix.empty[level] += ix.empty[level+1]
	ix.empty[level+1] = 0
	if int(last.first) == ix.items {
		ix.levels[level] = groups[:len(groups)-1]
		ix.empty[level] += header[0]
		return
	}
	last.end = int32(ix.items)
	ix.total += header[0]
	for i := range ix.bounds {
		b := &ix.bounds[i]
		b.headers[level] = append(b.headers[level], header[i])
		b.cum[last.first+1] += header[i]
	}
}

// finish turns the costs of single items into running sums. Until then, cum and
// shared hold in i+1 what item i adds.
func (ix *Index) finish() *Index {
	for i := range ix.bounds {
		accumulate(ix.bounds[i].cum)
		accumulate(ix.bounds[i].shared)
	}
	if ix.hasBytes() {
		ix.whole = ix.Cost(0, ix.items) + ix.empty[0]
	}
	return ix
}

func accumulate(sums []int) {
	for i := 1; i < len(sums); i++ {
		sums[i] += sums[i-1]
	}
}

// varintLen is the length of a protobuf varint.
func varintLen(n int) int { return (bits.Len64(uint64(n)|1) + 6) / 7 }

// framed is the size of an embedded message or string of n bytes under a field
// number below 16.
func framed(n int) int { return 1 + varintLen(n) + n }
