// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"math"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"pgregory.net/rapid"

	"github.com/pullbatch/batcherexporter/internal/payload/payloadtest"
)

// hostileProfiles are messages of a size in proportion to n that anyone may send.
var hostileProfiles = map[string]func(n int) pprofile.Profiles{
	"one of many references dangles": func(n int) pprofile.Profiles {
		return withReferences(n, func(i int) int64 {
			if i == n-1 {
				return 1 << 30
			}
			return 1
		})
	},
	"all references dangle":    func(n int) pprofile.Profiles { return withReferences(n, func(int) int64 { return math.MaxInt32 }) },
	"all references are below": func(n int) pprofile.Profiles { return withReferences(n, func(i int) int64 { return int64(-i - 1) }) },
	"references in maps, one dangles": func(n int) pprofile.Profiles {
		return withValues(make([]string, n), n, func(i int) []byte {
			return mapValue(mapEntry("", 1, reference(int64(i*(n+1)/n))), mapEntry("", 1, nil))
		})
	},
	"references to one long text": func(n int) pprofile.Profiles {
		return withValues([]string{"", strings.Repeat("x", n)}, n, func(int) []byte { return reference(1) })
	},
	"stacks share a location with many attributes": func(n int) pprofile.Profiles {
		return sharedStacks(n, func(d dictionary, i int) {
			d.locations.At(1).AttributeIndices().Append(int32(1 + i%2))
		})
	},
	"stacks share a location with many lines": func(n int) pprofile.Profiles {
		return sharedStacks(n, func(d dictionary, _ int) {
			d.locations.At(1).Lines().AppendEmpty().SetFunctionIndex(1)
		})
	},
	"stacks share a location with many functions": func(n int) pprofile.Profiles {
		return sharedStacks(n, func(d dictionary, i int) {
			d.functions.AppendEmpty().SetStartLine(int64(i + 1))
			d.locations.At(1).Lines().AppendEmpty().SetFunctionIndex(int32(i + 1))
		})
	},
	"stacks share a mapping with many attributes": func(n int) pprofile.Profiles {
		return sharedStacks(n, func(d dictionary, i int) {
			d.mappings.At(1).AttributeIndices().Append(1)
			d.locations.AppendEmpty().SetMappingIndex(1)
			d.stacks.At(i+1).LocationIndices().SetAt(0, int32(i+2))
		})
	},
	"stacks share an attribute that is long": func(n int) pprofile.Profiles {
		return sharedStacks(n, func(d dictionary, _ int) {
			d.attributes.At(2).Value().Slice().AppendEmpty().SetInt(1)
			if d.locations.At(1).AttributeIndices().Len() == 0 {
				d.locations.At(1).AttributeIndices().Append(2)
			}
		})
	},
	"samples share a stack with many locations": func(n int) pprofile.Profiles {
		data := sharedStacks(n, func(d dictionary, i int) {
			d.locations.AppendEmpty().SetAddress(uint64(i + 1))
			d.stacks.At(1).LocationIndices().Append(int32(i + 2))
		})
		for p := range eachProfile(data) {
			for _, x := range p.Samples().All() {
				x.SetStackIndex(1)
			}
		}
		return data
	},
	"all indices dangle": danglingIndices,
	"null strings": func(n int) pprofile.Profiles {
		data := payloadtest.SimpleProfiles(n, 0)
		data.Dictionary().StringTable().FromRaw(make([]string, n))
		return data
	},
	"headers share an attribute that is long": func(n int) pprofile.Profiles {
		data := pprofile.NewProfiles()
		d := newDictionary(data.Dictionary())
		list := d.attributes.AppendEmpty().Value().SetEmptySlice()
		profiles := data.ResourceProfiles().AppendEmpty().ScopeProfiles().AppendEmpty().Profiles()
		for range n {
			list.AppendEmpty().SetInt(1)
			p := profiles.AppendEmpty()
			p.AttributeIndices().Append(1)
			p.Samples().AppendEmpty()
		}
		return data
	},
}

