// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import (
	"math"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

// The keys and texts of attributes may be references into the dictionary too.
// pdata resolves those of resources and scopes when it reads a message, and makes
// them when it writes one: in place, if the data is not shared, so that a batch
// has them after an attempt to send it. In the attributes of the dictionary it
// lets them be. Its API shows none of them: the key or the value just looks empty.
//
// They would point to something else in the dictionary of another batch.

// references collects the values that have some: maps of attributes first.
type references struct {
	dictionary pprofile.ProfilesDictionary
	maps       []pcommon.Map
	values     []pcommon.Value // copies of the maps, and values of the dictionary
	room       int             // for the texts of the values
}

const (
	// textRoom bounds what the values in the dictionary become as texts, beyond
	// expansion times the size of the message. All references to a text may lead
	// to one that is long: 80 kB would become 400 MB. Real ones share little, since
	// the attributes of a dictionary differ; what is above the bound gets no text.
	textRoom  = 1 << 20
	expansion = 16

	// decodableDepth is how deep pdata reads the value of an attribute, counted as
	// pdata does: three for a map in a map, and two for a list.
	decodableDepth = 100
)

// resolveReferences turns the references in attributes into texts. A reference in
// the dictionary that points nowhere makes an empty value: readers refuse a whole
// request for one of them. (Elsewhere pdata lets none in.) It costs as much as the
// message is long, whatever is in it.
func resolveReferences(data pprofile.Profiles) {
	if data.IsReadOnly() {
		return
	}
	f := references{dictionary: data.Dictionary()}
	for _, r := range data.ResourceProfiles().All() {
		f.addMap(r.Resource().Attributes())
		for _, s := range r.ScopeProfiles().All() {
			f.addMap(s.Scope().Attributes())
		}
	}
	for _, a := range data.Dictionary().AttributeTable().All() {
		if mayRefer(a.Value()) && refers(a.Value()) {
			f.values = append(f.values, a.Value())
		}
	}
	if len(f.values) > 0 {
		f.resolve(textRoom + expansion*profileSizer.ProfilesSize(data))
	}
}

// mayRefer says whether there is anything that looks empty in a value.
func mayRefer(v pcommon.Value) bool {
	switch v.Type() {
	case pcommon.ValueTypeEmpty:
		return true
	case pcommon.ValueTypeMap:
		return mayReferAny(v.Map())
	case pcommon.ValueTypeSlice:
		for _, e := range v.Slice().All() {
			if mayRefer(e) {
				return true
			}
		}
	}
	return false
}

func mayReferAny(m pcommon.Map) bool {
	for k, v := range m.All() {
		if k == "" || mayRefer(v) {
			return true
		}
	}
	return false
}

// probes hold one attribute in a dictionary, to be sized. Each request has a null
// attribute, which looks like a reference.
var probes = sync.Pool{New: func() any {
	probe := pprofile.NewProfiles()
	probe.Dictionary().AttributeTable().AppendEmpty()
	return probe
}}

var nothing = pcommon.NewValueEmpty()

// refers says whether there are references in a value.
func refers(v pcommon.Value) bool { return hidden(v) > 0 }

// hidden is how much larger a value is than what can be seen of it.
func hidden(v pcommon.Value) int {
	probe := probes.Get().(pprofile.Profiles)
	defer probes.Put(probe) //nolint:staticcheck // it holds nothing but pointers
	value := probe.Dictionary().AttributeTable().At(0).Value()
	v.CopyTo(value)
	size := profileSizer.ProfilesSize(probe)
	nothing.CopyTo(value) // keeps none of v alive
	return size - framed(framed(framed(valueSize(v))))
}

func (f *references) addMap(m pcommon.Map) {
	if !mayReferAny(m) {
		return
	}
	v := pcommon.NewValueMap()
	m.CopyTo(v.Map())
	if refers(v) {
		f.maps, f.values = append(f.maps, m), append(f.values, v)
	}
}

