// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import (
	"bytes"
	"hash/maphash"

	"go.opentelemetry.io/collector/pdata/pprofile"
)

// sharedDictionary is the dictionary of a batch. It knows where each of its
// entries is for as long as the batch is in the making, so that adding n requests
// costs the entries of these requests. (The library's MergeTo looks at the whole
// destination each time.)
type sharedDictionary struct {
	sizer
	// places holds the index of each entry by the hash of its key, or by the next
	// number that is free. Keys in the place of the hashes would double what a
	// dictionary takes in memory, and give the garbage collector pointers to follow.
	places     [tableCount]map[uint64]int32
	key, other []byte // scratch
	saved      int    // bytes of what was there already
}

// newSharedDictionary makes a dictionary in place of an empty one.
func newSharedDictionary(d pprofile.ProfilesDictionary) *sharedDictionary {
	s := &sharedDictionary{}
	newDictionary(d)
	s.sizer = newSizer(d, 0)
	for t := range tableCount {
		null := maphash.Bytes(seed, s.src.appendKey(nil, t, 0))
		s.places[t] = map[uint64]int32{null: 0}
	}
	return s
}

// adopt makes data, whose dictionary is another, refer to this one. What it needs
// is moved here, and all else in its dictionary forgotten.
func (s *sharedDictionary) adopt(data pprofile.Profiles, from pprofile.ProfilesDictionary) {
	r := newRemap(openDictionary(from))
	defer r.release()
	r.wantAllOf(data)
	r.moveTo(s)
	r.rewriteAllOf(data)
}

// place returns the index of an entry that is equal to one of another dictionary,
// whose references point into this one already, and moves it here if there is none.
func (s *sharedDictionary) place(t table, from *dictionary, i int32) int32 {
	s.key = from.appendKey(s.key[:0], t, i)
	for hash := maphash.Bytes(seed, s.key); ; hash++ {
		at, taken := s.places[t][hash]
		if !taken {
			at = int32(s.length[t])
			s.src.appendMoved(t, from, i)
			s.length[t]++
			s.places[t][hash] = at
			return at
		}
		s.other = s.src.appendKey(s.other[:0], t, at)
		if bytes.Equal(s.key, s.other) {
			s.saved += s.entry(t, at)
			return at
		}
	}
}
