// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/xpdata/entity"
	"pgregory.net/rapid"

	"github.com/pullbatch/batcherexporter/internal/payload/payloadtest"
)

func negativeZero() float64 { return math.Copysign(0, -1) }

func identityOf(fill ...func(pcommon.Map)) *identity {
	res := pcommon.NewResource()
	for _, f := range fill {
		f(res.Attributes())
	}
	id := &identity{}
	id.setResource(res, "")
	return id
}

func TestIdentity(t *testing.T) {
	str := func(k, v string) func(pcommon.Map) { return func(m pcommon.Map) { m.PutStr(k, v) } }
	double := func(v float64) func(pcommon.Map) { return func(m pcommon.Map) { m.PutDouble("k", v) } }
	twice := func(values ...string) func(pcommon.Map) {
		return func(m pcommon.Map) { payloadtest.Duplicate(m, "twice", values...) }
	}
	nested := func(keys ...string) func(pcommon.Map) {
		return func(m pcommon.Map) {
			in := m.PutEmptyMap("map").PutEmptySlice("list").AppendEmpty().SetEmptyMap()
			for _, k := range keys {
				in.PutStr(k, "value of "+k)
			}
		}
	}
	list := func(values ...string) func(pcommon.Map) {
		return func(m pcommon.Map) {
			for _, v := range values {
				in, _ := m.GetOrPutEmpty("list")
				if in.Type() == pcommon.ValueTypeEmpty {
					in.SetEmptySlice()
				}
				in.Slice().AppendEmpty().SetStr(v)
			}
		}
	}
	f := func(name string, a, b *identity, want bool) {
		t.Helper()
		if want {
			assert.Equal(t, a.hash(), b.hash(), name)
		} else {
			assert.False(t, a.equalInOrder(b), name)
		}
		assert.Equal(t, want, a.equal(b), name)
		assert.Equal(t, want, b.equal(a), name)
	}
	f("nothing", identityOf(), identityOf(), true)
	f("order", identityOf(str("a", "1"), str("b", "2")), identityOf(str("b", "2"), str("a", "1")), true)
	f("exchanged values", identityOf(str("a", "1"), str("b", "2")), identityOf(str("a", "2"), str("b", "1")), false)
	f("key for value", identityOf(str("a", "b")), identityOf(str("b", "a")), false)
	f("NaN", identityOf(double(math.NaN())), identityOf(double(math.NaN())), true)
	f("other NaN", identityOf(double(math.NaN())), identityOf(double(math.Float64frombits(0x7ff8000000000002))), false)
	f("zeroes", identityOf(double(0)), identityOf(double(negativeZero())), false)
	f("duplicates", identityOf(twice("a", "b"), str("k", "")), identityOf(str("k", ""), twice("a", "b")), true)
	f("order of duplicates", identityOf(twice("a", "b")), identityOf(twice("b", "a")), false)
	f("more of one", identityOf(twice("a", "a", "b")), identityOf(twice("a", "b", "b")), false)
	f("key and its duplicate", identityOf(twice("a", "a")), identityOf(str("twice", "a"), str("other", "b")), false)
	f("order in depth", identityOf(nested("a", "b")), identityOf(nested("b", "a")), true)
	f("difference in depth", identityOf(nested("a", "b")), identityOf(nested("a", "c")), false)
	f("length in depth", identityOf(nested("a", "b")), identityOf(nested("a")), false)
	f("order of a list", identityOf(list("a", "b")), identityOf(list("b", "a")), false)
	f("length of a list", identityOf(list("a", "b")), identityOf(list("a")), false)

	entities := func(fill ...func(entity.EntityRef)) *identity {
		res := pcommon.NewResource()
		for _, f := range fill {
			f(entity.ResourceEntityRefs(res).AppendEmpty())
		}
		id := &identity{}
		id.setResource(res, "")
		return id
	}
	host := func(ref entity.EntityRef) { ref.SetType("host"); ref.IdKeys().Append("a", "b") }
	f("entities", entities(host), entities(host), true)
	f("more entities", entities(host), entities(host, host), false) //nolint:gocritic // the same twice
	f("type of an entity", entities(host), entities(func(ref entity.EntityRef) { host(ref); ref.SetType("pod") }), false)
	f("schema of an entity", entities(host), entities(func(ref entity.EntityRef) { host(ref); ref.SetSchemaUrl("x") }), false)
	f("keys of an entity", entities(host), entities(func(ref entity.EntityRef) { host(ref); ref.IdKeys().Append("c") }), false)
	f("other keys of an entity", entities(host), entities(func(ref entity.EntityRef) { host(ref); ref.DescriptionKeys().Append("c") }), false)

	scope := &identity{}
	scope.setScope(pcommon.NewInstrumentationScope(), "")
	f("scope and resource", identityOf(), scope, false)
}

