// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror/xconsumererror"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"pgregory.net/rapid"

	"github.com/pullbatch/batcherexporter/internal/payload/payloadtest"
)

func profilesSubject() subject[pprofile.Profiles] {
	return subject[pprofile.Profiles]{
		Signal: Profiles(), simple: payloadtest.SimpleProfiles, random: payloadtest.RandomProfiles,
		ids: payloadtest.IDsProfiles, flatten: payloadtest.FlattenProfiles,
		readOnly:  pprofile.Profiles.MarkReadOnly,
		unmarshal: (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles, marshal: profileSizer.MarshalProfiles,
		partial: xconsumererror.NewProfiles,
	}
}

// What holds for all signals. Sizes are another matter: those of profiles depend
// on the dictionary that they go to.
func TestProfilesAreASignal(t *testing.T) {
	t.Run("clone", func(t *testing.T) { testClone(t, profilesSubject()) })
	t.Run("remainder", func(t *testing.T) { testRemainder(t, profilesSubject()) })
	t.Run("cut concurrently", func(t *testing.T) { testCutConcurrently(t, profilesSubject()) })
	t.Run("fit", func(t *testing.T) { testFit(t, profilesSubject()) })
}

// drawProfiles draws well-formed or malformed data.
func drawProfiles(t *rapid.T, firstID int64) pprofile.Profiles {
	rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	items := rapid.IntRange(0, 40).Draw(t, "items")
	if rapid.Bool().Draw(t, "malformed") {
		return payloadtest.MalformedProfiles(rnd, items, firstID)
	}
	return payloadtest.RandomProfiles(rnd, items, firstID)
}

// drawLimit draws a bound in bytes, or none.
func drawLimit(t *rapid.T) int {
	return rapid.SampledFrom([]int{0, 1, 300, 500, 3000, 40_000, 4_000_000}).Draw(t, "limit")
}

// cutAt cuts data at the given places.
func cutAt(data pprofile.Profiles, ix *Index, cuts ...int) []pprofile.Profiles {
	var pieces []pprofile.Profiles
	from := 0
	for _, to := range append(cuts, ix.Items()) {
		if to > from {
			pieces = append(pieces, Profiles().Cut(data, ix, from, to))
			from = to
		}
	}
	return pieces
}

func drawCuts(t *rapid.T, items int) []int {
	cuts := rapid.SliceOfN(rapid.IntRange(0, items), 0, 6).Draw(t, "cuts")
	slices.Sort(cuts)
	return cuts
}

func merge(mergeResources bool, all ...pprofile.Profiles) (pprofile.Profiles, int) {
	b := Profiles().NewMerger(mergeResources).Begin(false)
	for _, data := range all {
		b.Add(data)
	}
	return b.Data(), b.Saved()
}

func marshalledSize(t require.TestingT, data pprofile.Profiles) int {
	message, err := profileSizer.MarshalProfiles(Profiles().Clone(data))
	require.NoError(t, err)
	return len(message)
}

func TestProfilesSurviveCutAndMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := drawProfiles(t, 0)
		want := payloadtest.FlattenProfiles(data)
		ix := Profiles().Index(data, rapid.Bool().Draw(t, "bytes"), drawLimit(t))
		require.Equal(t, len(want), ix.Items())
		pieces := cutAt(data, ix, drawCuts(t, ix.Items())...)
		var got []string
		for _, piece := range pieces {
			got = append(got, payloadtest.FlattenProfiles(piece)...)
		}
		require.Equal(t, want, got, "after the cut")
		merged, _ := merge(false, pieces...)
		require.Equal(t, want, payloadtest.FlattenProfiles(merged), "after the merge")
	})
}

func TestProfilesSurviveJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []pprofile.Profiles
		var want []string
		for n := range rapid.IntRange(0, 6).Draw(t, "requests") {
			data := drawProfiles(t, int64(1000*n))
			want = append(want, payloadtest.FlattenProfiles(data)...)
			all = append(all, data)
		}
		merged, _ := merge(true, all...)
		require.Equal(t, byScope(want), byScope(payloadtest.FlattenProfiles(merged)))
	})
}

func TestProfilesCutIsWithinIndexCost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := drawProfiles(t, 0)
		ix := Profiles().Index(data, true, drawLimit(t))
		from := rapid.IntRange(0, ix.Items()).Draw(t, "from")
		to := rapid.IntRange(from, ix.Items()).Draw(t, "to")
		cost := ix.Cost(from, to)
		piece := Profiles().Cut(data, ix, from, to)
		if from == to {
			return
		}
		require.LessOrEqual(t, Profiles().Bytes(piece), cost)
	})
}

