// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

// NewMerger implements Signal.
func (sg signal[T, RL, R, SL, S]) NewMerger(mergeResources bool) Merger[T] {
	m := &merger[T, RL, R, SL, S]{adapter: sg.adapter}
	if mergeResources {
		m.sampler = &sampler{}
	}
	return m
}

// merger appends, and joins what is equal.
type merger[T any, RL list[RL, R], R resourceGroup, SL list[SL, S], S scopeGroup] struct {
	adapter[T, RL, R, SL, S]
	sampler *sampler // nil if nothing is to be joined
}

// Begin implements Merger.
func (m *merger[T, RL, R, SL, S]) Begin(ordered bool) Batch[T] {
	b := &batch[T, RL, R, SL, S]{merger: m}
	if ordered {
		b.order = &order[T, RL, R, SL, S]{adapter: m.adapter, counter: newIndex(0, 0)}
	}
	return b
}

// batch merges n requests in O(requests + resources): items are moved as whole
// slices, and the slices that they go to grow by a factor. Their capacity is
// never set: EnsureCapacity gives exactly what is asked for, so that asking on
// each request would copy everything on each request.
type batch[T any, RL list[RL, R], R resourceGroup, SL list[SL, S], S scopeGroup] struct {
	*merger[T, RL, R, SL, S]
	data   T
	begun  bool
	plain  bool                     // nothing is joined any more
	tally  tally                    // of what the sampler has not been told
	joiner *joiner[T, RL, R, SL, S] // nil until there is something to join with
	order  *order[T, RL, R, SL, S]  // nil if nobody asks for it
}

// Add implements Batch.
func (b *batch[T, RL, R, SL, S]) Add(data T) {
	if !b.begun {
		b.data, b.begun = data, true
		b.order.add(b.resources(data))
		return
	}
	src, dst := b.resources(data), b.resources(b.data)
	b.order.next()
	if !b.join(src, dst) {
		b.order.add(src)
	}
	appendAll(src, dst)
}

// Order implements Batch.
func (b *batch[T, RL, R, SL, S]) Order() []Run { return b.order.runs() }

// join takes out of src what goes into resources of the batch. It reports false
// if nothing is joined.
//
// A batch may stop joining, when the sampler finds that it is in vain, but not
// begin with it later: what is appended stays behind what was joined before, and
// what was joined later would overtake it.
func (b *batch[T, RL, R, SL, S]) join(src, dst RL) bool {
	if b.sampler == nil {
		return false
	}
	defer b.tally.tell(b.sampler, tallied)
	seen := src.Len()
	if b.plain = b.plain || !b.sampler.on(); b.plain {
		b.tally.passed += seen
		return false
	}
	if b.joiner == nil {
		b.joiner = newJoiner(b.adapter)
		b.joiner.order = b.order
		b.joiner.begin(dst)
	}
	b.joiner.join(src, dst.Len())
	b.tally.seen += seen
	b.tally.joined += seen - src.Len()
	return true
}

// Saved implements Batch.
func (b *batch[T, RL, R, SL, S]) Saved() int {
	if b.joiner == nil {
		return 0
	}
	return b.joiner.saved
}

// Data implements Batch.
func (b *batch[T, RL, R, SL, S]) Data() T {
	if !b.begun {
		b.data = b.newData()
	}
	if b.sampler != nil {
		b.tally.tell(b.sampler, 1)
	}
	return b.data
}
