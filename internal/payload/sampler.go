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
	// firstPause is how many times as many resources as a vain sample had are let
	// through before the next one. Each vain sample after another doubles that, up to
	// longestPause, when hashing in vain costs some nanoseconds a resource: little
	// for data that never repeats, and soon enough for data that begins to.
	firstPause, longestPause = 16, 256
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
	ratio        atomic.Int64 // of the last pause; 0 after a sample that was not in vain
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
	switch {
	case allSeen < sampleSize: // another batch has judged the sample
	case allJoined*worthwhile >= allSeen:
		s.ratio.Store(0)
	default:
		ratio := min(max(2*s.ratio.Load(), firstPause), longestPause)
		s.ratio.Store(ratio)
		s.pause.Store(ratio * allSeen)
	}
}

// passed takes note of resources that were let through while off.
func (s *sampler) passed(resources int) { s.pause.Add(-int64(resources)) }

// tally is what one batch has to tell the sampler. It is told now and then: an
// atomic addition for each request costs as much as a tenth of the joining.
type tally struct{ seen, joined, passed int }

// tallied is the number of resources after which a batch tells.
const tallied = sampleSize / 8

func (t *tally) tell(s *sampler, least int) {
	if t.seen+t.passed < least {
		return
	}
	if t.seen > 0 {
		s.found(t.seen, t.joined)
	}
	if t.passed > 0 {
		s.passed(t.passed)
	}
	*t = tally{}
}
