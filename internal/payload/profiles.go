// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import (
	"iter"
	"sync"

	"go.opentelemetry.io/collector/consumer/consumererror/xconsumererror"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/xpdata/pref"
)

// Profiles is the signal whose items are the samples of profiles.
//
// It is like the others but for the dictionary that all samples of a request
// share. A piece gets a dictionary of its own with what it needs, and the first
// two requests of a batch a common one, in which all that follow are looked up.
func Profiles() Signal[pprofile.Profiles] {
	return profilesSignal{profilesTree{profiles{}, &sync.Pool{}}}
}

// profilesTree does what can be done without the dictionary.
type profilesTree = signal[
	pprofile.Profiles,
	pprofile.ResourceProfilesSlice, pprofile.ResourceProfiles,
	pprofile.ScopeProfilesSlice, pprofile.ScopeProfiles,
]

type profilesSignal struct{ profilesTree }

// Cost implements Signal. It also covers the references to strings that pdata
// makes out of the attributes of resources and scopes when it marshals.
func (sg profilesSignal) Cost(data pprofile.Profiles, limit int) int {
	if limit <= 0 {
		return profileSizer.ProfilesSize(data)
	}
	resolveReferences(data)
	m := newMeter(data, limit, sg.bareFor(data))
	defer sg.bares.Put(m.bare)
	return m.cost(data)
}

// ExactCost implements Signal.
func (profilesSignal) ExactCost() bool { return false }

// Index implements Signal.
func (sg profilesSignal) Index(data pprofile.Profiles, bytes bool, limit int) *Index {
	resolveReferences(data)
	if !bytes {
		return sg.profilesTree.Index(data, false, 0)
	}
	m := newMeter(data, limit, sg.bareFor(data))
	defer sg.bares.Put(m.bare)
	return m.index(data)
}

// Cut implements Signal. The dictionary of data is only read, so that it may
// serve any number of cuts at the same time.
func (sg profilesSignal) Cut(data pprofile.Profiles, ix *Index, from, to int) pprofile.Profiles {
	piece := sg.profilesTree.Cut(data, ix, from, to)
	r := newRemap(openDictionary(data.Dictionary()))
	defer r.release()
	r.wantAllOf(piece)
	r.copyTo(piece.Dictionary())
	r.rewriteAllOf(piece)
	return piece
}

// NewMerger implements Signal.
func (sg profilesSignal) NewMerger(mergeResources bool) Merger[pprofile.Profiles] {
	return profilesMerger{sg.profilesTree.NewMerger(mergeResources)}
}

type profilesMerger struct{ Merger[pprofile.Profiles] }

// Begin implements Merger.
func (m profilesMerger) Begin(ordered bool) Batch[pprofile.Profiles] {
	return &profilesBatch{Batch: m.Merger.Begin(ordered)}
}

// profilesBatch gives all data a common dictionary before it is merged.
type profilesBatch struct {
	Batch[pprofile.Profiles]
	begun  bool
	shared *sharedDictionary // nil up to the second data
}

// Add implements Batch. The first data is taken as it is, since many batches
// consist of one request or piece. As soon as there is another, the first one is
// taken over into the common dictionary just as all others are: what is wrong
// with its own dictionary (no null entries, or too many, or entries that nothing
// needs) would be a burden for them.
func (b *profilesBatch) Add(data pprofile.Profiles) {
	if !b.begun {
		b.begun = true
		b.Batch.Add(data)
		return
	}
	if b.shared == nil {
		first := b.Data()
		resolveReferences(first)
		old := pprofile.NewProfiles().Dictionary()
		first.Dictionary().MoveTo(old)
		b.shared = newSharedDictionary(first.Dictionary())
		b.shared.adopt(first, old)
	}
	resolveReferences(data)
	b.shared.adopt(data, data.Dictionary())
	b.shared.saved += framed(nullEntries)
	b.Batch.Add(data)
}

// Saved implements Batch. The sum that it refers to is that of the costs.
func (b *profilesBatch) Saved() int {
	if b.shared == nil {
		return 0
	}
	return b.Batch.Saved() + b.shared.saved
}

