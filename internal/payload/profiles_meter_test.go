// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/pullbatch/batcherexporter/internal/payload/payloadtest"
)

// distinctProfiles makes samples of which none shares anything with another, of
// this or any other request, so that there is no slack in any bound. Without null
// entries the first ones stand in their place.
func distinctProfiles(items, first int, nulls bool) pprofile.Profiles {
	data := pprofile.NewProfiles()
	d := openDictionary(data.Dictionary())
	if nulls {
		d = newDictionary(data.Dictionary())
	}
	samples := data.ResourceProfiles().AppendEmpty().ScopeProfiles().AppendEmpty().Profiles().AppendEmpty().Samples()
	last := func(t table) int32 { return int32(d.len(t) - 1) }
	text := func(kind string, i int) int32 {
		d.strings.Append(fmt.Sprintf("%s %d", kind, first+i))
		return last(stringTable)
	}
	for i := range items {
		d.functions.AppendEmpty().SetNameStrindex(text("function", i))
		d.functions.At(d.functions.Len() - 1).SetSystemNameStrindex(text("system name", i))
		d.functions.At(d.functions.Len() - 1).SetFilenameStrindex(text("file", i))
		d.mappings.AppendEmpty().SetFilenameStrindex(text("binary", i))
		d.attributes.AppendEmpty().SetKeyStrindex(text("key", i))
		d.attributes.At(d.attributes.Len() - 1).SetUnitStrindex(text("unit", i))
		location := d.locations.AppendEmpty()
		location.SetMappingIndex(last(mappingTable))
		location.AttributeIndices().Append(last(attributeTable))
		location.Lines().AppendEmpty().SetFunctionIndex(last(functionTable))
		d.stacks.AppendEmpty().LocationIndices().Append(last(locationTable))
		d.attributes.AppendEmpty().SetKeyStrindex(text("sample key", i))
		link := d.links.AppendEmpty()
		link.SetSpanID(pcommon.SpanID{byte(first + i), byte((first + i) >> 8), 1})
		x := samples.AppendEmpty()
		x.SetStackIndex(last(stackTable))
		x.SetLinkIndex(last(linkTable))
		x.AttributeIndices().Append(last(attributeTable))
		x.Values().Append(int64(first + i))
	}
	return data
}

// Where nothing is shared, the cost is known to the byte. (Without null entries,
// the type of the samples is the first string, which the first sample needs too.)
func TestProfilesCostOfDistinct(t *testing.T) {
	for _, nulls := range []bool{true, false} {
		shared := framed(len("function 0"))
		if nulls {
			shared = 0
		}
		for _, items := range []int{1, 20, 127, 128, 300} {
			for _, limit := range []int{0, 100, 300} {
				data := distinctProfiles(items, 0, nulls)
				ix := Profiles().Index(data, true, limit)
				piece := Profiles().Cut(data, ix, 0, items)
				assert.Equal(t, Profiles().Bytes(piece)+shared, ix.Cost(0, items), "nulls %v, %d items, limit %d", nulls, items, limit)
			}
		}
	}
}

// Indices grow when they go to a larger dictionary: from one byte to two and
// three here. The bound holds, and is not much too high.
func TestProfilesCostOfGrowingIndices(t *testing.T) {
	const requests, items = 700, 10
	var limit int
	for range requests {
		limit += 2 * Profiles().Bytes(distinctProfiles(items, 0, true))
	}
	var all []pprofile.Profiles
	whole, pieces, exact := 0, 0, 0
	for i := range requests {
		data := distinctProfiles(items, i*items, i%2 == 0)
		whole += Profiles().Cost(data, limit)
		pieces += Profiles().Index(data, true, limit).Cost(0, items)
		exact += Profiles().Bytes(data)
		all = append(all, data)
	}
	merged, saved := merge(true, all...)
	size := Profiles().Bytes(merged)
	assert.Greater(t, size, exact, "the indices have grown")
	assert.Less(t, whole, limit)
	for name, cost := range map[string]int{"whole": whole, "pieces": pieces} {
		assert.LessOrEqual(t, size, cost-saved, name)
		assert.Less(t, float64(cost), 1.25*float64(size), name)
	}
}

// Entries of a piece keep their order. Otherwise an index that is used often could
// become longer than it was, and the piece larger than its cost.
func TestProfilesCutKeepsOrderOfEntries(t *testing.T) {
	data := pprofile.NewProfiles()
	d := newDictionary(data.Dictionary())
	samples := data.ResourceProfiles().AppendEmpty().ScopeProfiles().AppendEmpty().Profiles().AppendEmpty().Samples()
	for i := range int64(200) {
		d.attributes.AppendEmpty().Value().SetInt(i)
		samples.AppendEmpty().AttributeIndices().Append(int32(200 - i))
		samples.AppendEmpty().AttributeIndices().Append(int32(max(1, 100-i)))
	}
	ix := Profiles().Index(data, true, 0)
	cost := ix.Cost(0, 400)
	assert.Equal(t, cost, Profiles().Bytes(Profiles().Cut(data, ix, 0, 400)))
}

