// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import (
	"encoding/binary"
	"math"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

// table names a table of a dictionary of profiles. An entry refers only to
// entries of tables that stand before its own. So one pass from the last table to
// the first finds all that is needed, and one from the first to the last rewrites
// it: no recursion, whatever the input looks like.
type table int

const (
	stringTable table = iota
	attributeTable
	functionTable
	linkTable
	mappingTable
	locationTable
	stackTable
	tableCount
)

// nullEntries is the size of the seven null entries, one per table, with which
// every dictionary made here begins.
const nullEntries = 2 + 4 + 2 + 6 + 2 + 2 + 2

// dictionary is a dictionary of profiles whose tables can be named by number.
//
// By the specification the first entry of each table is null, which is how
// "none" is spelled in a reference. Senders forget that, and send references to
// entries that do not exist. What is read here is what a reader sees who looks up
// every index: a reference means the entry at its place, also at place 0, and
// nothing if there is no such place.
type dictionary struct {
	strings    pcommon.StringSlice
	attributes pprofile.KeyValueAndUnitSlice
	functions  pprofile.FunctionSlice
	links      pprofile.LinkSlice
	mappings   pprofile.MappingSlice
	locations  pprofile.LocationSlice
	stacks     pprofile.StackSlice
}

func openDictionary(d pprofile.ProfilesDictionary) dictionary {
	return dictionary{
		strings:    d.StringTable(),
		attributes: d.AttributeTable(),
		functions:  d.FunctionTable(),
		links:      d.LinkTable(),
		mappings:   d.MappingTable(),
		locations:  d.LocationTable(),
		stacks:     d.StackTable(),
	}
}

// newDictionary opens an empty dictionary and gives each table its null entry.
func newDictionary(d pprofile.ProfilesDictionary) dictionary {
	d.StringTable().Append("")
	d.AttributeTable().AppendEmpty()
	d.FunctionTable().AppendEmpty()
	d.LinkTable().AppendEmpty()
	d.MappingTable().AppendEmpty()
	d.LocationTable().AppendEmpty()
	d.StackTable().AppendEmpty()
	return openDictionary(d)
}

func (d *dictionary) len(t table) int {
	switch t {
	case stringTable:
		return d.strings.Len()
	case attributeTable:
		return d.attributes.Len()
	case functionTable:
		return d.functions.Len()
	case linkTable:
		return d.links.Len()
	case mappingTable:
		return d.mappings.Len()
	case locationTable:
		return d.locations.Len()
	default:
		return d.stacks.Len()
	}
}

// isNull says whether an entry, which must exist, says nothing.
func (d *dictionary) isNull(t table, i int32) bool {
	switch at := int(i); t {
	case stringTable:
		return d.strings.At(at) == ""
	case attributeTable:
		a := d.attributes.At(at)
		return a.Value().Type() == pcommon.ValueTypeEmpty && d.areNone(stringTable, a.KeyStrindex(), a.UnitStrindex())
	case functionTable:
		f := d.functions.At(at)
		return f.StartLine() == 0 &&
			d.areNone(stringTable, f.NameStrindex(), f.SystemNameStrindex(), f.FilenameStrindex())
	case linkTable:
		l := d.links.At(at)
		return l.TraceID().IsEmpty() && l.SpanID().IsEmpty()
	case mappingTable:
		m := d.mappings.At(at)
		return m.MemoryStart()|m.MemoryLimit()|m.FileOffset() == 0 &&
			m.AttributeIndices().Len() == 0 && d.areNone(stringTable, m.FilenameStrindex())
	case locationTable:
		l := d.locations.At(at)
		return l.Address() == 0 && l.Lines().Len()+l.AttributeIndices().Len() == 0 &&
			d.areNone(mappingTable, l.MappingIndex())
	default:
		return d.stacks.At(at).LocationIndices().Len() == 0
	}
}

// areNone says whether references lead to nothing.
func (d *dictionary) areNone(t table, refs ...int32) bool {
	for _, i := range refs {
		if i >= 0 && int(i) < d.len(t) && !d.isNull(t, i) {
			return false
		}
	}
	return true
}

// ensure makes room for n entries.
func (d *dictionary) ensure(t table, n int) {
	switch t {
	case stringTable:
		d.strings.EnsureCapacity(n)
	case attributeTable:
		d.attributes.EnsureCapacity(n)
	case functionTable:
		d.functions.EnsureCapacity(n)
	case linkTable:
		d.links.EnsureCapacity(n)
	case mappingTable:
		d.mappings.EnsureCapacity(n)
	case locationTable:
		d.locations.EnsureCapacity(n)
	default:
		d.stacks.EnsureCapacity(n)
	}
}