// TestIdentityOfRandom says that two identities are equal exactly if the lines
// of the test data are, which are made in another way.
func TestIdentityOfRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ids [2]identity
		var lines [2]string
		for i := range ids {
			data := logsSubject().draw(t, 0)
			r := data.ResourceLogs().At(0)
			ids[i].setResource(r.Resource(), r.SchemaUrl())

			alone := plog.NewLogs()
			copyResource(r, alone.ResourceLogs().AppendEmpty())
			alone.ResourceLogs().At(0).ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
			lines[i] = payloadtest.FlattenLogs(alone)[0]
		}
		assert.Equal(t, lines[0] == lines[1], ids[0].equal(&ids[1]), lines)
		if lines[0] == lines[1] {
			assert.Equal(t, ids[0].hash(), ids[1].hash())
		}
	})
}

// TestIdentityOfNested compares values of any nesting with an oracle, which writes
// them down in order of keys. Keys and values are few, so that many are equal.
func TestIdentityOfNested(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := pcommon.NewMap(), pcommon.NewMap()
		drawMap(t, a, 4)
		if rapid.Bool().Draw(t, "shuffled") {
			shuffleMap(newRand(rapid.Uint64().Draw(t, "seed")), a, b)
		} else {
			drawMap(t, b, 4)
		}
		equal := canonical(a) == canonical(b)
		assert.Equal(t, equal, equalMaps(a, b))
		x, y := identityOf(a.CopyTo), identityOf(b.CopyTo)
		assert.Equal(t, equal, x.equal(y))
		assert.Equal(t, equal, y.equal(x))
		if equal {
			assert.Equal(t, x.hash(), y.hash())
		}
	})
}

func drawMap(t *rapid.T, m pcommon.Map, depth int) {
	for range rapid.IntRange(0, 3).Draw(t, "entries") {
		key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
		if rapid.IntRange(0, 4).Draw(t, "twice") == 0 {
			payloadtest.Duplicate(m, key, "1", "2")
			return
		}
		drawValue(t, m.PutEmpty(key), depth)
	}
}

func drawValue(t *rapid.T, v pcommon.Value, depth int) {
	kinds := 4
	if depth > 0 {
		kinds = 6
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		v.SetStr("text")
	case 1:
		v.SetInt(rapid.Int64Range(0, 1).Draw(t, "int"))
	case 2:
		v.SetDouble(rapid.SampledFrom([]float64{0, negativeZero(), math.NaN()}).Draw(t, "double"))
	case 4:
		drawMap(t, v.SetEmptyMap(), depth-1)
	case 5:
		list := v.SetEmptySlice()
		for range rapid.IntRange(0, 2).Draw(t, "length") {
			drawValue(t, list.AppendEmpty(), depth-1)
		}
	}
}

// shuffleMap makes to a copy of from, with the entries of each map that has no key
// twice in another order.
func shuffleMap(rnd *rand.Rand, from, to pcommon.Map) {
	entries := attributes(nil).append(from)
	keys := map[string]bool{}
	for _, e := range entries {
		keys[e.key] = true
	}
	if len(keys) < len(entries) {
		from.CopyTo(to)
		return
	}
	rnd.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	for _, e := range entries {
		shuffleValue(rnd, e.value, to.PutEmpty(e.key))
	}
}

func shuffleValue(rnd *rand.Rand, from, to pcommon.Value) {
	switch from.Type() {
	case pcommon.ValueTypeMap:
		shuffleMap(rnd, from.Map(), to.SetEmptyMap())
	case pcommon.ValueTypeSlice:
		list := to.SetEmptySlice()
		for _, v := range from.Slice().All() {
			shuffleValue(rnd, v, list.AppendEmpty())
		}
	default:
		from.CopyTo(to)
	}
}

func canonical(m pcommon.Map) string {
	var lines []string
	for key, v := range m.All() {
		lines = append(lines, key+"="+canonicalValue(v))
	}
	slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(a[:1], b[:1]) })
	return "{" + strings.Join(lines, ",") + "}"
}

func canonicalValue(v pcommon.Value) string {
	switch v.Type() {
	case pcommon.ValueTypeMap:
		return canonical(v.Map())
	case pcommon.ValueTypeSlice:
		var all []string
		for _, in := range v.Slice().All() {
			all = append(all, canonicalValue(in))
		}
		return "[" + strings.Join(all, ",") + "]"
	case pcommon.ValueTypeDouble:
		return fmt.Sprintf("double %x", math.Float64bits(v.Double()))
	}
	return v.Type().String() + " " + v.AsString()
}

