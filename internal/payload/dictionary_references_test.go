// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pullbatch/batcherexporter/internal/payload/payloadtest"
)

// withValues is a message with n attributes, whose values only the wire can carry,
// and a sample that has them all.
func withValues(texts []string, n int, value func(i int) []byte) pprofile.Profiles {
	var dictionary, indices []byte
	for _, text := range texts {
		dictionary = appendBytes(dictionary, 5, []byte(text))
	}
	for i := range n {
		attribute := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
		dictionary = appendBytes(dictionary, 6, appendBytes(attribute, 2, value(i)))
		indices = protowire.AppendVarint(indices, uint64(i))
	}
	message := indices
	for range 4 { // sample, profile, scope, resource
		message = appendBytes(nil, 2, message)
	}
	return decoded(appendBytes(appendBytes(nil, 1, message), 2, dictionary))
}

func decoded(message []byte) pprofile.Profiles {
	data, err := (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles(message)
	if err != nil {
		panic(err)
	}
	return data
}

func appendBytes(b []byte, field protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), content)
}

func reference(i int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, valueReference, protowire.VarintType), uint64(i))
}

func mapValue(entries ...[]byte) []byte {
	var list []byte
	for _, e := range entries {
		list = appendBytes(list, 1, e)
	}
	return appendBytes(nil, valueMap, list)
}

func mapEntry(key string, ref int64, value []byte) []byte {
	var e []byte
	if key != "" {
		e = appendBytes(e, entryKey, []byte(key))
	}
	e = appendBytes(e, entryValue, value)
	return protowire.AppendVarint(protowire.AppendTag(e, entryReference, protowire.VarintType), uint64(ref))
}

