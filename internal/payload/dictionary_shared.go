// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import "go.opentelemetry.io/collector/pdata/pprofile"

// sharedDictionary is the dictionary of a batch. It knows where each of its
// entries is for as long as the batch is in the making, so that adding n requests
// costs the entries of these requests. (The library's MergeTo looks at the whole
// destination each time.)
type sharedDictionary struct {
	sizer
	// places holds the index of each entry by its key.
	places [tableCount]map[string]int32
	key    []byte
	saved  int // bytes of what was there already
}

// newSharedDictionary makes a dictionary in place of an empty one.
func newSharedDictionary(d pprofile.ProfilesDictionary) *sharedDictionary {
	s := &sharedDictionary{}
	newDictionary(d)
	s.sizer = newSizer(d, 0)
	for t := range tableCount {
		s.places[t] = map[string]int32{string(s.src.appendKey(nil, t, 0)): 0}
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
	if at, ok := s.places[t][string(s.key)]; ok {
		s.saved += s.entry(t, at)
		return at
	}
	at := int32(s.length[t])
	s.src.appendMoved(t, from, i)
	s.length[t]++
	s.places[t][string(s.key)] = at
	return at
}
