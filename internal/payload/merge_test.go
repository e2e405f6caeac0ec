// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/xpdata/entity"
	"pgregory.net/rapid"

	"github.com/pullbatch/batcherexporter/internal/payload/payloadtest"
)

// merge makes one batch of all.
func (s subject[T]) merge(mergeResources bool, all []T) (T, int) {
	batch := s.NewMerger(mergeResources).Begin(false)
	for _, data := range all {
		batch.Add(data)
	}
	return batch.Data(), batch.Saved()
}

func (s subject[T]) bytesOfAll(all []T) int {
	sum := 0
	for _, data := range all {
		sum += s.Bytes(data)
	}
	return sum
}

func TestAppend(t *testing.T) {
	t.Run("logs", func(t *testing.T) { testAppend(t, logsSubject()) })
	t.Run("traces", func(t *testing.T) { testAppend(t, tracesSubject()) })
	t.Run("metrics", func(t *testing.T) { testAppend(t, metricsSubject()) })
}

// testAppend merges without joining: everything is there, in order, and the size
// is the sum of the sizes.
func testAppend[T any](t *testing.T, s subject[T]) {
	rapid.Check(t, func(t *rapid.T) {
		all := s.drawMany(t, 10)
		want, size := s.flattenAll(all), s.bytesOfAll(all)
		batch, saved := s.merge(false, all)
		assert.Equal(t, want, s.flatten(batch))
		assert.Equal(t, size, s.Bytes(batch))
		assert.Zero(t, saved)
	})
}

func TestJoin(t *testing.T) {
	t.Run("logs", func(t *testing.T) { testJoin(t, logsSubject()) })
	t.Run("traces", func(t *testing.T) { testJoin(t, tracesSubject()) })
	t.Run("metrics", func(t *testing.T) { testJoin(t, metricsSubject()) })
}

// testJoin merges with joining: all that is said of each item stays, the items
// of equal scopes of equal resources keep their order, and the batch is smaller
// by what Saved says at least.
func testJoin[T any](t *testing.T, s subject[T]) {
	rapid.Check(t, func(t *rapid.T) {
		all := s.drawMany(t, 10)
		want, size := s.flattenAll(all), s.bytesOfAll(all)
		batch, saved := s.merge(true, all)
		assert.Equal(t, byScope(want), byScope(s.flatten(batch)))
		assert.GreaterOrEqual(t, saved, 0)
		assert.LessOrEqual(t, s.Bytes(batch), size-saved)
	})
}

func TestSplitThenMerge(t *testing.T) {
	t.Run("logs", func(t *testing.T) { testSplitThenMerge(t, logsSubject()) })
	t.Run("traces", func(t *testing.T) { testSplitThenMerge(t, tracesSubject()) })
	t.Run("metrics", func(t *testing.T) { testSplitThenMerge(t, metricsSubject()) })
}

func testSplitThenMerge[T any](t *testing.T, s subject[T]) {
	rapid.Check(t, func(t *rapid.T) {
		data := s.draw(t, 40)
		want := s.flatten(data)
		parts := pieces(t, s, data, s.Index(data, true, 0))
		join := rapid.Bool().Draw(t, "join")
		batch, _ := s.merge(join, parts)
		got := s.flatten(batch)
		if join {
			want, got = byScope(want), byScope(got)
		}
		assert.Equal(t, want, got)
	})
}