// nestedLogs is one record, with an attribute of its resource that holds maps in
// maps, with the keys of each in the one order or the other.
func nestedLogs(depth int, leaf int64, reversed bool) plog.Logs {
	data := plog.NewLogs()
	r := data.ResourceLogs().AppendEmpty()
	m := r.Resource().Attributes()
	for range depth {
		if reversed {
			m.PutInt("a", 1)
			m = m.PutEmptySlice("in").AppendEmpty().SetEmptyMap()
			continue
		}
		m.PutEmptySlice("in")
		m.PutInt("a", 1)
		list, _ := m.Get("in") // only now: the second key may move the first
		m = list.Slice().AppendEmpty().SetEmptyMap()
	}
	m.PutInt("leaf", leaf)
	r.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	return data
}

// TestIdentityIsLinearInDepth counts allocations, of which each map that is looked
// at makes some: twice the depth takes no more than some two times as many, where it
// took thousands of times as many when each level compared the one below twice.
func TestIdentityIsLinearInDepth(t *testing.T) {
	allocations := func(depth int, reversed bool, leaf int64) float64 {
		a, b := nestedLogs(depth, 1, false), nestedLogs(depth, leaf, reversed)
		return testing.AllocsPerRun(5, func() {
			var x, y identity
			x.setResource(a.ResourceLogs().At(0).Resource(), "")
			y.setResource(b.ResourceLogs().At(0).Resource(), "")
			assert.Equal(t, leaf == 1, x.equal(&y))
			x.hash()
		})
	}
	for _, reversed := range []bool{false, true} {
		for _, leaf := range []int64{1, 2} {
			short, long := allocations(8, reversed, leaf), allocations(16, reversed, leaf)
			assert.Less(t, long, 10*short, "reversed: %v, leaf %d", reversed, leaf)
		}
	}
}

// TestMergeOfDeepResources would take minutes if its cost doubled with the depth:
// this is the deepest that a receiver lets through.
func TestMergeOfDeepResources(t *testing.T) {
	batch := Logs().NewMerger(true).Begin(false)
	for _, leaf := range []int64{1, 1, 2, 1, 3} {
		batch.Add(nestedLogs(32, leaf, leaf > 1))
	}
	assert.Equal(t, 3, batch.Data().ResourceLogs().Len())
}

// TestRegistryOfEntities has resources that differ in nothing but the entities that
// they name, more of them than the registry compares if their hashes are equal.
func TestRegistryOfEntities(t *testing.T) {
	var g registry
	for round := range 2 {
		for i := range 4 * maxAlike {
			res := pcommon.NewResource()
			entity.ResourceEntityRefs(res).AppendEmpty().IdKeys().Append(fmt.Sprint("key", i))
			g.probe.setResource(res, "")
			found := g.find()
			if round == 0 {
				assert.Equal(t, -1, found)
				g.add()
				continue
			}
			assert.Equal(t, i, found)
		}
	}
}

func TestRegistry(t *testing.T) {
	for _, n := range []int{1, maxScanned, maxScanned + 1, 100} {
		var g registry
		set := func(i int, swap bool) {
			fill := []func(pcommon.Map){
				func(m pcommon.Map) { m.PutInt("number", int64(i)) },
				func(m pcommon.Map) { m.PutStr("text", "same") },
			}
			if swap {
				fill[0], fill[1] = fill[1], fill[0]
			}
			id := identityOf(fill...)
			g.probe = id.keep()
		}
		for i := range n {
			set(i, false)
			assert.Equal(t, -1, g.find())
			g.add()
		}
		for _, swap := range []bool{false, true, false} {
			for i := range n {
				set(i, swap)
				assert.Equal(t, i, g.find())
				assert.Equal(t, i, g.find(), "again")
			}
		}
		set(n, false)
		assert.Equal(t, -1, g.find())
	}
}

// TestRegistryIsBounded has identities whose hashes are all equal, since they
// differ by nothing but the order of values under one key. Some of them are not
// found, but none costs more than a few comparisons.
func TestRegistryIsBounded(t *testing.T) {
	var g registry
	rnd := newRand(1)
	values := []string{"a", "b", "c", "d", "e"}
	for range 100 {
		rnd.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
		g.probe = identityOf(func(m pcommon.Map) { payloadtest.Duplicate(m, "twice", values...) }).keep()
		if g.find() < 0 {
			g.add()
		}
	}
	assert.Greater(t, len(g.known), maxAlike)
	for _, h := range g.hashes {
		assert.Equal(t, g.hashes[0], h)
	}
}
