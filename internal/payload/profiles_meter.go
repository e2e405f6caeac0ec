// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

// The bounds of an index of profiles. What a range of samples needs of the
// dictionary is at the most
const (
	closureBound  = iota // the sum of what each of them needs by itself,
	recentBound          // or what was remembered before, and what was not: see recent.
	profileBounds = recentBound + len(recentShares)
)

// meter measures how large a request, or a part of one, can become in a batch.
// For an exact answer one would have to know which entries the batch holds, and
// how many, so all of it is an upper bound.
type meter struct {
	sizer
	bare    *profilesBare
	limit   int
	message int // bytes of the request as it is
	total   int // bytes of all entries of the dictionary
	texts   int // number of texts in attributes, up to now

	maxSteps int    // of each of the walks
	ix       *Index // nil if only the whole is asked for
	recent   [len(recentShares)]recent
	one      *remap            // marks what one entry needs
	closures [tableCount][]int // bytes of that; 0 if not known
	sums     [tableCount][]int // upper bounds of closures, once they took too many steps
	entries  int               // bytes of the dictionary of a piece, at the most
}

// stepsPerByte bounds what each of the walks through a dictionary may cost, in
// proportion to the message: any number of stacks may share a location with any
// number of attributes. Ordinary data takes one to five.
const stepsPerByte = 8

type profilesBare = bare[
	pprofile.Profiles,
	pprofile.ResourceProfilesSlice, pprofile.ResourceProfiles,
	pprofile.ScopeProfilesSlice, pprofile.ScopeProfiles,
]

func newMeter(data pprofile.Profiles, limit int, bare *profilesBare) *meter {
	message := profileSizer.ProfilesSize(data)
	m := &meter{
		sizer:    newSizer(data.Dictionary(), limit),
		bare:     bare,
		limit:    limit,
		message:  message,
		maxSteps: stepsPerByte * message,
	}
	m.total = m.all()
	return m
}

// cost is what data adds to a batch at the most. A batch that consists of it
// alone takes it as it is, and any other only the entries that are not null.
func (m *meter) cost(data pprofile.Profiles) int { return m.whole(m.request(data)) }

// whole is the cost of data whose resources have a size of merged.
func (m *meter) whole(merged int) int {
	entries := nullEntries + m.total
	merged += m.prefix(entries) + entries
	return max(m.message+m.growth(), merged)
}

// growth is by how much data becomes larger at the most when it is marshalled as
// it is: its table of strings may hold more than one of a batch, since nothing
// keeps a sender from any number of empty ones, or not even the first of them.
func (m *meter) growth() int {
	size := 0
	if m.limit > 0 && m.length[stringTable] == 0 {
		size += framed(0)
	}
	if m.texts > 0 {
		size += m.texts * (1 + max(m.width[stringTable], varintLen(m.length[stringTable]+m.texts)))
	}
	if size > 0 {
		size += maxPrefixGrowth
	}
	return size
}

// prefix is the size of tag and length prefix of the dictionary.
func (m *meter) prefix(entries int) int { return 1 + varintLen(max(entries, m.limit)) }

// index makes the index of data.
func (m *meter) index(data pprofile.Profiles) *Index {
	m.ix = newIndex(data.SampleCount(), profileBounds)
	m.begin()
	defer m.end()
	merged := m.request(data)
	for i := range m.ix.bounds {
		m.ix.bounds[i].base = m.prefix(min(m.entries, nullEntries+m.total)) + nullEntries
	}
	m.ix.finish().whole = m.whole(merged)
	return m.ix
}

func (m *meter) begin() {
	m.keepSizes()
	for n, share := range recentShares {
		m.recent[n] = newRecent(m.src, m.limit/share)
		m.recent[n].all, m.recent[n].maxSteps = m.total, m.maxSteps
		m.ix.bounds[recentBound+n].shared = make([]int, 1, cap(m.ix.bounds[recentBound+n].cum))
	}
	m.one = newRemap(m.src)
	for _, t := range [...]table{attributeTable, linkTable, stackTable} {
		m.closures[t] = make([]int, m.length[t])
	}
	m.entries = nullEntries
}

func (m *meter) end() {
	for n := range m.recent {
		m.recent[n].release()
	}
	m.one.release()
}

// request is the size of all resources. On the way it fills the index, if there
// is one.
func (m *meter) request(data pprofile.Profiles) int {
	size := 0
	for n, r := range data.ResourceProfiles().All() {
		size += framed(m.resource(n, r))
	}
	return size
}

func (m *meter) resource(pos int, r pprofile.ResourceProfiles) int {
	m.open(resourceLevel, pos)
	header := m.bare.resourceHeader(r) + m.textReferences(r.Resource().Attributes())
	size := header
	for n, s := range r.ScopeProfiles().All() {
		size += framed(m.scope(n, s))
	}
	m.close(resourceLevel, framed(size)-size+header)
	return size
}

