// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/pullbatch/batcherexporter/internal/payload/payloadtest"
)

func TestDictionaryKeysTellEntriesApart(t *testing.T) {
	type set func(pcommon.Value)
	key := func(f set) string {
		d := newDictionary(pprofile.NewProfiles().Dictionary())
		f(d.attributes.At(0).Value())
		return string(d.appendKey(nil, attributeTable, 0))
	}
	values := map[string]set{
		"empty":         func(pcommon.Value) {},
		"empty string":  func(v pcommon.Value) { v.SetStr("") },
		"string":        func(v pcommon.Value) { v.SetStr("1") },
		"int":           func(v pcommon.Value) { v.SetInt(1) },
		"false":         func(v pcommon.Value) { v.SetBool(false) },
		"true":          func(v pcommon.Value) { v.SetBool(true) },
		"zero":          func(v pcommon.Value) { v.SetDouble(0) },
		"negative zero": func(v pcommon.Value) { v.SetDouble(math.Copysign(0, -1)) },
		"NaN":           func(v pcommon.Value) { v.SetDouble(math.NaN()) },
		"bytes":         func(v pcommon.Value) { v.SetEmptyBytes().FromRaw([]byte("1")) },
		"empty list":    func(v pcommon.Value) { v.SetEmptySlice() },
		"list of lists": func(v pcommon.Value) { v.SetEmptySlice().AppendEmpty().SetEmptySlice() },
		"empty map":     func(v pcommon.Value) { v.SetEmptyMap() },
		"map":           func(v pcommon.Value) { v.SetEmptyMap().PutStr("a", "bc") },
		"other map":     func(v pcommon.Value) { v.SetEmptyMap().PutStr("ab", "c") },
		"key twice":     func(v pcommon.Value) { payloadtest.Duplicate(v.SetEmptyMap(), "key", "a", "b") },
		"in this order": func(v pcommon.Value) { payloadtest.Duplicate(v.SetEmptyMap(), "key", "b", "a") },
	}
	seen := map[string]string{}
	for name, value := range values {
		k := key(value)
		assert.Equal(t, k, key(value), "%s has the same key each time", name)
		assert.NotContains(t, seen, k, "the key of %s", name)
		seen[k] = name
	}
}

// Whatever an index is, and whatever stands in the place of the null entry, the
// item stays and shows the same as before.
func TestDictionaryMalformed(t *testing.T) {
	build := func(fill func(pprofile.ProfilesDictionary, pprofile.Profile, pprofile.Sample)) pprofile.Profiles {
		data := pprofile.NewProfiles()
		p := data.ResourceProfiles().AppendEmpty().ScopeProfiles().AppendEmpty().Profiles().AppendEmpty()
		x := p.Samples().AppendEmpty()
		x.Values().Append(1)
		fill(data.Dictionary(), p, x)
		return data
	}
	tests := map[string]func(pprofile.ProfilesDictionary, pprofile.Profile, pprofile.Sample){
		"no dictionary": func(pprofile.ProfilesDictionary, pprofile.Profile, pprofile.Sample) {},
		"indices beyond the tables": func(_ pprofile.ProfilesDictionary, p pprofile.Profile, x pprofile.Sample) {
			p.SampleType().SetTypeStrindex(1)
			p.AttributeIndices().Append(0, 1)
			x.SetStackIndex(7)
			x.SetLinkIndex(math.MaxInt32)
			x.AttributeIndices().Append(3)
		},
		"negative indices": func(d pprofile.ProfilesDictionary, p pprofile.Profile, x pprofile.Sample) {
			newDictionary(d)
			p.PeriodType().SetUnitStrindex(-1)
			p.AttributeIndices().Append(math.MinInt32)
			x.SetStackIndex(-1)
			x.SetLinkIndex(-2)
		},
		"entries with bad indices": func(d pprofile.ProfilesDictionary, _ pprofile.Profile, x pprofile.Sample) {
			newDictionary(d)
			d.StackTable().AppendEmpty().LocationIndices().Append(1, 9, -9)
			l := d.LocationTable().AppendEmpty()
			l.SetMappingIndex(-4)
			l.AttributeIndices().Append(44)
			l.Lines().AppendEmpty().SetFunctionIndex(5)
			x.SetStackIndex(1)
		},
		"no null entries": func(d pprofile.ProfilesDictionary, p pprofile.Profile, x pprofile.Sample) {
			d.StringTable().Append("cpu", "main")
			d.StackTable().AppendEmpty().LocationIndices().Append(0)
			d.LocationTable().AppendEmpty().Lines().AppendEmpty().SetFunctionIndex(0)
			d.FunctionTable().AppendEmpty().SetNameStrindex(1)
			d.MappingTable().AppendEmpty().SetFilenameStrindex(0)
			d.LinkTable().AppendEmpty().SetSpanID([8]byte{1})
			d.AttributeTable().AppendEmpty().Value().SetStr("v")
			p.AttributeIndices().Append(0)
			x.AttributeIndices().Append(0)
		},
		"only null entries": func(d pprofile.ProfilesDictionary, _ pprofile.Profile, x pprofile.Sample) {
			for range 3 {
				newDictionary(d)
			}
			d.StackTable().At(1).LocationIndices().Append(2, 1, 0)
			x.SetStackIndex(1)
			x.SetLinkIndex(2)
		},
	}
	for name, fill := range tests {
		t.Run(name, func(t *testing.T) {
			want := payloadtest.FlattenProfiles(build(fill))
			require.Len(t, want, 1)
			ix := Profiles().Index(build(fill), true, 300)
			assert.Equal(t, want, payloadtest.FlattenProfiles(Profiles().Cut(build(fill), ix, 0, 1)))
			for otherName, otherFill := range tests {
				other := payloadtest.FlattenProfiles(build(otherFill))
				merged, _ := merge(false, build(fill), build(otherFill), build(fill))
				assert.Equal(t, []string{want[0], other[0], want[0]}, payloadtest.FlattenProfiles(merged), "with %s", otherName)
				assertWellFormed(t, merged.Dictionary())
			}
		})
	}
}

