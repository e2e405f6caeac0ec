// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import (
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/xpdata/entity"
)

// identity is all that a resource or a scope says of the items below it. Two
// identities are the same if every field is. The order of attributes does not
// matter, but that of attributes with the same key does, since readers differ in
// which of them they take. Numbers are the same if their bits are: 0 is not -0,
// and each NaN is itself. pcommon.Map.Equal gets all three wrong, and needs
// quadratic time.
//
// It refers to the data, so it is valid as long as that does not change.
type identity struct {
	attrs         attributes
	byKey         attributes // attrs sorted by key; nil until it is needed
	dropped       uint32
	schemaURL     string
	name, version string                // of a scope
	entities      entity.EntityRefSlice // of a resource
	isResource    bool
}

// attributes are the entries of a pcommon.Map, which can be read by position
// only through an iterator.
type attributes []attribute

type attribute struct {
	key   string
	value pcommon.Value
}

func (id *identity) setResource(res pcommon.Resource, schemaURL string) {
	id.attrs, id.byKey = id.attrs[:0].append(res.Attributes()), nil
	id.dropped, id.schemaURL = res.DroppedAttributesCount(), schemaURL
	id.entities, id.isResource = entity.ResourceEntityRefs(res), true
}

func (id *identity) setScope(scope pcommon.InstrumentationScope, schemaURL string) {
	id.attrs, id.byKey = id.attrs[:0].append(scope.Attributes()), nil
	id.dropped, id.schemaURL = scope.DroppedAttributesCount(), schemaURL
	id.name, id.version = scope.Name(), scope.Version()
}

// keep returns a copy that stays when id is set again.
func (id *identity) keep() identity {
	kept := *id
	kept.attrs = slices.Clone(id.attrs)
	return kept
}

// equal puts the attributes of other, which must not be kept, in order of keys
// if that is what it takes.
func (id *identity) equal(other *identity) bool {
	if !id.equalFields(other) {
		return false
	}
	if id.attrs.sameKeys(other.attrs) {
		return id.attrs.equalValues(other.attrs)
	}
	if id.byKey == nil {
		id.byKey = slices.Clone(id.attrs)
		id.byKey.sort()
	}
	other.attrs.sort()
	return id.byKey.sameKeys(other.attrs) && id.byKey.equalValues(other.attrs)
}

// equalInOrder is false for some that are equal, but is cheap where they are not.
func (id *identity) equalInOrder(other *identity) bool {
	return id.equalFields(other) && id.attrs.sameKeys(other.attrs) && id.attrs.equalValues(other.attrs)
}

func (id *identity) equalFields(other *identity) bool {
	return len(id.attrs) == len(other.attrs) &&
		id.dropped == other.dropped &&
		id.schemaURL == other.schemaURL &&
		id.name == other.name &&
		id.version == other.version &&
		id.isResource == other.isResource &&
		(!id.isResource || equalEntities(id.entities, other.entities))
}

// hash is the same for equal identities. All that equal looks at is in it, but for
// the order of values under one key: only so many identities of one hash are told
// apart (see registry), and no one should be able to make more of them.
func (id *identity) hash() uint64 {
	h := mix(id.attrs.hash(), uint64(id.dropped))
	h = mix(h, hashString(id.schemaURL))
	h = mix(mix(h, hashString(id.name)), hashString(id.version))
	if id.isResource {
		h = mix(h, hashEntities(id.entities))
	}
	return h
}

func hashEntities(refs entity.EntityRefSlice) uint64 {
	h := uint64(refs.Len())
	for i := range refs.Len() {
		ref := refs.At(i)
		h = mix(mix(h, hashString(ref.Type())), hashString(ref.SchemaUrl()))
		h = mix(mix(h, hashStrings(ref.IdKeys())), hashStrings(ref.DescriptionKeys()))
	}
	return h
}

func hashStrings(list pcommon.StringSlice) uint64 {
	h := uint64(list.Len())
	for i := range list.Len() {
		h = mix(h, hashString(list.At(i)))
	}
	return h
}