// withReferences has n strings and n attributes that refer to them.
func withReferences(n int, ref func(i int) int64) pprofile.Profiles {
	return withValues(make([]string, n), n, func(i int) []byte { return reference(ref(i)) })
}

// sharedStacks has n stacks with one location, and n samples. What they share
// grows with each call of add.
func sharedStacks(n int, add func(d dictionary, i int)) pprofile.Profiles {
	data := pprofile.NewProfiles()
	d := newDictionary(data.Dictionary())
	d.strings.Append("key")
	d.attributes.AppendEmpty().SetKeyStrindex(1)
	d.attributes.AppendEmpty().Value().SetEmptySlice()
	d.functions.AppendEmpty().SetNameStrindex(1)
	d.mappings.AppendEmpty().SetFilenameStrindex(1)
	d.locations.AppendEmpty().SetAddress(1)
	samples := data.ResourceProfiles().AppendEmpty().ScopeProfiles().AppendEmpty().Profiles().AppendEmpty().Samples()
	for i := range n {
		d.stacks.AppendEmpty().LocationIndices().Append(1)
		samples.AppendEmpty().SetStackIndex(int32(i + 1))
		samples.At(i).Values().Append(int64(i))
	}
	for i := range n {
		add(d, i)
	}
	return data
}

// danglingIndices has all kinds of references that point nowhere.
func danglingIndices(n int) pprofile.Profiles {
	data := pprofile.NewProfiles()
	d := newDictionary(data.Dictionary())
	p := data.ResourceProfiles().AppendEmpty().ScopeProfiles().AppendEmpty().Profiles().AppendEmpty()
	bad := [...]int32{-1, math.MinInt32, math.MaxInt32, 1 << 29}
	for i := range n {
		at := func(k int) int32 { return bad[(i+k)%len(bad)] }
		p.AttributeIndices().Append(at(0))
		x := p.Samples().AppendEmpty()
		x.Values().Append(int64(i))
		x.SetStackIndex(at(1))
		x.SetLinkIndex(at(2))
		x.AttributeIndices().Append(at(3), 1)
		d.attributes.AppendEmpty().SetKeyStrindex(at(0))
		d.functions.AppendEmpty().SetNameStrindex(at(1))
		d.mappings.AppendEmpty().AttributeIndices().Append(at(2))
		l := d.locations.AppendEmpty()
		l.SetMappingIndex(at(3))
		l.AttributeIndices().Append(at(0))
		l.Lines().AppendEmpty().SetFunctionIndex(at(1))
		d.stacks.AppendEmpty().LocationIndices().Append(at(2), int32(i+1))
		p.Samples().AppendEmpty().SetStackIndex(int32(i + 1))
	}
	return data
}

// A message that is four times as large costs some four times as much, and not
// sixteen times, whatever is in it. A machine that is busy makes a measurement too
// long, never too short: so the shortest of each counts, and there are more of
// them until they fit. They are short enough to be over before another process has
// its turn, and none has to collect what the others left.
func TestProfilesHostileAreLinear(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some time")
	}
	const n, rounds, factor = 300, 300, 9
	for name, build := range hostileProfiles {
		t.Run(name, func(t *testing.T) {
			var least [2][3]time.Duration
			for round := range rounds {
				runtime.GC()
				percent := debug.SetGCPercent(-1)
				fits := true
				for size, items := range [...]int{n, 4 * n} {
					for step, took := range timeProfiles(build(items), 4*items) {
						if round == 0 || took < least[size][step] {
							least[size][step] = took
						}
					}
				}
				debug.SetGCPercent(percent)
				for step := range least[0] {
					fits = fits && least[1][step] < factor*max(least[0][step], 20*time.Microsecond)
				}
				if fits {
					return
				}
			}
			t.Errorf("cost, index, and cut and merge: %v and, four times the message, %v", least[0], least[1])
		})
	}
}

func timeProfiles(data pprofile.Profiles, limit int) (took [3]time.Duration) {
	start := time.Now()
	lap := func(step int) {
		took[step] = time.Since(start)
		start = time.Now()
	}
	Profiles().Cost(data, limit)
	lap(0)
	ix := Profiles().Index(data, true, limit)
	lap(1)
	merge(true, cutAt(data, ix, ix.Items()/2)...)
	lap(2)
	return took
}