// TestJoinComplete has many requests of fifty resources and two scopes: each is
// there once at the end, and what was saved is known almost to the byte.
func TestJoinComplete(t *testing.T) {
	const requests, resources, scopes = 40, 50, 2
	s := logsSubject()
	rnd := newRand(1)
	var all []plog.Logs
	for range requests {
		data := plog.NewLogs()
		for _, i := range rnd.Perm(resources) {
			r := data.ResourceLogs().AppendEmpty()
			hostResource(rnd, r.Resource(), i)
			for _, j := range rnd.Perm(scopes) {
				sl := r.ScopeLogs().AppendEmpty()
				sl.Scope().SetName(fmt.Sprint("library ", j))
				sl.LogRecords().AppendEmpty().Body().SetStr("hello")
			}
		}
		all = append(all, data)
	}
	size := s.bytesOfAll(all)
	batch, saved := s.merge(true, all)
	assert.Equal(t, requests*resources*scopes, batch.LogRecordCount())
	assert.Equal(t, resources, batch.ResourceLogs().Len())
	for _, r := range batch.ResourceLogs().All() {
		assert.Equal(t, scopes, r.ScopeLogs().Len())
	}
	assert.GreaterOrEqual(t, float64(saved), 0.98*float64(size-s.Bytes(batch)))
}

// hostResource has its attributes in random order.
func hostResource(rnd *rand.Rand, res pcommon.Resource, i int) {
	for _, k := range rnd.Perm(12) {
		res.Attributes().PutStr(fmt.Sprint("attribute.", k), fmt.Sprint("value ", k))
	}
	res.Attributes().PutInt("host", int64(i))
}

// TestJoinKeepsFirst has equal resources and scopes in the first request. They
// stay, and what comes later goes to the last of them, so it does not overtake.
func TestJoinKeepsFirst(t *testing.T) {
	s := logsSubject()
	twice := func(firstID int64) plog.Logs {
		data := s.simple(1, firstID)
		s.simple(1, firstID+1).ResourceLogs().MoveAndAppendTo(data.ResourceLogs())
		s.simple(1, firstID+2).ResourceLogs().At(0).ScopeLogs().MoveAndAppendTo(data.ResourceLogs().At(1).ScopeLogs())
		return data
	}
	batch, _ := s.merge(true, []plog.Logs{twice(0), twice(3), s.simple(1, 6)})
	assert.Equal(t, []int64{0, 1, 2, 3, 4, 5, 6}, s.ids(batch))
	assert.Equal(t, 2, batch.ResourceLogs().Len())
	assert.Equal(t, 2, batch.ResourceLogs().At(1).ScopeLogs().Len())
}

// TestJoinWithin has equal resources in a later request, none of which was there
// before.
func TestJoinWithin(t *testing.T) {
	s := logsSubject()
	later := s.simple(1, 1)
	for i := range 3 {
		s.simple(1, int64(i+2)).ResourceLogs().MoveAndAppendTo(later.ResourceLogs())
	}
	first := plog.NewLogs()
	first.ResourceLogs().AppendEmpty()
	batch, _ := s.merge(true, []plog.Logs{first, later})
	assert.Equal(t, []int64{1, 2, 3, 4}, s.ids(batch))
	assert.Equal(t, 2, batch.ResourceLogs().Len())
}

