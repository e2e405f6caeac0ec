// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import "sync/atomic"

const (
	// sampleSize is the number of resources after which a sample is judged. It is
	// larger than the number of resources of most deployments of one collector,
	// each of which must be seen once before it can be seen again.
	sampleSize = 1024
	// worthwhile is the share of resources, one in so many, that must have an equal
	// one in their batch. A resource that is joined saves its own marshalling,
	// sending and parsing, some microseconds; a hash is well below one.
	worthwhile = 16
	// pauseRatio is how many times as many resources as a vain sample had are let
	// through before the next one, which makes hashing in vain cost a twentieth.
	pauseRatio = 16
)

// sampler decides whether it is worthwhile to look for equal resources, from
// what has been found. It belongs to all batches of an exporter, whose counts
// may interleave in any way: a few resources that fall between two samples
// change nothing.
//
// Deciding per batch would make each of them learn anew, and small batches
// would never learn.
type sampler struct {
	seen, joined atomic.Int64 // in this sample; atomic, because workers share them
	pause        atomic.Int64 // resources left to let through; off while above zero
}

// on says whether to look for equal resources.
func (s *sampler) on() bool { return s.pause.Load() <= 0 }

// found takes note of the number of resources that were looked for in a batch,
// and how many of them had an equal one there.
func (s *sampler) found(seen, joined int) {
	allJoined := s.joined.Add(int64(joined))
	if s.seen.Add(int64(seen)) < sampleSize {
		return
	}
	allSeen := s.seen.Swap(0)
	s.joined.Store(0)
	if allSeen >= sampleSize && allJoined*worthwhile < allSeen {
		s.pause.Store(pauseRatio * allSeen)
	}
}

// passed takes note of resources that were let through while off.
func (s *sampler) passed(resources int) { s.pause.Add(-int64(resources)) }