// resolvedAlone is what pdata makes of a value if it is the only one in a message,
// and nothing if pdata refuses it: what resolveReferences is to do for all at once.
func resolvedAlone(d pprofile.ProfilesDictionary, v pcommon.Value) pcommon.Value {
	message := appendBytes(nil, entryValue, (&references{values: []pcommon.Value{v}}).encode()[0])
	for range 3 { // resource, its group, request
		message = appendBytes(nil, 1, message)
	}
	var texts []byte
	for _, text := range append(d.StringTable().AsRaw(), "")[:max(1, d.StringTable().Len())] {
		texts = appendBytes(texts, 5, []byte(text))
	}
	data, err := (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles(appendBytes(message, 2, texts))
	if err != nil {
		return pcommon.NewValueEmpty()
	}
	resolved, _ := data.ResourceProfiles().At(0).Resource().Attributes().Get("")
	return resolved
}

func valueKeys(data pprofile.Profiles, resolve func(pcommon.Value) pcommon.Value) (keys []string) {
	for _, a := range data.Dictionary().AttributeTable().All() {
		keys = append(keys, string(appendValueKey(nil, resolve(a.Value()))))
	}
	return keys
}

func assertResolvedAsAlone(t *testing.T, data pprofile.Profiles) {
	t.Helper()
	want := valueKeys(data, func(v pcommon.Value) pcommon.Value {
		if !mayRefer(v) || !refers(v) {
			return v
		}
		return resolvedAlone(data.Dictionary(), v)
	})
	resolveReferences(data)
	require.Equal(t, want, valueKeys(data, func(v pcommon.Value) pcommon.Value {
		require.False(t, mayRefer(v) && refers(v))
		return v
	}))
}

func TestDictionaryReferencesAmongDanglingOnes(t *testing.T) {
	list := func(values ...[]byte) []byte {
		var b []byte
		for _, v := range values {
			b = appendBytes(b, 1, v)
		}
		return appendBytes(nil, valueList, b)
	}
	text := appendBytes(nil, 1, []byte("a text"))
	values := [][]byte{
		nil, text,
		reference(0), reference(1), reference(2), reference(3), reference(-1), reference(math.MaxInt32), reference(math.MinInt32),
		list(), list(nil), list(text, reference(2)), list(reference(1), reference(3)), list(list(reference(2), nil)),
		mapValue(), mapValue(mapEntry("", 0, nil)), mapValue(mapEntry("key", 0, reference(1))),
		mapValue(mapEntry("", 2, text)), mapValue(mapEntry("", 2, text), mapEntry("", 2, reference(2))),
		mapValue(mapEntry("", 3, text)), mapValue(mapEntry("", -1, text)), mapValue(mapEntry("key", 1, text)),
		mapValue(mapEntry("key", 0, list(reference(1), mapValue(mapEntry("", 1, reference(0)))))),
		mapValue(mapEntry("key", 0, list(reference(1), mapValue(mapEntry("", 1, reference(7)))))),
	}
	for levels := range 50 {
		v, w := reference(1), mapValue()
		for range levels {
			v, w = list(v), list(w)
		}
		for range min(levels, 31) {
			values = append(values, v, w)
			v, w = mapValue(mapEntry("", 1, v)), mapValue(mapEntry("key", 0, w))
		}
	}
	valid := values[:0:0]
	for _, v := range values { // pdata reads no values that are deeper than it can
		if _, err := (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles(
			appendBytes(nil, 2, appendBytes(nil, 6, appendBytes(nil, 2, v)))); err == nil {
			valid = append(valid, v)
		}
	}
	require.Greater(t, len(valid), 100)
	assertResolvedAsAlone(t, withValues([]string{"", "first", "second"}, len(valid), func(i int) []byte { return valid[i] }))
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		texts := []string{"zero", "first", "second", "third"}[:rnd.IntN(5)]
		assertResolvedAsAlone(t, withValues(texts, 20, func(int) []byte { return valid[rnd.IntN(len(valid))] }))
	}
}

// An attribute that has neither key nor unit is not null if its value refers to a
// text.
func TestDictionaryReferencesWithoutKey(t *testing.T) {
	for _, first := range []string{"", "key"} {
		var dictionary []byte
		for _, text := range []string{first, "other", "hello"} {
			dictionary = appendBytes(dictionary, 5, []byte(text))
		}
		dictionary = appendBytes(dictionary, 6, appendBytes(nil, 2, reference(2)))
		data := payloadtest.SimpleProfiles(1, 0)
		decoded(appendBytes(nil, 2, dictionary)).Dictionary().CopyTo(data.Dictionary())
		for p := range eachProfile(data) {
			p.Samples().At(0).AttributeIndices().FromRaw([]int32{0})
		}
		piece := Profiles().Cut(data, Profiles().Index(data, false, 0), 0, 1)
		require.Equal(t, 2, piece.Dictionary().AttributeTable().Len())
		assert.Equal(t, "hello", piece.Dictionary().AttributeTable().At(1).Value().Str())
	}
}

// Many references to one long text make no message that is larger by orders of
// magnitude.
func TestDictionaryReferencesStayInProportion(t *testing.T) {
	build := func(n, length int) pprofile.Profiles {
		return withValues([]string{"", strings.Repeat("x", length)}, n, func(i int) []byte {
			if i%2 == 0 {
				return reference(1)
			}
			return mapValue(mapEntry("key", 0, reference(1)))
		})
	}
	data := build(200, 4000) // below the bound
	Profiles().Cost(data, 0)
	size := Profiles().Bytes(data)
	resolveReferences(data)
	assert.Greater(t, Profiles().Bytes(data), size+200*4000-2000)

	data = build(5000, 40_000)
	size = Profiles().Bytes(data)
	resolveReferences(data)
	assert.Less(t, Profiles().Bytes(data), textRoom+(expansion+1)*size)
	assert.Len(t, data.Dictionary().AttributeTable().At(0).Value().Str(), 40_000)
}

// FuzzResolveReferences compares with each value read back alone.
func FuzzResolveReferences(f *testing.F) {
	for _, name := range []string{"one of many references dangles", "references in maps, one dangles", "null strings"} {
		data := hostileProfiles[name](5)
		message, err := profileSizer.MarshalProfiles(data)
		require.NoError(f, err)
		f.Add(message)
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		data, err := (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles(message)
		if err == nil && len(message) < 10_000 { // more may be above the bound
			assertResolvedAsAlone(t, data)
		}
	})
}
