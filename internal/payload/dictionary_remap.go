// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import (
	"slices"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

// remap takes what some samples need from one dictionary to another.
//
// First all that is needed is marked (want…, then complete), then it is placed in
// the destination (copyTo or moveTo), and then what refers to it is rewritten
// (rewrite…). Entries that nothing refers to are left behind.
//
// An index that points nowhere becomes 0: its item stays, and refers to the null
// entry.
type remap struct {
	src dictionary

	// to holds for each entry of the source its place in the destination; wanted
	// as long as it has none, and 0 if it is not needed or null.
	to [tableCount][]int32
	// needed are the entries that are marked, and the first followed of them have
	// had their own references marked.
	needed   [tableCount][]int32
	followed [tableCount]int

	steps int // that were taken since it was new: references looked at, roughly
}

const wanted int32 = -1

// remaps keeps the memory of remaps that were released, which is as large as the
// dictionary that they served. Clearing it costs what was marked in it, so that
// cutting a small piece does not cost the whole dictionary of its request.
var remaps = sync.Pool{New: func() any { return new(remap) }}

// newRemap returns a remap out of a dictionary, to be released after its use.
func newRemap(src dictionary) *remap {
	r := remaps.Get().(*remap)
	r.src = src
	for t := range tableCount {
		if n := src.len(t); n <= cap(r.to[t]) {
			r.to[t] = r.to[t][:n]
		} else {
			r.to[t] = make([]int32, n)
		}
	}
	return r
}

func (r *remap) release() {
	r.reset()
	r.src, r.steps = dictionary{}, 0
	remaps.Put(r)
}

// reset unmarks everything.
func (r *remap) reset() {
	for t := range tableCount {
		for _, i := range r.needed[t] {
			r.to[t][i] = 0
		}
		r.needed[t] = r.needed[t][:0]
		r.followed[t] = 0
	}
}

func (r *remap) want(t table, i int32) {
	if to := r.to[t]; i < 0 || int(i) >= len(to) || to[i] != 0 || r.src.isNull(t, i) {
		return
	}
	r.to[t][i] = wanted
	r.needed[t] = append(r.needed[t], i)
}

func (r *remap) wantAll(t table, list pcommon.Int32Slice) {
	r.steps += list.Len()
	for n := range list.Len() {
		r.want(t, list.At(n))
	}
}

// wantAllOf marks what the samples and headers of data need.
func (r *remap) wantAllOf(data pprofile.Profiles) {
	for p := range eachProfile(data) {
		r.wantHeader(p)
		samples := p.Samples()
		for n := range samples.Len() {
			r.wantSample(samples.At(n))
		}
	}
	r.complete()
}

func (r *remap) wantSample(s pprofile.Sample) {
	r.want(stackTable, s.StackIndex())
	r.want(linkTable, s.LinkIndex())
	r.wantAll(attributeTable, s.AttributeIndices())
}

// wantHeader marks what a profile needs but for its samples.
func (r *remap) wantHeader(p pprofile.Profile) {
	for _, v := range [...]pprofile.ValueType{p.SampleType(), p.PeriodType()} {
		r.want(stringTable, v.TypeStrindex())
		r.want(stringTable, v.UnitStrindex())
	}
	r.wantAll(attributeTable, p.AttributeIndices())
}

// complete marks all that the marked entries need. It may be called again after
// more was marked, and costs what came on top.
func (r *remap) complete() {
	for t := tableCount - 1; t > stringTable; t-- {
		for ; r.followed[t] < len(r.needed[t]); r.followed[t]++ {
			r.follow(t, int(r.needed[t][r.followed[t]]))
		}
	}
	r.followed[stringTable] = len(r.needed[stringTable])
}

// follow marks what one entry refers to.
func (r *remap) follow(t table, i int) {
	r.steps++
	switch t {
	case attributeTable:
		a := r.src.attributes.At(i)
		r.want(stringTable, a.KeyStrindex())
		r.want(stringTable, a.UnitStrindex())
	case functionTable:
		f := r.src.functions.At(i)
		r.want(stringTable, f.NameStrindex())
		r.want(stringTable, f.SystemNameStrindex())
		r.want(stringTable, f.FilenameStrindex())
	case mappingTable:
		m := r.src.mappings.At(i)
		r.want(stringTable, m.FilenameStrindex())
		r.wantAll(attributeTable, m.AttributeIndices())
	case locationTable:
		l := r.src.locations.At(i)
		r.want(mappingTable, l.MappingIndex())
		r.wantAll(attributeTable, l.AttributeIndices())
		r.steps += l.Lines().Len()
		for n := range l.Lines().Len() {
			r.want(functionTable, l.Lines().At(n).FunctionIndex())
		}
	case stackTable:
		r.wantAll(locationTable, r.src.stacks.At(i).LocationIndices())
	}
}

