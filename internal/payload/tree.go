// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import (
	"math/bits"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// The levels of the index that every signal has, and the one that two have.
const (
	resourceLevel = iota
	scopeLevel
	innerLevel
)

// list is a slice of pdata.
type list[L, E any] interface {
	Len() int
	At(int) E
	AppendEmpty() E
	EnsureCapacity(int)
	MoveAndAppendTo(L)
	RemoveIf(func(E) bool)
}

// movable is an entry of such a slice.
type movable[E any] interface {
	MoveTo(E)
}

// resourceGroup is ResourceLogs and its kind.
type resourceGroup interface {
	Resource() pcommon.Resource
	SchemaUrl() string
	SetSchemaUrl(string)
}

// scopeGroup is ScopeLogs and its kind.
type scopeGroup interface {
	Scope() pcommon.InstrumentationScope
	SchemaUrl() string
	SetSchemaUrl(string)
}

// adapter is what is special about a signal, whose data T is resources R, with
// scopes S in them, with items in those. RL and SL are the slices of them.
type adapter[T any, RL list[RL, R], R resourceGroup, SL list[SL, S], S scopeGroup] interface {
	basics[T]

	newData() T
	resources(T) RL
	scopes(R) SL

	// resourceSize and scopeSize are the protobuf sizes of a group with all that
	// is in it, without its own tag and length prefix.
	resourceSize(R) int
	scopeSize(S) int

	// indexScope adds the items of a scope to the index.
	indexScope(*Index, S)

	// moveSpan moves items from scope src to scope dst, which is empty. Other
	// spans of src may be moved at the same time.
	moveSpan(ix *Index, src, dst S, part span)

	// moveScope moves all that src holds to the end of dst.
	moveScope(src, dst S)
}

// basics are the parts of Signal that need no walk of ours.
type basics[T any] interface {
	Items(data T) int
	Bytes(data T) int
	Clone(data T) T
	IsReadOnly(data T) bool
	Ref(data T)
	Unref(data T)
	Remainder(err error) (T, bool)
}

// signal is a Signal whose items share nothing but their headers. Its methods
// and those of joiner are the only ones that walk the data.
type signal[T any, RL list[RL, R], R resourceGroup, SL list[SL, S], S scopeGroup] struct {
	adapter[T, RL, R, SL, S]
	bares *sync.Pool // of *bare
}

// Cost implements Signal.
func (sg signal[T, RL, R, SL, S]) Cost(data T, _ int) int { return sg.Bytes(data) }

// ExactCost implements Signal.
func (signal[T, RL, R, SL, S]) ExactCost() bool { return true }

// Index implements Signal.
func (sg signal[T, RL, R, SL, S]) Index(data T, bytes bool, _ int) *Index {
	bounds := 0
	if bytes {
		bounds = 1
	}
	ix, bare := newIndex(sg.Items(data), bounds), sg.bareFor(data)
	defer sg.bares.Put(bare)
	resources := sg.resources(data)
	for r := range resources.Len() {
		ix.open(resourceLevel, r)
		scopes := sg.scopes(resources.At(r))
		for s := range scopes.Len() {
			ix.open(scopeLevel, s)
			sg.indexScope(ix, scopes.At(s))
			ix.close(scopeLevel, bare.scopeCost(ix, scopes.At(s)))
		}
		ix.close(resourceLevel, bare.resourceCost(ix, resources.At(r)))
	}
	return ix.finish()
}

// Cut implements Signal.
//
// Several cuts of one request may run at the same time. That is safe because
// all they share is groups of which each takes a part: their headers are only
// copied, and for their items see remains. A group that a cut takes as a whole
// is no concern of the others, so its header and its items move as they are. The
// slices of resources and scopes never change.
func (sg signal[T, RL, R, SL, S]) Cut(data T, ix *Index, from, to int) T {
	out, all := sg.newData(), span{from, to}
	groups := ix.groups(resourceLevel, all)
	src, dst := sg.resources(data), sg.resources(out)
	dst.EnsureCapacity(len(groups))
	for _, g := range groups {
		r, piece := src.At(int(g.pos)), dst.AppendEmpty()
		if all.covers(g) {
			r.Resource().MoveTo(piece.Resource())
			piece.SetSchemaUrl(r.SchemaUrl())
		} else {
			copyResource(r, piece)
		}
		sg.cutScopes(ix, sg.scopes(r), sg.scopes(piece), all.within(g))
	}
	return out
}

