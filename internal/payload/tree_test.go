// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"pgregory.net/rapid"

	"github.com/pullbatch/batcherexporter/internal/payload/payloadtest"
)

// slack is what Cost may be too high by: up to four bytes for the length prefix
// of each group of which only a part is in the piece, at both ends. A metric has
// two.
const slack = 2 * 4 * 4

func TestCut(t *testing.T) {
	t.Run("logs", func(t *testing.T) { testCut(t, logsSubject()) })
	t.Run("traces", func(t *testing.T) { testCut(t, tracesSubject()) })
	t.Run("metrics", func(t *testing.T) { testCut(t, metricsSubject()) })
}

// testCut cuts at random positions: all items come out as they were, in their
// order, and no piece is larger than the index said.
func testCut[T any](t *testing.T, s subject[T]) {
	rapid.Check(t, func(t *rapid.T) {
		data := s.draw(t, 40)
		want := s.flatten(data)
		ix := s.Index(data, true, 0)
		require.Equal(t, len(want), ix.Items())
		var got []string
		for _, piece := range pieces(t, s, data, ix) {
			got = append(got, s.flatten(piece)...)
		}
		assert.Equal(t, want, got)
	})
}

// pieces cuts data at drawn positions, in a drawn order, and checks each.
func pieces[T any](t *rapid.T, s subject[T], data T, ix *Index) []T {
	cuts := rapid.SliceOfN(rapid.IntRange(0, ix.Items()), 0, 6).Draw(t, "cuts")
	cuts = append(cuts, 0, ix.Items())
	slices.Sort(cuts)
	parts := make([]int, len(cuts)-1)
	for i := range parts {
		parts[i] = i
	}
	if rapid.Bool().Draw(t, "shuffle") {
		parts = rapid.Permutation(parts).Draw(t, "order")
	}
	all := make([]T, len(parts))
	for _, i := range parts {
		from, to := cuts[i], cuts[i+1]
		all[i] = s.Cut(data, ix, from, to)
		assert.Equal(t, to-from, s.Items(all[i]))
		assert.GreaterOrEqual(t, ix.Cost(from, to), s.Bytes(all[i]), "[%d,%d)", from, to)
		assert.LessOrEqual(t, ix.Cost(from, to), s.Bytes(all[i])+slack, "[%d,%d)", from, to)
	}
	return all
}

func TestCutWhole(t *testing.T) {
	t.Run("logs", func(t *testing.T) { testCutWhole(t, logsSubject()) })
	t.Run("traces", func(t *testing.T) { testCutWhole(t, tracesSubject()) })
	t.Run("metrics", func(t *testing.T) { testCutWhole(t, metricsSubject()) })
}

// testCutWhole cuts once from end to end: the cost is exact then, and never
// above the size of the request, of which only empty groups are gone.
func testCutWhole[T any](t *testing.T, s subject[T]) {
	rapid.Check(t, func(t *rapid.T) {
		data := s.draw(t, 40)
		want, size := s.flatten(data), s.Bytes(data)
		ix := s.Index(data, true, 0)
		cost := ix.Cost(0, ix.Items())
		whole := s.Cut(data, ix, 0, ix.Items())
		assert.Equal(t, want, s.flatten(whole))
		assert.Equal(t, s.Bytes(whole), cost)
		assert.LessOrEqual(t, cost, size)
	})
}

func TestCutByBytes(t *testing.T) {
	t.Run("logs", func(t *testing.T) { testCutByBytes(t, logsSubject()) })
	t.Run("traces", func(t *testing.T) { testCutByBytes(t, tracesSubject()) })
	t.Run("metrics", func(t *testing.T) { testCutByBytes(t, metricsSubject()) })
}

// testCutByBytes cuts pieces that are as large as a bound allows: none is above
// it, and all but the last fill it but for one item.
func testCutByBytes[T any](t *testing.T, s subject[T]) {
	const limit = 65_536
	data := s.simple(10_000, 0)
	ix := s.Index(data, true, limit)
	var got []int64
	for from := 0; from < ix.Items(); {
		to := ix.Fit(from, limit)
		require.Greater(t, to, from)
		cost := ix.Cost(from, to)
		piece := s.Cut(data, ix, from, to)
		assert.LessOrEqual(t, s.Bytes(piece), limit)
		assert.GreaterOrEqual(t, float64(s.Bytes(piece)), 0.99*float64(cost), "the bound is close")
		if to < ix.Items() {
			assert.GreaterOrEqual(t, float64(s.Bytes(piece)), 0.99*limit, "the piece is full")
		}
		got = append(got, s.ids(piece)...)
		from = to
	}
	assert.Equal(t, s.ids(s.simple(10_000, 0)), got)
}

func TestCutConcurrently(t *testing.T) {
	t.Run("logs", func(t *testing.T) { testCutConcurrently(t, logsSubject()) })
	t.Run("traces", func(t *testing.T) { testCutConcurrently(t, tracesSubject()) })
	t.Run("metrics", func(t *testing.T) { testCutConcurrently(t, metricsSubject()) })
}

// testCutConcurrently is for the race detector: goroutines cut pieces of the same
// data, many of which share a resource, a scope or a metric.
func testCutConcurrently[T any](t *testing.T, s subject[T]) {
	const items, workers = 400, 4
	for _, step := range []int{7, 40, 150} {
		for _, data := range []T{s.random(newRand(3), items, 0), s.simple(items, 0)} {
			want := s.flatten(data)
			ix := s.Index(data, true, 0)
			all := make([]T, (items+step-1)/step)
			var next atomic.Int64
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for i := int(next.Add(1)) - 1; i < len(all); i = int(next.Add(1)) - 1 {
						all[i] = s.Cut(data, ix, i*step, min(items, (i+1)*step))
					}
				})
			}
			wg.Wait()
			assert.Equal(t, want, s.flattenAll(all))
		}
	}
}