// copyTo fills an empty dictionary with copies of what is needed, and leaves the
// source as it is. The entries keep their order, so that none gets an index that
// needs more bytes than before (but where the source has no null entry and all of
// them move up by one). Entries that are equal stay apart: what is cut out of
// one request has seldom any, and is not worth a hash of all.
func (r *remap) copyTo(d pprofile.ProfilesDictionary) {
	dst := newDictionary(d)
	for t := range tableCount {
		slices.Sort(r.needed[t])
		dst.ensure(t, 1+len(r.needed[t]))
		for n, i := range r.needed[t] {
			r.to[t][i] = int32(n + 1)
			dst.appendCopy(t, &r.src, i)
			r.rewrite(&dst, t, n+1)
		}
	}
}

// moveTo puts what is needed into a dictionary that may hold it already. The
// source is used up.
func (r *remap) moveTo(dst *sharedDictionary) {
	for t := range tableCount {
		for _, i := range r.needed[t] {
			r.rewrite(&r.src, t, int(i))
			r.to[t][i] = dst.place(t, &r.src, i)
		}
	}
}

// at is the new index for an old one.
func (r *remap) at(t table, i int32) int32 {
	if i < 0 || int(i) >= len(r.to[t]) {
		return 0
	}
	return r.to[t][i]
}

func (r *remap) rewriteList(t table, list pcommon.Int32Slice) {
	for n := range list.Len() {
		list.SetAt(n, r.at(t, list.At(n)))
	}
}

// rewriteAllOf is for data whose needs have been placed.
func (r *remap) rewriteAllOf(data pprofile.Profiles) {
	for p := range eachProfile(data) {
		r.rewriteHeader(p)
		samples := p.Samples()
		for n := range samples.Len() {
			r.rewriteSample(samples.At(n))
		}
	}
}

func (r *remap) rewriteSample(s pprofile.Sample) {
	s.SetStackIndex(r.at(stackTable, s.StackIndex()))
	s.SetLinkIndex(r.at(linkTable, s.LinkIndex()))
	r.rewriteList(attributeTable, s.AttributeIndices())
}

// rewriteHeader rewrites a profile but for its samples.
func (r *remap) rewriteHeader(p pprofile.Profile) {
	for _, v := range [...]pprofile.ValueType{p.SampleType(), p.PeriodType()} {
		v.SetTypeStrindex(r.at(stringTable, v.TypeStrindex()))
		v.SetUnitStrindex(r.at(stringTable, v.UnitStrindex()))
	}
	r.rewriteList(attributeTable, p.AttributeIndices())
}

// rewrite rewrites the references of one entry, wherever it stands by now.
func (r *remap) rewrite(d *dictionary, t table, i int) {
	switch t {
	case attributeTable:
		a := d.attributes.At(i)
		a.SetKeyStrindex(r.at(stringTable, a.KeyStrindex()))
		a.SetUnitStrindex(r.at(stringTable, a.UnitStrindex()))
	case functionTable:
		f := d.functions.At(i)
		f.SetNameStrindex(r.at(stringTable, f.NameStrindex()))
		f.SetSystemNameStrindex(r.at(stringTable, f.SystemNameStrindex()))
		f.SetFilenameStrindex(r.at(stringTable, f.FilenameStrindex()))
	case mappingTable:
		m := d.mappings.At(i)
		m.SetFilenameStrindex(r.at(stringTable, m.FilenameStrindex()))
		r.rewriteList(attributeTable, m.AttributeIndices())
	case locationTable:
		l := d.locations.At(i)
		l.SetMappingIndex(r.at(mappingTable, l.MappingIndex()))
		r.rewriteList(attributeTable, l.AttributeIndices())
		for n := range l.Lines().Len() {
			line := l.Lines().At(n)
			line.SetFunctionIndex(r.at(functionTable, line.FunctionIndex()))
		}
	case stackTable:
		r.rewriteList(locationTable, d.stacks.At(i).LocationIndices())
	}
}