func TestProfilesBatchIsWithinCosts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{3000, 10_000, 40_000, 4_000_000}).Draw(t, "limit")
		var parts []pprofile.Profiles
		costs := 0
		for n := range rapid.IntRange(1, 8).Draw(t, "requests") {
			data := drawProfiles(t, int64(1000*n))
			if rapid.Bool().Draw(t, "whole") {
				costs += Profiles().Cost(data, limit)
				parts = append(parts, data)
				continue
			}
			ix := Profiles().Index(data, true, limit)
			from := rapid.IntRange(0, ix.Items()).Draw(t, "from")
			to := rapid.IntRange(from, ix.Items()).Draw(t, "to")
			costs += ix.Cost(from, to)
			parts = append(parts, Profiles().Cut(data, ix, from, to))
		}
		if costs > limit {
			return
		}
		merged, saved := merge(rapid.Bool().Draw(t, "join"), parts...)
		require.LessOrEqual(t, Profiles().Bytes(merged), costs-saved)
		require.LessOrEqual(t, marshalledSize(t, merged), costs, "with the texts in the dictionary")
	})
}

// Without a limit, a meter is no bound but right to the byte.
func TestProfilesMeterIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		source := payloadtest.RandomProfiles(rnd, rapid.IntRange(1, 40).Draw(t, "items"), 0)
		ix := Profiles().Index(source, false, 0)
		data := Profiles().Cut(source, ix, 0, ix.Items())
		m := newMeter(data, 0, profilesSignal{profilesTree{profiles{}, &sync.Pool{}}}.bareFor(data))
		entries := nullEntries
		for n := range tableCount {
			for i := int32(1); int(i) < m.length[n]; i++ {
				entries += m.entry(n, i)
			}
		}
		require.Equal(t, Profiles().Bytes(data), m.request(data)+framed(entries))
		require.Equal(t, Profiles().Bytes(data), Profiles().Cost(data, 0))
	})
}

// A request costs the same whatever the size of its batch, and a piece the same
// whatever the size of its request: allocations do not depend on the machine.
func TestProfilesAreLinear(t *testing.T) {
	perRequest := func(requests int) float64 {
		var all []pprofile.Profiles
		for i := range 2 * requests { // AllocsPerRun calls once more than it is told to
			all = append(all, benchmarkProfiles(10, 10*i))
		}
		return testing.AllocsPerRun(1, func() {
			merge(true, all[:requests]...)
			all = all[requests:]
		}) / float64(requests)
	}
	assert.Less(t, perRequest(1000), 1.2*perRequest(100))

	// The fewest of some: a collection, or the race detector, makes sync.Pool forget,
	// which adds to some of them.
	perPiece := func(items int) float64 {
		data := benchmarkProfiles(items, 0)
		ix := Profiles().Index(data, true, 10_000)
		fewest := math.Inf(1)
		for from := 0; from < 500; {
			fewest = min(fewest, testing.AllocsPerRun(1, func() { // which calls it twice
				Profiles().Cut(data, ix, from, from+50)
				from += 50
			}))
		}
		return fewest
	}
	assert.Less(t, perPiece(5000), 1.5*perPiece(500))
}

// A cut takes only what it needs: cutting all of it out of it again changes nothing.
func TestProfilesCutIsCompact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		data := payloadtest.RandomProfiles(rnd, 30, 0)
		data.Dictionary().StringTable().Append(strings.Repeat("unused", 1000))
		ix := Profiles().Index(data, false, 0)
		for _, piece := range cutAt(data, ix, drawCuts(t, 30)...) {
			size := Profiles().Bytes(piece)
			again := Profiles().Index(piece, false, 0)
			piece = Profiles().Cut(piece, again, 0, again.Items())
			require.Equal(t, size, Profiles().Bytes(piece))
		}
	})
}

func TestProfilesMergeOfEqualRequestsKeepsDictionary(t *testing.T) {
	build := func() pprofile.Profiles { return payloadtest.RandomProfiles(rand.New(rand.NewPCG(7, 7)), 100, 0) }
	lengths := func(n int) (lengths [tableCount]int) {
		all := make([]pprofile.Profiles, n)
		for i := range all {
			all[i] = build()
		}
		merged, _ := merge(true, all...)
		d := openDictionary(merged.Dictionary())
		for t := range tableCount {
			lengths[t] = d.len(t)
		}
		return lengths
	}
	assert.Equal(t, lengths(2), lengths(50))
	original := openDictionary(build().Dictionary())
	for n, length := range lengths(50) {
		assert.LessOrEqual(t, length, original.len(table(n)))
	}
}

