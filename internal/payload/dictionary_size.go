// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import (
	"math/bits"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

// leastEntry is the size, with tag and length prefix, of the smallest entry that
// is not null. Entries of a batch differ from each other, so a batch of n bytes
// has at most n/leastEntry of them, which bounds their indices.
var leastEntry = [tableCount]int{
	stringTable:    3,
	attributeTable: 6,
	functionTable:  4,
	linkTable:      14,
	mappingTable:   4,
	locationTable:  4,
	stackTable:     5,
}

// sizer gives the protobuf sizes of what refers to a dictionary and of its
// entries: the largest that they can have, wherever they are copied or merged to
// within a limit. Without a limit, and in a dictionary that is well formed, it is
// the size that they have.
type sizer struct {
	src    dictionary
	length [tableCount]int
	// width is the number of bytes that suffice for an index into a batch within
	// the limit, and 0 if there is none.
	width [tableCount]int
	// shift is 1 for a table that lacks the null entry: a copy has it, and all
	// else stands one place later.
	shift [tableCount]int
	// sizes are those of the entries that were asked for, if they are kept.
	sizes [tableCount][]int
}

func newSizer(d pprofile.ProfilesDictionary, limit int) sizer {
	z := sizer{src: openDictionary(d)}
	for t := range tableCount {
		z.length[t] = z.src.len(t)
		if limit > 0 {
			z.width[t] = varintLen(limit / leastEntry[t])
		}
		if !z.src.areNone(t, 0) {
			z.shift[t] = 1
		}
	}
	return z
}

// index is the size of a reference in a list.
func (z *sizer) index(t table, i int32) int {
	at := int(i) + z.shift[t]
	if i < 0 || int(i) >= z.length[t] || at == 0 {
		return 1
	}
	return max(z.width[t], varintLen(at))
}

// field is the size of a reference in a field of its own, which is left out when
// it is 0.
func (z *sizer) field(t table, i int32) int {
	if i < 0 || int(i) >= z.length[t] || int(i)+z.shift[t] == 0 {
		return 0
	}
	return 1 + z.index(t, i)
}

// list is the size of a list of references.
func (z *sizer) list(t table, list pcommon.Int32Slice) int {
	size := 0
	for n := range list.Len() {
		size += z.index(t, list.At(n))
	}
	return packed(size)
}

// entry is the size of an entry with tag and length prefix.
func (z *sizer) entry(t table, i int32) int {
	switch at := int(i); t {
	case stringTable:
		return framed(len(z.src.strings.At(at)))
	case attributeTable:
		a := z.src.attributes.At(at)
		return framed(z.field(stringTable, a.KeyStrindex()) + z.field(stringTable, a.UnitStrindex()) +
			framed(attributeSize(a.Value())))
	case functionTable:
		f := z.src.functions.At(at)
		return framed(z.field(stringTable, f.NameStrindex()) + z.field(stringTable, f.SystemNameStrindex()) +
			z.field(stringTable, f.FilenameStrindex()) + number(uint64(f.StartLine())))
	case linkTable:
		l := z.src.links.At(at)
		return framed(id(l.TraceID().IsEmpty(), 16) + id(l.SpanID().IsEmpty(), 8))
	case mappingTable:
		m := z.src.mappings.At(at)
		return framed(number(m.MemoryStart()) + number(m.MemoryLimit()) + number(m.FileOffset()) +
			z.field(stringTable, m.FilenameStrindex()) + z.list(attributeTable, m.AttributeIndices()))
	case locationTable:
		return framed(z.location(z.src.locations.At(at)))
	default:
		return framed(z.list(locationTable, z.src.stacks.At(at).LocationIndices()))
	}
}

// keepSizes makes size ask for each entry once: a list in one may be as long as the
// message, and be needed by each sample.
func (z *sizer) keepSizes() {
	for t := range tableCount {
		z.sizes[t] = make([]int, z.length[t])
	}
}

// size is entry for one that is often asked for.
func (z *sizer) size(t table, i int32) int {
	if z.sizes[t] == nil {
		return z.entry(t, i)
	}
	if z.sizes[t][i] == 0 { // none is so small
		z.sizes[t][i] = z.entry(t, i)
	}
	return z.sizes[t][i]
}