// TestJoinOnlyEqual changes one field at a time.
func TestJoinOnlyEqual(t *testing.T) {
	attr := func(f func(pcommon.Map)) func(plog.ResourceLogs) {
		return func(r plog.ResourceLogs) { f(r.Resource().Attributes()) }
	}
	ref := func(f func(entity.EntityRef)) func(plog.ResourceLogs) {
		return func(r plog.ResourceLogs) { f(entity.ResourceEntityRefs(r.Resource()).At(0)) }
	}
	scope := func(f func(plog.ScopeLogs)) func(plog.ResourceLogs) {
		return func(r plog.ResourceLogs) { f(r.ScopeLogs().At(0)) }
	}
	for name, change := range map[string]func(plog.ResourceLogs){
		"value":            attr(func(m pcommon.Map) { m.PutStr("text", "other") }),
		"type":             attr(func(m pcommon.Map) { m.PutInt("text", 1) }),
		"type, same look":  attr(func(m pcommon.Map) { m.PutStr("number", "7") }),
		"empty, not text":  attr(func(m pcommon.Map) { m.PutEmpty("nothing") }),
		"number":           attr(func(m pcommon.Map) { m.PutInt("number", 8) }),
		"truth":            attr(func(m pcommon.Map) { m.PutBool("truth", false) }),
		"sign of zero":     attr(func(m pcommon.Map) { m.PutDouble("zero", negativeZero()) }),
		"bytes":            attr(func(m pcommon.Map) { m.PutEmptyBytes("bytes").FromRaw([]byte{1, 3}) }),
		"in a list":        attr(func(m pcommon.Map) { m.PutEmptySlice("list").AppendEmpty().SetInt(2) }),
		"in a map":         attr(func(m pcommon.Map) { m.PutEmptyMap("map").PutInt("a", 2) }),
		"one more":         attr(func(m pcommon.Map) { m.PutStr("more", "") }),
		"one less":         attr(func(m pcommon.Map) { m.Remove("text") }),
		"duplicate":        attr(func(m pcommon.Map) { payloadtest.Duplicate(m, "twice", "first", "second") }),
		"dropped":          func(r plog.ResourceLogs) { r.Resource().SetDroppedAttributesCount(2) },
		"schema":           func(r plog.ResourceLogs) { r.SetSchemaUrl("other") },
		"entity type":      ref(func(e entity.EntityRef) { e.SetType("other") }),
		"entity schema":    ref(func(e entity.EntityRef) { e.SetSchemaUrl("other") }),
		"entity ID":        ref(func(e entity.EntityRef) { e.IdKeys().SetAt(0, "other") }),
		"entity text":      ref(func(e entity.EntityRef) { e.DescriptionKeys().Append("other") }),
		"one more entity":  func(r plog.ResourceLogs) { entity.ResourceEntityRefs(r.Resource()).AppendEmpty() },
		"scope name":       scope(func(s plog.ScopeLogs) { s.Scope().SetName("other") }),
		"scope version":    scope(func(s plog.ScopeLogs) { s.Scope().SetVersion("other") }),
		"scope attributes": scope(func(s plog.ScopeLogs) { s.Scope().Attributes().PutStr("text", "other") }),
		"scope dropped":    scope(func(s plog.ScopeLogs) { s.Scope().SetDroppedAttributesCount(2) }),
		"scope schema":     scope(func(s plog.ScopeLogs) { s.SetSchemaUrl("other") }),
	} {
		t.Run(name, func(t *testing.T) {
			s := logsSubject()
			other := fullLogs()
			change(other.ResourceLogs().At(0))
			all := []plog.Logs{fullLogs(), other, fullLogs()}
			want := byScope(s.flattenAll(all))
			require.NotEqual(t, want[0], want[2], "the change shows")
			batch, _ := s.merge(true, all)
			assert.Equal(t, want, byScope(s.flatten(batch)))
			scopes := 0
			for _, r := range batch.ResourceLogs().All() {
				scopes += r.ScopeLogs().Len()
			}
			assert.Equal(t, 2, scopes, "the first and the last are one, the other stays alone")
		})
	}
}

// fullLogs has one record, whose resource and scope have a value in each field.
func fullLogs() plog.Logs {
	data := plog.NewLogs()
	r := data.ResourceLogs().AppendEmpty()
	r.SetSchemaUrl("schema")
	r.Resource().SetDroppedAttributesCount(1)
	m := r.Resource().Attributes()
	m.PutStr("text", "some")
	m.PutStr("nothing", "")
	m.PutInt("number", 7)
	m.PutBool("truth", true)
	m.PutDouble("zero", 0)
	m.PutEmptyBytes("bytes").FromRaw([]byte{1, 2})
	m.PutEmptySlice("list").AppendEmpty().SetInt(1)
	m.PutEmptyMap("map").PutInt("a", 1)
	payloadtest.Duplicate(m, "twice", "second", "first")
	ref := entity.ResourceEntityRefs(r.Resource()).AppendEmpty()
	ref.SetType("service")
	ref.SetSchemaUrl("entity")
	ref.IdKeys().Append("text")
	ref.DescriptionKeys().Append("number")

	s := r.ScopeLogs().AppendEmpty()
	s.SetSchemaUrl("schema")
	s.Scope().SetName("name")
	s.Scope().SetVersion("version")
	s.Scope().SetDroppedAttributesCount(1)
	s.Scope().Attributes().PutStr("text", "some")
	s.LogRecords().AppendEmpty().Body().SetStr("hello")
	return data
}