func (sg signal[T, RL, R, SL, S]) cutScopes(ix *Index, src, dst SL, part span) {
	groups := ix.groups(scopeLevel, part)
	dst.EnsureCapacity(len(groups))
	for _, g := range groups {
		s, piece := src.At(int(g.pos)), dst.AppendEmpty()
		if part.covers(g) {
			s.Scope().MoveTo(piece.Scope())
			piece.SetSchemaUrl(s.SchemaUrl())
		} else {
			copyScope(s, piece)
		}
		sg.moveSpan(ix, s, piece, part.within(g))
	}
}

// bare finds out how large a resource or scope is without its content. The
// library only sizes a group with all that is in it, and to size each item once
// more on every level is what an index is there to avoid. So the content is taken
// out for a moment; of data that is shared, a copy of the header is sized.
type bare[T any, RL list[RL, R], R resourceGroup, SL list[SL, S], S scopeGroup] struct {
	adapter[T, RL, R, SL, S]
	shared   bool
	resource R // without content, and so is
	scope    S
}

// bareFor returns a bare from the pool, into which it must be put back.
func (sg signal[T, RL, R, SL, S]) bareFor(data T) *bare[T, RL, R, SL, S] {
	b, ok := sg.bares.Get().(*bare[T, RL, R, SL, S])
	if !ok {
		groups := sg.resources(sg.newData())
		b = &bare[T, RL, R, SL, S]{
			adapter:  sg.adapter,
			resource: groups.AppendEmpty(),
			scope:    sg.scopes(groups.AppendEmpty()).AppendEmpty(),
		}
	}
	b.shared = sg.IsReadOnly(data)
	return b
}

func (b *bare[T, RL, R, SL, S]) resourceHeader(r R) int {
	if b.shared {
		copyResource(r, b.resource)
		return b.resourceSize(b.resource)
	}
	content, aside := b.scopes(r), b.scopes(b.resource)
	content.MoveAndAppendTo(aside)
	size := b.resourceSize(r)
	aside.MoveAndAppendTo(content)
	return size
}

func (b *bare[T, RL, R, SL, S]) scopeHeader(s S) int {
	if b.shared {
		copyScope(s, b.scope)
		return b.scopeSize(b.scope)
	}
	b.moveScope(s, b.scope)
	size := b.scopeSize(s)
	b.moveScope(b.scope, s)
	return size
}

func (b *bare[T, RL, R, SL, S]) resourceCost(ix *Index, r R) cost {
	if !ix.hasBytes() {
		return cost{}
	}
	return ix.frame(resourceLevel, b.resourceHeader(r))
}

func (b *bare[T, RL, R, SL, S]) scopeCost(ix *Index, s S) cost {
	if !ix.hasBytes() {
		return cost{}
	}
	return ix.frame(scopeLevel, b.scopeHeader(s))
}

func copyResource[R resourceGroup](src, dst R) {
	src.Resource().CopyTo(dst.Resource())
	dst.SetSchemaUrl(src.SchemaUrl())
}

func copyScope[S scopeGroup](src, dst S) {
	src.Scope().CopyTo(dst.Scope())
	dst.SetSchemaUrl(src.SchemaUrl())
}

// addItems adds the items of a slice to an index with one bound or none. It does
// what item does, without a call for each of them.
func addItems[L list[L, E], E any](ix *Index, items L, size func(E) int) {
	n := items.Len()
	ix.skip(n)
	if !ix.hasBytes() {
		return
	}
	sum, cum := 0, ix.bounds[0].cum
	for i := range n {
		c := framed(size(items.At(i)))
		sum += c
		cum = append(cum, c)
	}
	ix.total += sum
	ix.bounds[0].cum = cum
}

// moveItems moves a part of group g, whose items are src, to dst, which is empty.
func moveItems[L list[L, E], E movable[E]](g group, src, dst L, part span) {
	if part.covers(g) {
		src.MoveAndAppendTo(dst)
		return
	}
	dst.EnsureCapacity(part.to - part.from)
	for i := part.from; i < part.to; i++ {
		src.At(i - int(g.first)).MoveTo(dst.AppendEmpty())
	}
}

// appendAll moves all of src to the end of dst. To grow a slice by a quarter, as
// append does with large ones, copies each entry some four times until a batch
// is complete, and append cannot be told to take more. So dst gets room for the
// next power of four when it comes to the last one: asking on each call would
// grow it to just what is needed, which is worse.
func appendAll[L list[L, E], E any](src, dst L) {
	have := dst.Len()
	if have > 0 {
		if room := powerOfFour(have + src.Len()); room > powerOfFour(have) {
			dst.EnsureCapacity(room)
		}
	}
	src.MoveAndAppendTo(dst)
}

// powerOfFour is the smallest one that is not below n.
func powerOfFour(n int) int { return 1 << ((bits.Len(uint(n-1)) + 1) &^ 1) }