// What is no longer looked up exactly is bounded from above, and all of it is still
// there.
func TestProfilesHostileAreWithinCost(t *testing.T) {
	for name, build := range hostileProfiles {
		for _, limit := range []int{0, 300, 5000, 4_000_000} {
			data := build(250)
			resolveReferences(data)
			cost := Profiles().Cost(data, limit)
			want := payloadtest.FlattenProfiles(data)
			require.GreaterOrEqual(t, cost, Profiles().Bytes(data), name)
			if limit > 0 {
				require.GreaterOrEqual(t, cost, marshalledSize(t, data), name)
			}
			ix := Profiles().Index(data, true, limit)
			if limit > 0 {
				require.Equal(t, cost, ix.Whole(), name)
			}
			var got []string
			from := 0
			for _, piece := range cutAt(data, ix, min(1, ix.Items()), ix.Items()/3, ix.Items()*3/4) {
				to := from + piece.SampleCount()
				require.LessOrEqual(t, Profiles().Bytes(piece), ix.Cost(from, to), "%s, limit %d, %d to %d", name, limit, from, to)
				got = append(got, payloadtest.FlattenProfiles(piece)...)
				from = to
			}
			require.Equal(t, want, got, name)
		}
	}
}

// The same for all other data, at any point at which the steps are used up.
func TestProfilesCostWithFewSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := drawProfiles(t, 0)
		resolveReferences(data)
		sg := profilesSignal{profilesTree{profiles{}, &sync.Pool{}}}
		m := newMeter(data, drawLimit(t), sg.bareFor(data))
		m.maxSteps = rapid.IntRange(-1, 200).Draw(t, "steps")
		ix := m.index(data)
		from := rapid.IntRange(0, ix.Items()).Draw(t, "from")
		to := rapid.IntRange(from, ix.Items()).Draw(t, "to")
		if from < to {
			cost := ix.Cost(from, to)
			require.LessOrEqual(t, Profiles().Bytes(Profiles().Cut(data, ix, from, to)), cost)
		}
	})
}

// The steps of a walk are bounded, but for one look at the whole dictionary.
func TestProfilesStepsAreBounded(t *testing.T) {
	sg := profilesSignal{profilesTree{profiles{}, &sync.Pool{}}}
	for name, build := range hostileProfiles {
		data := build(500)
		resolveReferences(data)
		m := newMeter(data, 1000, sg.bareFor(data))
		m.ix = newIndex(data.SampleCount(), profileBounds)
		m.begin()
		m.request(data)
		most := m.maxSteps + 2*m.message
		if m.sums[stackTable] != nil {
			most += 2 * m.message
		}
		assert.LessOrEqual(t, m.one.steps, most, name)
		for n := range m.recent {
			assert.LessOrEqual(t, m.recent[n].young.steps+m.recent[n].old.steps, most, name)
		}
		m.end()
	}
}

// A sender may put any number of empty strings in its table, or none. The cost
// covers what comes on top when the request is marshalled as it is.
func TestProfilesCostOfStringTables(t *testing.T) {
	for _, limit := range []int{1000, 48_000, 4_000_000} {
		for _, nulls := range []int{0, 1, 126, 16_300, 16_500, 17_000} {
			for _, texts := range []int{0, 1, 500, 690} {
				data := danglingIndices(1)
				data.Dictionary().StringTable().FromRaw(make([]string, nulls))
				attrs := data.ResourceProfiles().At(0).Resource().Attributes()
				for i := range texts {
					attrs.PutStr("k"+strconv.Itoa(i), "v"+strconv.Itoa(i))
				}
				cost := Profiles().Cost(data, limit)
				assert.GreaterOrEqual(t, cost, marshalledSize(t, data), "limit %d, %d nulls, %d texts", limit, nulls, texts)
				empty := pprofile.NewProfiles()
				assert.GreaterOrEqual(t, Profiles().Cost(empty, limit), marshalledSize(t, empty))
			}
		}
	}
}