func (m *meter) scope(pos int, s pprofile.ScopeProfiles) int {
	m.open(scopeLevel, pos)
	header := m.bare.scopeHeader(s) + m.textReferences(s.Scope().Attributes())
	size := header
	for n, p := range s.Profiles().All() {
		size += framed(m.profile(n, p))
	}
	m.close(scopeLevel, framed(size)-size+header)
	return size
}

func (m *meter) profile(pos int, p pprofile.Profile) int {
	m.open(innerLevel, pos)
	header, original := m.header(p), payloadSize(p)
	size := header + original
	for n := range p.Samples().Len() {
		s := p.Samples().At(n)
		own := m.sample(s)
		size += own
		if n == 0 {
			own += original
		}
		m.item(s, own)
	}
	m.close(innerLevel, framed(size)-size+header+m.headerClosure(p))
	return size
}

// textReferences is what it costs that pdata turns texts in attributes into
// references when it marshals: their strings move to the dictionary, and each
// leaves a reference.
func (m *meter) textReferences(attrs pcommon.Map) int {
	if m.limit <= 0 {
		return 0
	}
	texts := countTexts(attrs)
	m.texts += texts
	return texts * (1 + m.width[stringTable])
}

func countTexts(attrs pcommon.Map) int {
	n := attrs.Len()
	for _, v := range attrs.All() {
		n += countValueTexts(v)
	}
	return n
}

func countValueTexts(v pcommon.Value) int {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return 1
	case pcommon.ValueTypeMap:
		return countTexts(v.Map())
	case pcommon.ValueTypeSlice:
		n := 0
		for _, e := range v.Slice().All() {
			n += countValueTexts(e)
		}
		return n
	}
	return 0
}

func (m *meter) open(level, pos int) {
	if m.ix != nil {
		m.ix.open(level, pos)
	}
}

func (m *meter) close(level, header int) {
	if m.ix != nil {
		m.ix.close(level, cost{header, header, header})
	}
}

// item adds a sample of a given size to the index.
func (m *meter) item(s pprofile.Sample, own int) {
	if m.ix == nil {
		return
	}
	closure := m.closure(stackTable, s.StackIndex()) + m.closure(linkTable, s.LinkIndex()) +
		m.closureOfList(s.AttributeIndices())
	m.entries += closure
	c := cost{closureBound: own + closure}
	for n := range m.recent {
		held := m.recent[n].bytes()
		c[recentBound+n] = own + m.recent[n].add(&m.sizer, s)
		b := &m.ix.bounds[recentBound+n]
		b.shared = append(b.shared, m.recent[n].bytes()-held)
	}
	m.ix.item(c)
}

// headerClosure is the size of what a profile needs of the dictionary but for its
// samples. It counts on top of these in each piece.
func (m *meter) headerClosure(p pprofile.Profile) int {
	if m.ix == nil {
		return 0
	}
	m.one.wantHeader(p)
	size := m.needed()
	m.entries += size
	return size
}

func (m *meter) closureOfList(attributes pcommon.Int32Slice) int {
	size := 0
	for n := range attributes.Len() {
		size += m.closure(attributeTable, attributes.At(n))
	}
	return size
}

// closure is the size of an entry and of all that it needs, each counted once, or
// an upper bound of it if that has cost too much up to now.
func (m *meter) closure(t table, i int32) int {
	if i < 0 || int(i) >= m.length[t] {
		return 0
	}
	if m.closures[t][i] == 0 {
		if m.one.steps > m.maxSteps {
			m.closures[t][i] = m.sum(t, i)
		} else {
			m.one.want(t, i)
			m.closures[t][i] = m.needed()
		}
	}
	return m.closures[t][i]
}

// sum is the size of an entry and the sums of all to which it refers itself, but
// not more than there is in the dictionary. For all entries together that costs
// one look at each reference.
func (m *meter) sum(t table, i int32) int {
	if m.sums[t] != nil {
		return m.sums[t][i]
	}
	for u := range tableCount {
		m.sums[u] = make([]int, m.length[u])
		for k := range m.sums[u] {
			if m.src.isNull(u, int32(k)) {
				continue
			}
			size := m.size(u, int32(k))
			m.one.follow(u, k)
			for needed, all := range m.one.needed {
				for _, n := range all {
					size += m.sums[needed][n]
				}
			}
			m.one.reset()
			m.sums[u][k] = min(size, m.total)
		}
	}
	return m.sums[t][i]
}

// needed is the size of what is marked in one, and of what that needs.
func (m *meter) needed() int {
	m.one.complete()
	size := 0
	for t := range tableCount {
		for _, i := range m.one.needed[t] {
			size += m.size(t, i)
		}
	}
	m.one.reset()
	return size
}