// TestCutKeepsEmptyGroupsOut has groups without items at both ends and in the
// middle of each level: they are in no piece, and take nothing next to them along.
func TestCutKeepsEmptyGroupsOut(t *testing.T) {
	data := pmetric.NewMetrics()
	data.ResourceMetrics().AppendEmpty().Resource().Attributes().PutStr("empty", "first")
	for range 2 {
		r := data.ResourceMetrics().AppendEmpty()
		r.ScopeMetrics().AppendEmpty().Scope().SetName("empty first")
		s := r.ScopeMetrics().AppendEmpty()
		s.Metrics().AppendEmpty().SetName("no kind")
		for range 2 {
			s.Metrics().AppendEmpty().SetEmptyGauge()
			m := s.Metrics().AppendEmpty()
			m.SetDescription(strings.Repeat("long ", 10))
			for i := range 3 {
				m.SetEmptyGauge()
				for range 3 {
					m.Gauge().DataPoints().AppendEmpty().SetIntValue(int64(i))
				}
			}
			s.Metrics().AppendEmpty().SetDescription(strings.Repeat("long", 500))
		}
		r.ScopeMetrics().AppendEmpty().Scope().SetName("empty last")
	}
	data.ResourceMetrics().AppendEmpty()
	s := metricsSubject()
	want := s.flatten(data)
	require.Len(t, want, 12)

	ix := s.Index(data, true, 0)
	var got []string
	for from := 0; from < ix.Items(); {
		to := ix.Fit(from, 300)
		require.Greater(t, to, from)
		piece := s.Cut(data, ix, from, to)
		assert.LessOrEqual(t, s.Bytes(piece), 300)
		got = append(got, s.flatten(piece)...)
		from = to
	}
	assert.Equal(t, want, got)
}

// TestCutInTwo says that the smaller side is moved and the larger one taken as it
// is, in whichever order they come: a moved record is one allocation.
func TestCutInTwo(t *testing.T) {
	const items = 1000
	s := logsSubject()
	f := func(at int, tailFirst bool, want int) {
		t.Helper()
		var all []plog.Logs
		for range 2 { // AllocsPerRun calls once more than it is told to
			all = append(all, s.simple(items, 0))
		}
		ix := s.Index(all[0], false, 0)
		got := testing.AllocsPerRun(1, func() {
			data := all[0]
			all = all[1:]
			ix.mu.remains = nil
			if tailFirst {
				s.Cut(data, ix, at, items)
			}
			s.Cut(data, ix, 0, at)
			if !tailFirst {
				s.Cut(data, ix, at, items)
			}
		})
		assert.InDelta(t, want, got, 80, "at %d", at)
	}
	f(100, false, 100)
	f(500, false, 500)
	f(900, false, 100)
	f(999, false, 1)
	f(100, true, 1000) // they are cut from the front, so this is not worth a rule
	f(50, false, 50)
}

func TestCutNothing(t *testing.T) {
	s := logsSubject()
	for name, data := range map[string]plog.Logs{
		"no resource": plog.NewLogs(),
		"no item":     s.simple(0, 0),
		"items":       s.simple(3, 0),
	} {
		ix := s.Index(data, true, 0)
		piece := s.Cut(data, ix, ix.Items(), ix.Items())
		assert.Equal(t, 0, s.Items(piece), name)
		assert.Equal(t, 0, s.Bytes(piece), name)
		assert.Equal(t, ix.Items(), ix.Fit(ix.Items(), 1000), name)
	}
}

// TestSplitIsLinear counts allocations, which do not depend on the machine: a
// piece costs the same whatever the size of the request that it is cut from.
func TestSplitIsLinear(t *testing.T) {
	small := allocsOfSplit(2_000)
	large := allocsOfSplit(64_000)
	assert.InEpsilon(t, small, large, 0.05, "allocations per item: %.3f of 2,000, %.3f of 64,000", small, large)
	assert.Less(t, large, 1.2, "a moved record is one allocation, the rest is per piece")
}

func allocsOfSplit(items int) float64 {
	s := logsSubject()
	var requests []plog.Logs
	for range 3 { // AllocsPerRun calls once more than it is told to
		requests = append(requests, s.simple(items, 0))
	}
	allocs := testing.AllocsPerRun(1, func() {
		data := requests[len(requests)-1]
		requests = requests[:len(requests)-1]
		ix := s.Index(data, true, 0)
		for from := 0; from < items; {
			to := min(ix.Fit(from, 20_000), from+512)
			s.Cut(data, ix, from, to)
			from = to
		}
	})
	return allocs / float64(items)
}

func TestMetricKindsSurvive(t *testing.T) {
	s := metricsSubject()
	data := payloadtest.RandomMetrics(newRand(5), 300, 0)
	kinds := map[pmetric.MetricType]bool{}
	for _, r := range data.ResourceMetrics().All() {
		for _, sm := range r.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				kinds[m.Type()] = true
			}
		}
	}
	require.GreaterOrEqual(t, len(kinds), 5, "the random data has all kinds")
	want := s.flatten(data)
	ix := s.Index(data, false, 0)
	var got []string
	for i := range ix.Items() {
		got = append(got, s.flatten(s.Cut(data, ix, i, i+1))...)
	}
	assert.Equal(t, want, got)
}
