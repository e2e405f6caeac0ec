// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
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