// Texts in attributes move to the dictionary when the data is marshalled, and
// leave references.
func TestProfilesCostCoversMarshalling(t *testing.T) {
	const limit, attributes = 100_000, 30
	for name, attrsOf := range map[string]func(pprofile.ResourceProfiles) pcommon.Map{
		"resource": func(r pprofile.ResourceProfiles) pcommon.Map { return r.Resource().Attributes() },
		"scope":    func(r pprofile.ResourceProfiles) pcommon.Map { return r.ScopeProfiles().At(0).Scope().Attributes() },
	} {
		build := func(request int) pprofile.Profiles {
			data := pprofile.NewProfiles()
			r := data.ResourceProfiles().AppendEmpty()
			r.ScopeProfiles().AppendEmpty().Profiles().AppendEmpty().Samples().AppendEmpty()
			attrs := attrsOf(r)
			for i := range attributes {
				attrs.PutStr(fmt.Sprintf("k%d.%d", request, i), fmt.Sprintf("v%d.%d", request, i))
				nested := attrs.PutEmptyMap(fmt.Sprintf("s%d.%d", request, i))
				nested.PutStr(fmt.Sprintf("n%d.%d", request, i), "")
				nested.PutEmptySlice("list").AppendEmpty().SetStr(fmt.Sprintf("l%d.%d", request, i))
			}
			return data
		}
		for _, requests := range []int{1, 2, 20} {
			var all []pprofile.Profiles
			costs, pieces, exact := 0, 0, 0
			for request := range requests {
				data := build(request)
				if requests == 1 { // taken as it is, and larger by what nothing needs
					data.Dictionary().StringTable().FromRaw(make([]string, 1000))
				}
				costs += Profiles().Cost(data, limit)
				pieces += Profiles().Index(data, true, limit).Cost(0, 1)
				exact += Profiles().Bytes(data)
				all = append(all, data)
			}
			merged, _ := merge(true, all...)
			size := marshalledSize(t, merged)
			require.Greater(t, size, exact, "marshalling has grown it")
			assert.LessOrEqual(t, size, costs, "%s, %d requests", name, requests)
			if requests > 1 {
				assert.LessOrEqual(t, size, pieces, "%s, %d requests", name, requests)
			}
		}
	}
}

// What was saved is known but for some length prefixes, if no index grows.
func TestProfilesSaved(t *testing.T) {
	const requests = 6
	var all []pprofile.Profiles
	sum := 0
	for i := range requests {
		// What nothing needs is saved too, but does not count: cut it off.
		data := benchmarkProfiles(3, i)
		data = Profiles().Cut(data, Profiles().Index(data, false, 0), 0, 3)
		sum += Profiles().Bytes(data)
		all = append(all, data)
	}
	merged, saved := merge(false, all...)
	assert.LessOrEqual(t, Profiles().Bytes(merged), sum-saved)
	assert.GreaterOrEqual(t, Profiles().Bytes(merged), sum-saved-2*requests)
}

// TestRecent compares with sets of entries that are filled and emptied in the
// simplest way.
func TestRecent(t *testing.T) {
	type entry struct {
		table
		index int32
	}
	for _, capacity := range []int{0, 1, 100, 400, 2000} {
		data := payloadtest.RandomProfiles(rand.New(rand.NewPCG(9, uint64(capacity))), 200, 0)
		z := newSizer(data.Dictionary(), 0)
		c := newRecent(z.src, capacity)
		one := newRemap(z.src)
		young, old := map[entry]int{}, map[entry]int{}
		sizes := func(entries map[entry]int) (sum int) {
			for _, size := range entries {
				sum += size
			}
			return sum
		}
		for p := range eachProfile(data) {
			for _, x := range p.Samples().All() {
				one.reset()
				one.wantSample(x)
				one.complete()
				missed := 0
				for n := range tableCount {
					for _, i := range one.needed[n] {
						e := entry{n, i}
						if young[e]+old[e] == 0 {
							missed += z.entry(n, i)
						}
						young[e] = z.entry(n, i)
						delete(old, e)
					}
				}
				if capacity > 0 && sizes(young) > capacity/2 {
					young, old = map[entry]int{}, young
				}
				require.Equal(t, missed, c.add(&z, x), "capacity %d", capacity)
				require.Equal(t, sizes(young)+sizes(old), c.bytes(), "capacity %d", capacity)
			}
		}
		one.release()
		c.release()
	}
}
