// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

const (
	// maxScanned is the number of identities up to which looking at each hash is
	// faster than a map.
	maxScanned = 8
	// maxAlike bounds the number of identities of equal hash that are compared.
	// Only such as have the same key more than once, with the values in different
	// orders, can be made to collide.
	maxAlike = 8
)

// registry finds the identities of a batch's resources, or of a resource's
// scopes, by their order of arrival.
//
// The simplest way, to compare with each of them, is as fast for one resource
// and slower by half for fifty.
type registry struct {
	known  []identity
	hashes []uint64
	byHash map[uint64]int // the last with a hash; nil up to maxScanned of them
	before []int          // the one before with the same hash; used with byHash

	probe   identity // what the caller looks for: set it, then find, then maybe add
	hash    uint64   // of probe, if the last search needed it
	last    int      // where the last search ended
	repeats bool     // the last search ended where the one before it did
}

// find returns the number of the identity that equals probe, or -1.
//
// Most data comes in long runs of one resource. As long as it does, a comparison
// with the last one is all it takes; as soon as it does not, that comparison is
// left out.
func (g *registry) find() int {
	if g.repeats && g.known[g.last].equalInOrder(&g.probe) {
		return g.last
	}
	g.hash = g.probe.hash()
	found := g.search()
	g.repeats = found >= 0 && found == g.last
	if found >= 0 {
		g.last = found
	}
	return found
}

func (g *registry) search() int {
	for i, tries := g.alike(len(g.known)), 0; i >= 0 && tries < maxAlike; i, tries = g.alike(i), tries+1 {
		if g.known[i].equal(&g.probe) {
			return i
		}
	}
	return -1
}

// alike is the last identity before i with the hash of the probe, or -1. If i is
// not the number of all identities, it must be such an identity itself.
func (g *registry) alike(i int) int {
	switch {
	case g.byHash == nil:
		for i--; i >= 0 && g.hashes[i] != g.hash; i-- {
		}
		return i
	case i < len(g.known):
		return g.before[i]
	}
	if last, ok := g.byHash[g.hash]; ok {
		return last
	}
	return -1
}

// add gives the probe, which find has not found, the next number.
func (g *registry) add() {
	g.last, g.repeats = len(g.known), true
	g.known = append(g.known, g.probe.keep())
	g.hashes = append(g.hashes, g.hash)
	if g.byHash == nil && len(g.known) <= maxScanned {
		return
	}
	if g.byHash == nil {
		g.byHash = make(map[uint64]int, 4*maxScanned)
	}
	for i := len(g.before); i < len(g.known); i++ {
		g.chain(i)
	}
}

func (g *registry) chain(i int) {
	before, ok := g.byHash[g.hashes[i]]
	if !ok {
		before = -1
	}
	g.before = append(g.before, before)
	g.byHash[g.hashes[i]] = i
}