// all is the size of all entries that are not null.
func (z *sizer) all() int {
	size := 0
	for t := range tableCount {
		for i := range int32(z.length[t]) {
			if !z.src.isNull(t, i) {
				size += z.entry(t, i)
			}
		}
	}
	return size
}

func (z *sizer) location(l pprofile.Location) int {
	size := z.field(mappingTable, l.MappingIndex()) + number(l.Address()) + z.list(attributeTable, l.AttributeIndices())
	for n := range l.Lines().Len() {
		line := l.Lines().At(n)
		size += framed(z.field(functionTable, line.FunctionIndex()) +
			number(uint64(line.Line())) + number(uint64(line.Column())))
	}
	return size
}

// sample is the size of a sample with tag and length prefix.
func (z *sizer) sample(s pprofile.Sample) int {
	values := 0
	for n := range s.Values().Len() {
		values += uvarintLen(uint64(s.Values().At(n)))
	}
	return framed(z.field(stackTable, s.StackIndex()) + z.field(linkTable, s.LinkIndex()) +
		z.list(attributeTable, s.AttributeIndices()) + packed(values) + packed(8*s.TimestampsUnixNano().Len()))
}

// header is the size of what a profile says of all of its samples.
func (z *sizer) header(p pprofile.Profile) int {
	size := id(p.ProfileID().IsEmpty(), 16) + number(p.DurationNano()) + number(uint64(p.Period())) +
		number(uint64(p.DroppedAttributesCount())) + packed(len(p.OriginalPayloadFormat())) +
		z.list(attributeTable, p.AttributeIndices())
	if p.Time() != 0 {
		size += 9
	}
	for _, v := range [...]pprofile.ValueType{p.SampleType(), p.PeriodType()} {
		size += framed(z.field(stringTable, v.TypeStrindex()) + z.field(stringTable, v.UnitStrindex()))
	}
	return size
}

// payloadSize is the size of the original form of a profile.
func payloadSize(p pprofile.Profile) int { return packed(p.OriginalPayload().Len()) }

// attributeSize is the size of a value in the dictionary. Keys in it may have a
// reference beside their name, which is no use to anyone, and no matter but here.
func attributeSize(v pcommon.Value) int {
	size := valueSize(v)
	if t := v.Type(); t == pcommon.ValueTypeMap || t == pcommon.ValueTypeSlice {
		size += hidden(v)
	}
	return size
}

// valueSize is the size of an attribute value without tag and length prefix.
func valueSize(v pcommon.Value) int {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return framed(len(v.Str()))
	case pcommon.ValueTypeInt:
		return 1 + uvarintLen(uint64(v.Int()))
	case pcommon.ValueTypeDouble:
		return 9
	case pcommon.ValueTypeBool:
		return 2
	case pcommon.ValueTypeBytes:
		return framed(v.Bytes().Len())
	case pcommon.ValueTypeSlice:
		size := 0
		for _, e := range v.Slice().All() {
			size += framed(valueSize(e))
		}
		return framed(size)
	case pcommon.ValueTypeMap:
		size := 0
		for k, e := range v.Map().All() {
			size += framed(packed(len(k)) + framed(valueSize(e)))
		}
		return framed(size)
	case pcommon.ValueTypeEmpty:
	}
	return 0
}

// number is the size of a field that is left out when it is 0. (Negative numbers
// take ten bytes.)
func number(n uint64) int {
	if n == 0 {
		return 0
	}
	return 1 + uvarintLen(n)
}

// packed is the size of a list, string or bytes field of n bytes, which is left
// out when it is empty.
func packed(n int) int {
	if n == 0 {
		return 0
	}
	return framed(n)
}

// id is the size of an identifier of n bytes.
func id(empty bool, n int) int {
	if empty {
		n = 0
	}
	return framed(n)
}

// uvarintLen is the length of a protobuf varint of any size.
func uvarintLen(n uint64) int { return (bits.Len64(n|1) + 6) / 7 }