// assertWellFormed checks that each table has just one null entry, in its place.
func assertWellFormed(t *testing.T, dic pprofile.ProfilesDictionary) {
	t.Helper()
	d := openDictionary(dic)
	for n := range tableCount {
		require.Positive(t, d.len(n))
		for i := range int32(d.len(n)) {
			assert.Equal(t, i == 0, d.isNull(n, i), "table %d, entry %d", n, i)
		}
	}
}

// Marshalling puts references in the place of texts, in the data itself.
func TestDictionaryReferencesOfMarshalledData(t *testing.T) {
	build := func(seed uint64) pprofile.Profiles {
		return payloadtest.RandomProfiles(rand.New(rand.NewPCG(seed, 0)), 60, 0)
	}
	marshalled := func(t *testing.T, seed uint64) pprofile.Profiles {
		data := build(seed)
		_, err := profileSizer.MarshalProfiles(data)
		require.NoError(t, err)
		return data
	}
	for seed := range uint64(10) {
		want := payloadtest.FlattenProfiles(build(seed))
		data := marshalled(t, seed)
		require.NotEqual(t, want, payloadtest.FlattenProfiles(data))
		cost := Profiles().Cost(data, 100_000)
		assert.Equal(t, want, payloadtest.FlattenProfiles(data))
		assert.GreaterOrEqual(t, cost, Profiles().Bytes(data))

		data = marshalled(t, seed)
		pieces := cutAt(data, Profiles().Index(data, seed%2 == 0, 0), 20, 40)
		merged, _ := merge(false, pieces...)
		assert.Equal(t, want, payloadtest.FlattenProfiles(merged))

		merged, _ = merge(false, marshalled(t, seed), marshalled(t, seed+1))
		assert.Equal(t, append(want, payloadtest.FlattenProfiles(build(seed+1))...), payloadtest.FlattenProfiles(merged))
	}
}

// The values of attributes in the dictionary may be references as well: other
// senders make some, and pdata passes them on as they are.
func TestDictionaryReferencesInAttributes(t *testing.T) {
	// withValue is a request with a sample that has an attribute, whose value was
	// a text until marshalling put a reference in its place.
	withValue := func(t *testing.T, dangling bool) pprofile.Profiles {
		data := payloadtest.SimpleProfiles(2, 0)
		attrs := data.ResourceProfiles().At(0).Resource().Attributes()
		attrs.PutStr("moved", "a text")
		attrs.PutEmptyMap("nested").PutEmptySlice("list").AppendEmpty().SetStr("another text")
		original := Profiles().Clone(data)
		_, err := profileSizer.MarshalProfiles(data)
		require.NoError(t, err)
		x := data.ResourceProfiles().At(0).ScopeProfiles().At(0).Profiles().At(0).Samples().At(0)
		for _, v := range attrs.All() {
			a := data.Dictionary().AttributeTable().AppendEmpty()
			a.SetKeyStrindex(1)
			v.CopyTo(a.Value())
			x.AttributeIndices().Append(int32(data.Dictionary().AttributeTable().Len() - 1))
		}
		original.ResourceProfiles().At(0).Resource().CopyTo(data.ResourceProfiles().At(0).Resource())
		if dangling {
			strings := data.Dictionary().StringTable()
			strings.FromRaw(strings.AsRaw()[:original.Dictionary().StringTable().Len()])
		}
		return data
	}
	valuesOf := func(data pprofile.Profiles) (values []any) {
		for _, a := range data.Dictionary().AttributeTable().All() {
			if a.KeyStrindex() == 1 {
				values = append(values, a.Value().AsRaw())
			}
		}
		return values
	}
	var want []any
	for i := range 6 {
		want = append(want, fmt.Sprint("value of some length ", i))
	}
	want = append(want, "a text", map[string]any{"list": []any{"another text"}})

	data := withValue(t, false)
	Profiles().Cost(data, 1000)
	assert.Equal(t, want, valuesOf(data))
	data = withValue(t, true)
	Profiles().Index(data, true, 1000)
	assert.Equal(t, make([]any, len(want)), valuesOf(data))
	assert.Len(t, payloadtest.FlattenProfiles(data), 2)
}

