// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

var metricTypes = []pmetric.MetricType{
	pmetric.MetricTypeGauge, pmetric.MetricTypeSum, pmetric.MetricTypeHistogram,
	pmetric.MetricTypeExponentialHistogram, pmetric.MetricTypeSummary,
}

// describedMetrics makes a metric of each type for each number of points, with
// all that a cut must not lose. Sums are cumulative and monotonic, histograms
// are deltas, summaries have quantiles.
func describedMetrics(types []pmetric.MetricType, points ...int) pmetric.Metrics {
	data := pmetric.NewMetrics()
	s := data.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty()
	id := int64(0)
	next := func(attrs pcommon.Map) {
		attrs.PutInt("id", id)
		id++
	}
	for _, typ := range types {
		for _, n := range points {
			m := s.Metrics().AppendEmpty()
			m.SetName(fmt.Sprintf("%s.%d", typ, n))
			m.SetDescription("points: " + strings.Repeat("x", n))
			m.SetUnit("By")
			m.Metadata().PutInt("points", int64(n))
			for range n {
				addPoint(m, typ, next)
			}
		}
	}
	return data
}

func addPoint(m pmetric.Metric, typ pmetric.MetricType, next func(pcommon.Map)) {
	fresh := m.Type() != typ
	switch typ {
	case pmetric.MetricTypeGauge:
		if fresh {
			m.SetEmptyGauge()
		}
		next(m.Gauge().DataPoints().AppendEmpty().Attributes())
	case pmetric.MetricTypeSum:
		if fresh {
			m.SetEmptySum().SetIsMonotonic(true)
			m.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		}
		next(m.Sum().DataPoints().AppendEmpty().Attributes())
	case pmetric.MetricTypeHistogram:
		if fresh {
			m.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
		}
		next(m.Histogram().DataPoints().AppendEmpty().Attributes())
	case pmetric.MetricTypeExponentialHistogram:
		if fresh {
			m.SetEmptyExponentialHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
		}
		next(m.ExponentialHistogram().DataPoints().AppendEmpty().Attributes())
	case pmetric.MetricTypeSummary:
		if fresh {
			m.SetEmptySummary()
		}
		p := m.Summary().DataPoints().AppendEmpty()
		p.QuantileValues().AppendEmpty().SetQuantile(0.99)
		next(p.Attributes())
	}
}

// Name, description, unit, metadata and type of a metric are on every piece of
// it, whatever its type.
func TestFieldCase12_CutMetricsKeepTheirDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindMetrics, &sink{keep: true}, "sending_queue: {batch: {min_size: 3, max_size: 3}}")
		data := describedMetrics(metricTypes, 1, 4, 7)
		want := sorted(kindMetrics.flatten(data))
		require.Len(t, want, 60)
		r.mustSend(data)
		synctest.Wait()
		assert.Equal(t, slices.Repeat([]int{3}, 20), r.sizes())
		assert.Equal(t, want, r.lines())
	})
}

// A cut leaves a sum monotonic and cumulative, a histogram a delta, and a summary
// its quantiles.
func TestFieldCase13_CutMetricsKeepTheirTemporality(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindMetrics, &sink{keep: true}, "sending_queue: {batch: {min_size: 200, max_size: 200}}")
		data := describedMetrics(metricTypes[1:], 250)
		want := sorted(kindMetrics.flatten(data))
		require.Len(t, want, 1000)
		r.mustSend(data)
		synctest.Wait()
		assert.Equal(t, slices.Repeat([]int{200}, 5), r.sizes())
		assert.Equal(t, want, r.lines())
	})
}

// The limit counts data points, not metrics.
func TestFieldCase15_LimitCountsPoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindMetrics, &sink{}, "sending_queue: {batch: {min_size: 100, max_size: 100}}")
		r.mustSend(kindMetrics.simple(10_000, 0))
		synctest.Wait()
		assert.Equal(t, slices.Repeat([]int{100}, 100), r.sizes())
		assert.Equal(t, sequence(0, 10_000), sorted(r.ids()))
		assert.EqualValues(t, 10_000, r.metric("sent_metric_points"))
	})
}

// What is left of a cut stays before what arrives later, the cut is at max_size
// and not at min_size, and no batch is above it.
func TestFieldCase18_CutsKeepOrder(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := startRig(t, k, &sink{}, "sending_queue: {num_consumers: 1, batch: {min_size: 5, max_size: 10}}")
		r.hold()
		r.mustSend(k.simple(25, 1))
		r.mustSend(k.simple(3, 26))
		r.mustSend(k.simple(12, 29))
		synctest.Wait()
		r.release()
		synctest.Wait()
		assert.Equal(t, []int{10, 10, 10, 10}, r.sizes())
		assert.Equal(t, sequence(1, 40), r.ids())
	})
}

// pointless adds a metric that has no points, but 2,000 bytes.
func pointless(to pmetric.MetricSlice) {
	m := to.AppendEmpty()
	m.SetName("none")
	m.SetDescription(strings.Repeat("d", 2000))
	m.SetEmptyGauge()
}