// resolve puts a text where a value is nothing but a reference, and has pdata do
// it all at once where references are further down. Those that pdata would refuse
// are sorted out before, by what they are when marshalled: to find them by trial
// would cost all of the strings for each. The room is for values of the dictionary:
// of other texts pdata makes references again.
func (f *references) resolve(room int) {
	var nested []int
	f.room = math.MaxInt
	for i, encoded := range f.encode() {
		if i == len(f.maps) {
			f.room = room
		}
		left := f.room
		switch text, whole := onlyReference(encoded); {
		case !f.resolvable(encoded, 1):
			f.store(i, nothing)
			f.room = left
		case whole:
			f.values[i].SetStr(f.text(text))
		default:
			nested = append(nested, i)
		}
	}
	if len(nested) > 0 {
		f.readBack(nested)
	}
}

// store puts a resolved value in the place of the i-th. Maps of attributes stay as
// they are if they cannot be resolved.
func (f *references) store(i int, resolved pcommon.Value) {
	if i >= len(f.maps) {
		resolved.CopyTo(f.values[i])
	} else if resolved.Type() == pcommon.ValueTypeMap {
		resolved.Map().MoveTo(f.maps[i])
	}
}

// encode returns the values as they are when marshalled, with their references.
func (f *references) encode() [][]byte {
	sent := pprofile.NewProfiles()
	table := sent.Dictionary().AttributeTable()
	table.EnsureCapacity(len(f.values))
	for _, v := range f.values {
		v.CopyTo(table.AppendEmpty().Value())
	}
	message, err := profileSizer.MarshalProfiles(sent)
	if err != nil {
		return nil // cannot be: pdata leaves the attributes of a dictionary alone
	}
	encoded := make([][]byte, 0, len(f.values))
	for dictionary := range fields(message, 2) {
		for attribute := range fields(dictionary.content, 6) {
			for value := range fields(attribute.content, 2) {
				encoded = append(encoded, value.content)
			}
		}
	}
	return encoded
}

// onlyReference is the reference that makes up a marshalled value.
func onlyReference(value []byte) (text int32, ok bool) {
	for field := range fields(value, valueReference) {
		return field.index(), true
	}
	return 0, false
}

// resolvable says whether pdata resolves a marshalled value, and takes its texts
// off the room.
func (f *references) resolvable(value []byte, depth int) bool {
	if depth >= decodableDepth {
		return false
	}
	for field := range fields(value, anyField) {
		switch field.number {
		case valueReference:
			if !f.resolvableText(field.index()) {
				return false
			}
		case valueList, valueMap:
			if depth+1 >= decodableDepth {
				return false
			}
			for e := range fields(field.content, 1) {
				if field.number == valueList && !f.resolvable(e.content, depth+2) ||
					field.number == valueMap && !f.resolvableEntry(e.content, depth+2) {
					return false
				}
			}
		}
	}
	return true
}

func (f *references) resolvableEntry(entry []byte, depth int) bool {
	named := false
	for field := range fields(entry, anyField) {
		switch field.number {
		case entryKey:
			named = len(field.content) > 0
		case entryValue:
			if !f.resolvable(field.content, depth+1) {
				return false
			}
		case entryReference:
			if i := field.index(); i != 0 && (named || !f.resolvableText(i)) {
				return false
			}
		}
	}
	return true
}

func (f *references) resolvableText(i int32) bool {
	if i < 0 || int(i) >= max(1, f.dictionary.StringTable().Len()) {
		return false
	}
	f.room -= len(f.text(i))
	return f.room >= 0
}

// text is one of the strings. If there are none, pdata adds the first, which is
// empty, when it marshals.
func (f *references) text(i int32) string {
	if texts := f.dictionary.StringTable(); texts.Len() > 0 {
		return texts.At(int(i))
	}
	return ""
}

// readBack writes and reads values as attributes of resources, which is the only
// way to have pdata resolve them.
func (f *references) readBack(nested []int) {
	sent := pprofile.NewProfiles()
	f.dictionary.StringTable().CopyTo(sent.Dictionary().StringTable())
	for _, i := range nested {
		f.values[i].CopyTo(sent.ResourceProfiles().AppendEmpty().Resource().Attributes().PutEmpty("value"))
	}
	var read pprofile.Profiles
	message, err := profileSizer.MarshalProfiles(sent)
	if err == nil {
		read, err = (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles(message)
	}
	for n, i := range nested {
		resolved := nothing
		if err == nil {
			resolved, _ = read.ResourceProfiles().At(n).Resource().Attributes().Get("value")
		}
		f.store(i, resolved)
	}
}