func equalEntities(a, b entity.EntityRefSlice) bool {
	if a.Len() != b.Len() {
		return false
	}
	for i := range a.Len() {
		x, y := a.At(i), b.At(i)
		if x.Type() != y.Type() || x.SchemaUrl() != y.SchemaUrl() ||
			!x.IdKeys().Equal(y.IdKeys()) || !x.DescriptionKeys().Equal(y.DescriptionKeys()) {
			return false
		}
	}
	return true
}

func (as attributes) append(m pcommon.Map) attributes {
	for key, value := range m.All() {
		as = append(as, attribute{key, value})
	}
	return as
}

// sort keeps the order of attributes with the same key.
func (as attributes) sort() {
	slices.SortStableFunc(as, func(a, b attribute) int { return strings.Compare(a.key, b.key) })
}

// sameKeys says whether both have the same keys in the same order. Then sorting
// would move the values of both alike, so that comparing them as they are decides.
// To compare them in order and then sorted would double the cost with each level of
// maps in maps, of which a message of some hundred bytes can hold dozens.
func (as attributes) sameKeys(other attributes) bool {
	return slices.EqualFunc(as, other, func(a, b attribute) bool { return a.key == b.key })
}

// equalValues compares attributes with the same keys, each value once.
func (as attributes) equalValues(other attributes) bool {
	return slices.EqualFunc(as, other, func(a, b attribute) bool { return equalValues(a.value, b.value) })
}

// hash does not depend on the order.
func (as attributes) hash() uint64 {
	sum := uint64(len(as))
	for _, a := range as {
		sum += mix(hashString(a.key), hashValue(a.value))
	}
	return sum
}

func equalMaps(a, b pcommon.Map) bool {
	if a.Len() != b.Len() {
		return false
	}
	as, bs := attributes(nil).append(a), attributes(nil).append(b)
	if !as.sameKeys(bs) {
		as.sort()
		bs.sort()
		if !as.sameKeys(bs) {
			return false
		}
	}
	return as.equalValues(bs)
}

func equalSlices(a, b pcommon.Slice) bool {
	if a.Len() != b.Len() {
		return false
	}
	for i := range a.Len() {
		if !equalValues(a.At(i), b.At(i)) {
			return false
		}
	}
	return true
}

func equalValues(a, b pcommon.Value) bool {
	if a.Type() != b.Type() {
		return false
	}
	switch a.Type() {
	case pcommon.ValueTypeStr:
		return a.Str() == b.Str()
	case pcommon.ValueTypeBool:
		return a.Bool() == b.Bool()
	case pcommon.ValueTypeInt:
		return a.Int() == b.Int()
	case pcommon.ValueTypeDouble:
		return math.Float64bits(a.Double()) == math.Float64bits(b.Double())
	case pcommon.ValueTypeBytes:
		return a.Bytes().Equal(b.Bytes())
	case pcommon.ValueTypeMap:
		return equalMaps(a.Map(), b.Map())
	case pcommon.ValueTypeSlice:
		return equalSlices(a.Slice(), b.Slice())
	case pcommon.ValueTypeEmpty:
		return true
	}
	return false
}

func hashValue(v pcommon.Value) uint64 {
	var h uint64
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return hashString(v.Str())
	case pcommon.ValueTypeBool:
		if v.Bool() {
			h = 1
		}
	case pcommon.ValueTypeInt:
		h = uint64(v.Int())
	case pcommon.ValueTypeDouble:
		h = math.Float64bits(v.Double())
	case pcommon.ValueTypeBytes:
		h = maphash.Bytes(seed, v.Bytes().AsRaw())
	case pcommon.ValueTypeMap:
		h = attributes(nil).append(v.Map()).hash()
	case pcommon.ValueTypeSlice:
		for i := range v.Slice().Len() {
			h = mix(h, hashValue(v.Slice().At(i)))
		}
	case pcommon.ValueTypeEmpty:
	}
	return mix(h, uint64(v.Type()))
}

// seed differs from process to process, so that no one can prepare resources
// whose hashes collide.
var seed = maphash.MakeSeed()

// salt is what mix makes of two zeroes, among others. It must be secret too.
var salt = maphash.String(seed, "salt") | 1

func hashString(s string) uint64 { return maphash.String(seed, s) }

// mix combines two hashes so that mix(a, b) says nothing of mix(b, a).
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^salt, bits.RotateLeft64(b, 32)+salt)
	return hi ^ lo
}