// Field case 104.
func TestProfilesKeepTheirDictionary(t *testing.T) {
	for _, padding := range []int{0, 200, 600, 2000} {
		t.Run(fmt.Sprintf("unused=%d", padding), func(t *testing.T) {
			build := func() (all []pprofile.Profiles, flat []string) {
				rnd := rand.New(rand.NewPCG(104, uint64(padding)))
				for n := range int64(2) {
					data := payloadtest.RandomProfiles(rnd, 100, 100*n)
					for p := range eachProfile(data) {
						p.OriginalPayload().FromRaw(nil) // may be above the bound by itself
					}
					data.Dictionary().StringTable().Append(strings.Repeat("u", padding))
					flat = append(flat, payloadtest.FlattenProfiles(data)...)
					all = append(all, data)
				}
				return all, flat
			}
			t.Run("merge", func(t *testing.T) {
				all, want := build()
				merged, _ := merge(false, all...)
				assert.Equal(t, want, payloadtest.FlattenProfiles(merged))
			})
			t.Run("cut by items", func(t *testing.T) {
				all, want := build()
				var got []string
				for _, data := range all {
					for _, piece := range cutAt(data, Profiles().Index(data, false, 0), 30, 60, 90) {
						assert.LessOrEqual(t, piece.SampleCount(), 30)
						got = append(got, payloadtest.FlattenProfiles(piece)...)
					}
				}
				assert.Equal(t, want, got)
			})
			t.Run("cut by bytes", func(t *testing.T) {
				const limit = 500
				all, want := build()
				var got []string
				for _, data := range all {
					ix := Profiles().Index(data, true, limit)
					for from := 0; from < ix.Items(); {
						to := max(from+1, ix.Fit(from, limit))
						piece := Profiles().Cut(data, ix, from, to)
						if to > from+1 {
							assert.LessOrEqual(t, marshalledSize(t, piece), limit)
							assert.LessOrEqual(t, Profiles().Bytes(piece), limit)
						}
						got = append(got, payloadtest.FlattenProfiles(piece)...)
						from = to
					}
				}
				assert.Equal(t, want, got)
			})
		})
	}
}

// The original payload of a profile goes with its first sample, and is not
// multiplied.
func TestProfilesOriginalPayloadStaysSingle(t *testing.T) {
	data := payloadtest.SimpleProfiles(10, 0)
	p := data.ResourceProfiles().At(0).ScopeProfiles().At(0).Profiles().At(0)
	p.OriginalPayload().FromRaw(make([]byte, 10_000))
	p.SetOriginalPayloadFormat("pprof")
	ix := Profiles().Index(data, true, 0)
	assert.Greater(t, ix.Cost(0, 1), 10_000)
	assert.Less(t, ix.Cost(1, 10), 10_000)
	for n, piece := range cutAt(data, ix, 1, 5) {
		for p := range eachProfile(piece) {
			assert.Equal(t, n == 0, p.OriginalPayload().Len() == 10_000)
			assert.Equal(t, "pprof", p.OriginalPayloadFormat())
		}
	}
}

// All that the types of the library have is known here: a field that is new needs
// to be copied, sized and, if it refers to the dictionary, rewritten.
func TestProfilesHaveNoUnknownFields(t *testing.T) {
	fields := func(v any, want ...string) {
		var got []string
		for m := range reflect.TypeOf(v).Methods() {
			if m.Type.NumIn() == 1 && m.Type.NumOut() == 1 {
				got = append(got, m.Name)
			}
		}
		slices.Sort(want)
		assert.Equal(t, want, got, "%T", v)
	}
	fields(pprofile.Profiles{}, "Dictionary", "IsReadOnly", "ProfileCount", "ResourceProfiles", "SampleCount")
	fields(pprofile.ResourceProfiles{}, "Resource", "SchemaUrl", "ScopeProfiles")
	fields(pprofile.ScopeProfiles{}, "Scope", "SchemaUrl", "Profiles")
	fields(pprofile.Profile{}, "SampleType", "Samples", "Time", "DurationNano", "PeriodType", "Period", "ProfileID",
		"DroppedAttributesCount", "OriginalPayloadFormat", "OriginalPayload", "AttributeIndices")
	fields(pprofile.Sample{}, "StackIndex", "AttributeIndices", "LinkIndex", "Values", "TimestampsUnixNano")
	fields(pprofile.ValueType{}, "TypeStrindex", "UnitStrindex")
	fields(pprofile.ProfilesDictionary{}, "MappingTable", "LocationTable", "FunctionTable", "LinkTable",
		"StringTable", "AttributeTable", "StackTable")
	fields(pprofile.KeyValueAndUnit{}, "KeyStrindex", "UnitStrindex", "Value")
	fields(pprofile.Function{}, "NameStrindex", "SystemNameStrindex", "FilenameStrindex", "StartLine")
	fields(pprofile.Link{}, "TraceID", "SpanID")
	fields(pprofile.Mapping{}, "MemoryStart", "MemoryLimit", "FileOffset", "FilenameStrindex", "AttributeIndices")
	fields(pprofile.Location{}, "MappingIndex", "Address", "Lines", "AttributeIndices")
	fields(pprofile.Line{}, "FunctionIndex", "Line", "Column")
	fields(pprofile.Stack{}, "LocationIndices")
}