// A request without items is a success, and nothing is sent. A metric without
// points takes no points down, whatever is counted: where a request is cut it is
// left out.
func TestFieldCase19_MetricWithoutPointsHurtsNoOther(t *testing.T) {
	inBubble(t, "alone", func(t *testing.T) {
		r := startRig(t, kindMetrics, &sink{}, "{}")
		data := pmetric.NewMetrics()
		pointless(data.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics())
		r.mustSend(data)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, r.calls())
		assert.Zero(t, r.metric("batcher_accepted_items"))
	})
	for _, c := range []struct {
		batch   string
		gauges  []int // of so many points
		batches int   // 0: not asked
	}{
		{"{sizer: bytes, min_size: 300, max_size: 300, oversize: drop}", []int{3, 3, 3, 3, 3}, 0},
		{"{min_size: 2, max_size: 2}", []int{3, 3, 3, 3, 3}, 8},
		{"{min_size: 1, max_bytes: 300, oversize: drop}", []int{3}, 1},
		{"{min_size: 1, max_bytes: 300, oversize: drop}", []int{1}, 1},
	} {
		inBubble(t, fmt.Sprintf("%s/%d", c.batch, c.gauges), func(t *testing.T) {
			r := startRig(t, kindMetrics, &sink{}, "sending_queue: {batch: "+c.batch+"}")
			data := pmetric.NewMetrics()
			s := data.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty()
			pointless(s.Metrics())
			gauges := describedMetrics(metricTypes[:1], c.gauges...)
			want := kindMetrics.ids(gauges)
			gauges.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().MoveAndAppendTo(s.Metrics())
			pointless(s.Metrics())
			r.mustSend(data)
			time.Sleep(time.Second)
			synctest.Wait()
			assert.Equal(t, want, sorted(r.ids()))
			if c.batches > 0 {
				assert.Len(t, r.taken(), c.batches)
			}
			for _, call := range r.taken() {
				assert.True(t, !strings.Contains(c.batch, "300") || call.bytes <= 300, "%d bytes", call.bytes)
			}
			require.NoError(t, r.stop())
		})
	}
}

// Merging and cutting profiles leaves every sample what it refers to in the
// dictionary. Bytes count the dictionary, as far as it is used.
func TestFieldCase104_ProfilesKeepTheirDictionary(t *testing.T) {
	for _, c := range []struct {
		name, batch string
		limit       int // in bytes
		sizes       []int
	}{
		{"merge", "{min_size: 200}", 0, []int{200}},
		{"cut by items", "{min_size: 30, max_size: 30}", 0, []int{30, 30, 30, 30, 30, 30, 20}},
		{"cut by bytes", "{sizer: bytes, min_size: 500, max_size: 500}", 500, nil},
		{"cut by bytes, drop", "{sizer: bytes, min_size: 500, max_size: 500, oversize: drop}", 500, nil},
	} {
		for _, unused := range []int{0, 200, 600, 2000} {
			inBubble(t, fmt.Sprintf("%s/unused=%d", c.name, unused), func(t *testing.T) {
				r := startRig(t, kindProfiles, &sink{keep: true}, "sending_queue: {num_consumers: 1, batch: "+c.batch+"}")
				rnd := rand.New(rand.NewPCG(104, uint64(unused)))
				var want []string
				for i := range int64(2) {
					data := kindProfiles.random(rnd, 100, 100*i).(pprofile.Profiles)
					data.Dictionary().StringTable().Append(strings.Repeat("u", unused))
					want = append(want, kindProfiles.flatten(data)...)
					r.mustSend(data)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				for _, call := range r.taken() {
					assert.True(t, c.limit == 0 || call.bytes <= c.limit || len(call.ids) == 1, "%d samples of %d bytes", len(call.ids), call.bytes)
				}
				if c.sizes != nil {
					assert.Equal(t, c.sizes, r.sizes())
				}
				tooLarge := int(r.metric("batcher_dropped_items", reasonIs(dropTooLarge)))
				require.Len(t, r.lines(), 200-tooLarge)
				if tooLarge == 0 {
					assert.Equal(t, sorted(want), r.lines())
				} else {
					assert.Subset(t, want, r.lines())
				}
			})
		}
	}
}

// A sample is not too large because of what its request carries unused.
func TestFieldCase104_UnusedEntriesMakeNoSampleTooLarge(t *testing.T) {
	for _, samples := range []int{1, 2} {
		inBubble(t, fmt.Sprintf("%d samples", samples), func(t *testing.T) {
			r := startRig(t, kindProfiles, &sink{}, "sending_queue: {batch: {min_size: 1, max_bytes: 1000, oversize: drop}}")
			data := kindProfiles.simple(samples, 0).(pprofile.Profiles)
			data.Dictionary().StringTable().Append(strings.Repeat("u", 2000))
			r.mustSend(data)
			synctest.Wait()
			assert.Equal(t, sequence(0, int64(samples)), sorted(r.ids()))
			for _, call := range r.taken() {
				assert.LessOrEqual(t, call.bytes, 1000)
			}
		})
	}
}