type profiles struct{}

var profileSizer = &pprofile.ProtoMarshaler{}

func (profiles) Items(data pprofile.Profiles) int       { return data.SampleCount() }
func (profiles) Bytes(data pprofile.Profiles) int       { return profileSizer.ProfilesSize(data) }
func (profiles) IsReadOnly(data pprofile.Profiles) bool { return data.IsReadOnly() }
func (profiles) Ref(data pprofile.Profiles)             { pref.RefProfiles(data) }
func (profiles) Unref(data pprofile.Profiles)           { pref.UnrefProfiles(data) }

func (profiles) Clone(data pprofile.Profiles) pprofile.Profiles {
	clone := pprofile.NewProfiles()
	data.CopyTo(clone)
	return clone
}

func (profiles) Remainder(err error) (data pprofile.Profiles, ok bool) {
	switch partial := err.(type) { //nolint:errorlint // the node alone
	case xconsumererror.Profiles:
		data = partial.Data()
	case *xconsumererror.Profiles:
		data = partial.Data()
	default:
		return data, false
	}
	return data, true
}

func (profiles) newData() pprofile.Profiles { return pprofile.NewProfiles() }
func (profiles) resources(data pprofile.Profiles) pprofile.ResourceProfilesSlice {
	return data.ResourceProfiles()
}

func (profiles) scopes(r pprofile.ResourceProfiles) pprofile.ScopeProfilesSlice {
	return r.ScopeProfiles()
}

func (profiles) resourceSize(r pprofile.ResourceProfiles) int {
	return profileSizer.ResourceProfilesSize(r)
}
func (profiles) scopeSize(s pprofile.ScopeProfiles) int { return profileSizer.ScopeProfilesSize(s) }

// moveScope does not join profiles: each has an identity of its own.
func (profiles) moveScope(src, dst pprofile.ScopeProfiles) {
	appendAll(src.Profiles(), dst.Profiles())
}

func (profiles) indexScope(ix *Index, s pprofile.ScopeProfiles) {
	for n, p := range s.Profiles().All() {
		ix.open(innerLevel, n)
		ix.skip(p.Samples().Len())
		ix.close(innerLevel, cost{})
	}
}

func (profiles) moveSpan(ix *Index, src, dst pprofile.ScopeProfiles, part span) {
	groups := ix.groups(innerLevel, part)
	dst.Profiles().EnsureCapacity(len(groups))
	for _, g := range groups {
		p, piece := src.Profiles().At(int(g.pos)), dst.Profiles().AppendEmpty()
		if part.covers(g) {
			p.MoveTo(piece)
			continue
		}
		copyHeader(p, piece)
		if part.from <= int(g.first) {
			p.OriginalPayload().MoveTo(piece.OriginalPayload())
		}
		moveShare(share{ix, g, part.within(g)}, p.Samples(), piece.Samples())
	}
}

// copyHeader copies what a profile says of all of its samples. Its original
// payload is not among that: it goes with the first sample, once. A copy in each
// piece would multiply what is sent, and an original above the bound would leave
// no room for a sample.
func copyHeader(p, piece pprofile.Profile) {
	p.SampleType().CopyTo(piece.SampleType())
	p.PeriodType().CopyTo(piece.PeriodType())
	piece.SetTime(p.Time())
	piece.SetDurationNano(p.DurationNano())
	piece.SetPeriod(p.Period())
	piece.SetProfileID(p.ProfileID())
	piece.SetDroppedAttributesCount(p.DroppedAttributesCount())
	piece.SetOriginalPayloadFormat(p.OriginalPayloadFormat())
	p.AttributeIndices().CopyTo(piece.AttributeIndices())
}

func eachProfile(data pprofile.Profiles) iter.Seq[pprofile.Profile] {
	return func(yield func(pprofile.Profile) bool) {
		for _, r := range data.ResourceProfiles().All() {
			for _, s := range r.ScopeProfiles().All() {
				for _, p := range s.Profiles().All() {
					if !yield(p) {
						return
					}
				}
			}
		}
	}
}
