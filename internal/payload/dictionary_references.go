// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import (
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

// references collects the attributes that have some.
type references struct {
	dictionary pprofile.ProfilesDictionary
	maps       []pcommon.Map
	values     []pcommon.Value
	probe      pprofile.ResourceProfiles
}

// resolveReferences turns the references in attributes into texts. A reference in
// the dictionary that points nowhere makes an empty value: readers refuse a whole
// request for one of them. (Elsewhere pdata lets none in.)
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
		if mayRefer(a.Value()) && (a.KeyStrindex() != 0 || a.UnitStrindex() != 0) {
			f.addValue(a.Value())
		}
	}
	f.resolve()
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

func (f *references) addMap(m pcommon.Map) {
	if mayReferAny(m) && f.refers(m) {
		f.maps = append(f.maps, m)
	}
}

func (f *references) addValue(v pcommon.Value) {
	if f.refers(single(v)) {
		f.values = append(f.values, v)
	}
}

// refers says whether a map is larger than what can be seen of it.
func (f *references) refers(m pcommon.Map) bool {
	if f.probe == (pprofile.ResourceProfiles{}) {
		f.probe = pprofile.NewProfiles().ResourceProfiles().AppendEmpty()
	}
	m.CopyTo(f.probe.Resource().Attributes())
	visible := 0
	for k, v := range m.All() {
		visible += framed(packed(len(k)) + framed(valueSize(v)))
	}
	return profileSizer.ResourceProfilesSize(f.probe) > framed(visible)
}

// resolve resolves all at once, since each time costs as much as the dictionary
// has strings, and one by one only if some point nowhere.
func (f *references) resolve() {
	all := f.maps
	for _, v := range f.values {
		all = append(all, single(v))
	}
	if len(all) == 0 {
		return
	}
	if resolved, ok := f.readBack(all...); ok {
		for i, m := range resolved {
			f.store(i, m)
		}
		return
	}
	for i, m := range all {
		if resolved, ok := f.readBack(m); ok {
			f.store(i, resolved[0])
		} else if i >= len(f.maps) {
			f.store(i, single(pcommon.NewValueEmpty()))
		}
	}
}

// store puts a resolved map in the place of the i-th that was collected.
func (f *references) store(i int, resolved pcommon.Map) {
	if i < len(f.maps) {
		resolved.MoveTo(f.maps[i])
		return
	}
	for _, v := range resolved.All() {
		v.CopyTo(f.values[i-len(f.maps)])
	}
}

// readBack writes and reads the maps as attributes of resources, which is the
// only way to have pdata resolve them.
func (f *references) readBack(maps ...pcommon.Map) ([]pcommon.Map, bool) {
	sent := pprofile.NewProfiles()
	f.dictionary.StringTable().CopyTo(sent.Dictionary().StringTable())
	for _, m := range maps {
		m.CopyTo(sent.ResourceProfiles().AppendEmpty().Resource().Attributes())
	}
	message, err := profileSizer.MarshalProfiles(sent)
	if err != nil {
		return nil, false
	}
	read, err := (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles(message)
	if err != nil {
		return nil, false
	}
	resolved := make([]pcommon.Map, 0, len(maps))
	for _, r := range read.ResourceProfiles().All() {
		resolved = append(resolved, r.Resource().Attributes())
	}
	return resolved, true
}

// single is a map with a copy of one value.
func single(v pcommon.Value) pcommon.Map {
	m := pcommon.NewMap()
	v.CopyTo(m.PutEmpty("value"))
	return m
}