// appendCopy appends a copy of an entry of another dictionary, which is only read.
func (d *dictionary) appendCopy(t table, src *dictionary, i int32) {
	switch at := int(i); t {
	case stringTable:
		d.strings.Append(src.strings.At(at))
	case attributeTable:
		src.attributes.At(at).CopyTo(d.attributes.AppendEmpty())
	case functionTable:
		src.functions.At(at).CopyTo(d.functions.AppendEmpty())
	case linkTable:
		src.links.At(at).CopyTo(d.links.AppendEmpty())
	case mappingTable:
		src.mappings.At(at).CopyTo(d.mappings.AppendEmpty())
	case locationTable:
		src.locations.At(at).CopyTo(d.locations.AppendEmpty())
	default:
		src.stacks.At(at).CopyTo(d.stacks.AppendEmpty())
	}
}

// appendMoved is appendCopy for a dictionary that nobody needs any more.
func (d *dictionary) appendMoved(t table, src *dictionary, i int32) {
	switch at := int(i); t {
	case stringTable:
		d.strings.Append(src.strings.At(at))
	case attributeTable:
		src.attributes.At(at).MoveTo(d.attributes.AppendEmpty())
	case functionTable:
		src.functions.At(at).MoveTo(d.functions.AppendEmpty())
	case linkTable:
		src.links.At(at).MoveTo(d.links.AppendEmpty())
	case mappingTable:
		src.mappings.At(at).MoveTo(d.mappings.AppendEmpty())
	case locationTable:
		src.locations.At(at).MoveTo(d.locations.AppendEmpty())
	default:
		src.stacks.At(at).MoveTo(d.stacks.AppendEmpty())
	}
}

// appendKey appends to b what is in an entry, such that two entries of a table
// have the same key if and only if all their fields are equal. (The library's
// Equal takes NaN for unequal to itself, and maps with a repeated key for equal to
// others.)
func (d *dictionary) appendKey(b []byte, t table, i int32) []byte {
	switch at := int(i); t {
	case stringTable:
		return append(b, d.strings.At(at)...)
	case attributeTable:
		a := d.attributes.At(at)
		b = appendNumbers(b, a.KeyStrindex(), a.UnitStrindex())
		return appendValueKey(b, a.Value())
	case functionTable:
		f := d.functions.At(at)
		b = appendNumbers(b, f.NameStrindex(), f.SystemNameStrindex(), f.FilenameStrindex())
		return binary.AppendVarint(b, f.StartLine())
	case linkTable:
		trace, span := d.links.At(at).TraceID(), d.links.At(at).SpanID()
		return append(append(b, trace[:]...), span[:]...)
	case mappingTable:
		m := d.mappings.At(at)
		b = binary.AppendUvarint(b, m.MemoryStart())
		b = binary.AppendUvarint(b, m.MemoryLimit())
		b = binary.AppendUvarint(b, m.FileOffset())
		return appendList(appendNumbers(b, m.FilenameStrindex()), m.AttributeIndices())
	case locationTable:
		l := d.locations.At(at)
		b = binary.AppendUvarint(appendNumbers(b, l.MappingIndex()), l.Address())
		b = appendList(b, l.AttributeIndices())
		for _, line := range l.Lines().All() {
			b = appendNumbers(b, line.FunctionIndex())
			b = binary.AppendVarint(binary.AppendVarint(b, line.Line()), line.Column())
		}
		return b
	default:
		return appendList(b, d.stacks.At(at).LocationIndices())
	}
}

func appendNumbers(b []byte, numbers ...int32) []byte {
	for _, n := range numbers {
		b = binary.AppendVarint(b, int64(n))
	}
	return b
}

func appendList(b []byte, list pcommon.Int32Slice) []byte {
	b = binary.AppendUvarint(b, uint64(list.Len()))
	for _, n := range list.All() {
		b = binary.AppendVarint(b, int64(n))
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendValueKey(b []byte, v pcommon.Value) []byte {
	b = append(b, byte(v.Type()))
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return appendText(b, v.Str())
	case pcommon.ValueTypeInt:
		return binary.AppendVarint(b, v.Int())
	case pcommon.ValueTypeDouble:
		return binary.BigEndian.AppendUint64(b, math.Float64bits(v.Double()))
	case pcommon.ValueTypeBool:
		if v.Bool() {
			return append(b, 1)
		}
		return append(b, 0)
	case pcommon.ValueTypeBytes:
		return appendText(b, string(v.Bytes().AsRaw()))
	case pcommon.ValueTypeSlice:
		b = binary.AppendUvarint(b, uint64(v.Slice().Len()))
		for _, e := range v.Slice().All() {
			b = appendValueKey(b, e)
		}
		return b
	case pcommon.ValueTypeMap:
		b = binary.AppendUvarint(b, uint64(v.Map().Len()))
		for k, e := range v.Map().All() {
			b = appendValueKey(appendText(b, k), e)
		}
		return b
	case pcommon.ValueTypeEmpty:
	}
	return b
}