func TestDictionaryReferencesLeavesSharedDataAlone(t *testing.T) {
	data := payloadtest.SimpleProfiles(1, 0)
	data.ResourceProfiles().At(0).Resource().Attributes().PutEmpty("nothing")
	want := payloadtest.FlattenProfiles(data)
	resolveReferences(data) // the value is empty, but no reference
	assert.Equal(t, want, payloadtest.FlattenProfiles(data))
	_, err := profileSizer.MarshalProfiles(data)
	require.NoError(t, err)
	data.MarkReadOnly()
	assert.NotPanics(t, func() { resolveReferences(data) })
}

// FuzzMergeSplitProfiles reads any message, cuts it and merges the pieces. In its
// messages nothing is as it should be, in those of the other tests almost all is.
func FuzzMergeSplitProfiles(f *testing.F) {
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		data := payloadtest.RandomProfiles(rnd, 10, 0)
		if seed%2 == 0 {
			data = payloadtest.MalformedProfiles(rnd, 10, 0)
		}
		message, err := profileSizer.MarshalProfiles(data)
		require.NoError(f, err)
		f.Add(message, uint8(3), uint8(7), uint16(500))
	}
	for _, build := range hostileProfiles {
		message, err := profileSizer.MarshalProfiles(build(9))
		require.NoError(f, err)
		f.Add(message, uint8(3), uint8(7), uint16(500))
	}
	f.Fuzz(func(t *testing.T, message []byte, first, second uint8, limit uint16) {
		data, err := (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles(message)
		if err == nil {
			fuzzOne(t, data, first, second, limit)
		}
	})
}

func fuzzOne(t *testing.T, data pprofile.Profiles, first, second uint8, limit uint16) {
	limit = max(1, limit)
	cost := Profiles().Cost(data, int(limit))
	require.GreaterOrEqual(t, cost, Profiles().Bytes(data))
	ix := Profiles().Index(data, true, int(limit))
	require.Equal(t, cost, ix.Whole())
	want := payloadtest.FlattenProfiles(data)
	low := min(int(first), ix.Items())
	pieces := cutAt(data, ix, low, max(low, min(int(second), ix.Items())))
	from := 0
	for _, piece := range pieces {
		to := from + piece.SampleCount()
		require.LessOrEqual(t, Profiles().Bytes(piece), ix.Cost(from, to))
		from = to
	}
	merged, _ := merge(false, append(pieces, payloadtest.SimpleProfiles(1, 0))...)
	want = append(want, payloadtest.FlattenProfiles(payloadtest.SimpleProfiles(1, 0))...)
	require.Equal(t, want, payloadtest.FlattenProfiles(merged))
}

// BenchmarkMergeProfiles shows that a request costs the same however many are in
// the batch, and BenchmarkCutProfiles that a sample does however large its request.
func BenchmarkMergeProfiles(b *testing.B) {
	for _, requests := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("requests=%d", requests), func(b *testing.B) {
			b.ReportAllocs()
			all := make([]pprofile.Profiles, requests)
			for b.Loop() {
				b.StopTimer()
				for i := range all {
					all[i] = benchmarkProfiles(10, 10*i)
				}
				b.StartTimer()
				merge(true, all...)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*requests), "ns/request")
		})
	}
}

func BenchmarkCutProfiles(b *testing.B) {
	for _, items := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("items=%d", items), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				data := benchmarkProfiles(items, 0)
				b.StartTimer()
				ix := Profiles().Index(data, true, 1_000_000)
				for from := 0; from < items; from += 512 {
					Profiles().Cut(data, ix, from, min(from+512, items))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*items), "ns/item")
		})
	}
}

// benchmarkProfiles has a stack of its own for each sample.
func benchmarkProfiles(items, first int) pprofile.Profiles {
	data := payloadtest.SimpleProfiles(items, int64(first))
	dic := data.Dictionary()
	samples := data.ResourceProfiles().At(0).ScopeProfiles().At(0).Profiles().At(0).Samples()
	for i := range items {
		dic.StringTable().Append(fmt.Sprint("function ", first+i))
		dic.FunctionTable().AppendEmpty().SetNameStrindex(int32(dic.StringTable().Len() - 1))
		dic.LocationTable().AppendEmpty().Lines().AppendEmpty().SetFunctionIndex(int32(dic.FunctionTable().Len() - 1))
		dic.StackTable().AppendEmpty().LocationIndices().Append(1, 2, 3, int32(dic.LocationTable().Len()-1))
		samples.At(i).SetStackIndex(int32(dic.StackTable().Len() - 1))
	}
	return data
}