// TestJoinMetrics joins resources and scopes, but leaves metrics as they are.
func TestJoinMetrics(t *testing.T) {
	s := metricsSubject()
	batch, _ := s.merge(true, []pmetric.Metrics{s.simple(2, 0), s.simple(2, 2), s.simple(2, 4)})
	assert.Equal(t, []int64{0, 1, 2, 3, 4, 5}, s.ids(batch))
	require.Equal(t, 1, batch.ResourceMetrics().Len())
	require.Equal(t, 1, batch.ResourceMetrics().At(0).ScopeMetrics().Len())
	assert.Equal(t, 3, batch.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().Len())
}

func TestEmptyBatch(t *testing.T) {
	s := logsSubject()
	batch, saved := s.merge(true, nil)
	assert.Equal(t, 0, s.Items(batch))
	assert.Zero(t, saved)
}

// TestMergerPauses has nothing equal for a while, so that joining stops, and
// then begins again.
func TestMergerPauses(t *testing.T) {
	s := logsSubject()
	merger := s.NewMerger(true)
	merge := func(all ...plog.Logs) int {
		batch := merger.Begin(false)
		for _, data := range all {
			batch.Add(data)
		}
		return batch.Data().ResourceLogs().Len()
	}
	rnd, next := newRand(1), 0
	unequal := func(n int) plog.Logs {
		data := plog.NewLogs()
		for range n {
			hostResource(rnd, data.ResourceLogs().AppendEmpty().Resource(), next)
			next++
		}
		return data
	}
	assert.Equal(t, 1, merge(s.simple(1, 0), s.simple(1, 1)), "equal ones are joined")
	merge(unequal(1), unequal(sampleSize))
	assert.Equal(t, 2, merge(s.simple(1, 0), s.simple(1, 1)), "it has given up")
	merge(unequal(1), unequal(firstPause*(sampleSize+1)))
	assert.Equal(t, 1, merge(s.simple(1, 0), s.simple(1, 1)), "it tries again")
}

// TestMergerConcurrently is for the race detector.
func TestMergerConcurrently(t *testing.T) {
	s := tracesSubject()
	merger := s.NewMerger(true)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			rnd := newRand(uint64(w))
			for range 20 {
				batch := merger.Begin(false)
				for i := range 10 {
					batch.Add(s.random(rnd, 5, int64(5*i)))
				}
				assert.Equal(t, 50, s.Items(batch.Data()))
			}
		})
	}
	wg.Wait()
}

// TestMergeIsLinear counts allocations, which do not depend on the machine: a
// request costs the same whatever the size of its batch.
func TestMergeIsLinear(t *testing.T) {
	for _, mergeResources := range []bool{false, true} {
		small := allocsOfMerge(mergeResources, 500)
		large := allocsOfMerge(mergeResources, 10_000)
		assert.LessOrEqual(t, large, small)
		assert.Less(t, large, 0.1, "allocations per request")
	}
}

func allocsOfMerge(mergeResources bool, requests int) float64 {
	s := logsSubject()
	var all []plog.Logs
	for range 2 * requests { // AllocsPerRun calls once more than it is told to
		all = append(all, s.simple(1, 0))
	}
	allocs := testing.AllocsPerRun(1, func() {
		s.merge(mergeResources, all[:requests])
		all = all[requests:]
	})
	return allocs / float64(requests)
}
