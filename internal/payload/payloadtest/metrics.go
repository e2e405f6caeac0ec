// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payloadtest // import "github.com/pullbatch/batcherexporter/internal/payload/payloadtest"

import (
	"fmt"
	"math/rand/v2"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// SimpleMetrics makes points numbered from firstID of one gauge.
func SimpleMetrics(items int, firstID int64) pmetric.Metrics {
	data := pmetric.NewMetrics()
	r := data.ResourceMetrics().AppendEmpty()
	simpleResource(r.Resource())
	s := r.ScopeMetrics().AppendEmpty()
	s.Scope().SetName("library")
	m := s.Metrics().AppendEmpty()
	m.SetName("system.memory.usage")
	m.SetUnit("By")
	points := m.SetEmptyGauge().DataPoints()
	points.EnsureCapacity(items)
	for i := range items {
		point := points.AppendEmpty()
		point.SetTimestamp(1_700_000_000_000_000_000)
		point.SetIntValue(int64(i))
		point.Attributes().PutInt(idKey, firstID+int64(i))
		point.Attributes().PutStr("system.memory.state", "inactive")
	}
	return data
}

// RandomMetrics makes points numbered from firstID, of metrics of all kinds.
func RandomMetrics(rnd *rand.Rand, items int, firstID int64) pmetric.Metrics {
	data := pmetric.NewMetrics()
	for _, n := range split(rnd, items, 1+rnd.IntN(4)) {
		r := data.ResourceMetrics().AppendEmpty()
		r.SetSchemaUrl(randomResource(rnd, r.Resource()))
		for _, n := range split(rnd, n, 1+rnd.IntN(3)) {
			s := r.ScopeMetrics().AppendEmpty()
			s.SetSchemaUrl(randomScope(rnd, s.Scope()))
			for _, n := range split(rnd, n, 1+rnd.IntN(6)) {
				randomMetric(rnd, s.Metrics().AppendEmpty(), n, firstID)
				firstID += int64(n)
			}
		}
	}
	return data
}

func randomMetric(rnd *rand.Rand, m pmetric.Metric, points int, firstID int64) {
	m.SetName("metric." + randomText(rnd, 10))
	m.SetDescription(randomText(rnd, 60))
	m.SetUnit(randomText(rnd, 3))
	randomAttributes(rnd, m.Metadata(), rnd.IntN(variants))
	temporality := pmetric.AggregationTemporality(rnd.IntN(3))
	kinds := []func(){
		func() { randomNumbers(rnd, m.SetEmptyGauge().DataPoints(), points, firstID) },
		func() {
			m.SetEmptySum().SetIsMonotonic(rnd.IntN(2) == 0)
			m.Sum().SetAggregationTemporality(temporality)
			randomNumbers(rnd, m.Sum().DataPoints(), points, firstID)
		},
		func() {
			m.SetEmptyHistogram().SetAggregationTemporality(temporality)
			randomHistograms(rnd, m.Histogram().DataPoints(), points, firstID)
		},
		func() {
			m.SetEmptyExponentialHistogram().SetAggregationTemporality(temporality)
			randomExponentials(rnd, m.ExponentialHistogram().DataPoints(), points, firstID)
		},
		func() { randomSummaries(rnd, m.SetEmptySummary().DataPoints(), points, firstID) },
	}
	if points == 0 {
		kinds = append(kinds, func() {}) // a metric without data
	}
	kinds[rnd.IntN(len(kinds))]()
}

// commonPoint is what all kinds of points have.
type commonPoint interface {
	Attributes() pcommon.Map
	SetTimestamp(pcommon.Timestamp)
	SetStartTimestamp(pcommon.Timestamp)
	SetFlags(pmetric.DataPointFlags)
}

func randomPoint(rnd *rand.Rand, point commonPoint, id int64) {
	point.Attributes().PutInt(idKey, id)
	randomAttributes(rnd, point.Attributes(), 1+rnd.IntN(6))
	point.SetTimestamp(randomTime(rnd))
	point.SetStartTimestamp(randomTime(rnd))
	point.SetFlags(pmetric.DataPointFlags(rnd.Uint32N(2)))
}

func randomNumbers(rnd *rand.Rand, points pmetric.NumberDataPointSlice, n int, firstID int64) {
	for i := range n {
		point := points.AppendEmpty()
		randomPoint(rnd, point, firstID+int64(i))
		switch rnd.IntN(3) {
		case 0:
			point.SetIntValue(rnd.Int64N(1000))
		case 1:
			point.SetDoubleValue(rnd.Float64())
		}
		randomExemplars(rnd, point.Exemplars())
	}
}

func randomHistograms(rnd *rand.Rand, points pmetric.HistogramDataPointSlice, n int, firstID int64) {
	for i := range n {
		point := points.AppendEmpty()
		randomPoint(rnd, point, firstID+int64(i))
		point.SetCount(rnd.Uint64N(100))
		point.BucketCounts().FromRaw([]uint64{1, rnd.Uint64N(1000), 3})
		point.ExplicitBounds().FromRaw([]float64{0.5, rnd.Float64()})
		if rnd.IntN(2) == 0 {
			point.SetSum(rnd.Float64())
			point.SetMin(0)
			point.SetMax(1)
		}
		randomExemplars(rnd, point.Exemplars())
	}
}

func randomExponentials(rnd *rand.Rand, points pmetric.ExponentialHistogramDataPointSlice, n int, firstID int64) {
	for i := range n {
		point := points.AppendEmpty()
		randomPoint(rnd, point, firstID+int64(i))
		point.SetCount(rnd.Uint64N(100))
		point.SetScale(int32(rnd.IntN(20) - 10))
		point.SetZeroCount(rnd.Uint64N(3))
		point.SetZeroThreshold(rnd.Float64())
		point.Positive().SetOffset(int32(rnd.IntN(20) - 10))
		point.Positive().BucketCounts().FromRaw([]uint64{1, rnd.Uint64N(1000)})
		point.Negative().BucketCounts().FromRaw([]uint64{rnd.Uint64N(1000)})
		if rnd.IntN(2) == 0 {
			point.SetSum(rnd.Float64())
		}
		randomExemplars(rnd, point.Exemplars())
	}
}

func randomSummaries(rnd *rand.Rand, points pmetric.SummaryDataPointSlice, n int, firstID int64) {
	for i := range n {
		point := points.AppendEmpty()
		randomPoint(rnd, point, firstID+int64(i))
		point.SetCount(rnd.Uint64N(100))
		point.SetSum(rnd.Float64())
		for range rnd.IntN(3) {
			quantile := point.QuantileValues().AppendEmpty()
			quantile.SetQuantile(rnd.Float64())
			quantile.SetValue(rnd.Float64())
		}
	}
}

func randomExemplars(rnd *rand.Rand, exemplars pmetric.ExemplarSlice) {
	for range rnd.IntN(2) {
		exemplar := exemplars.AppendEmpty()
		exemplar.SetIntValue(rnd.Int64N(10))
		exemplar.SetTimestamp(randomTime(rnd))
		exemplar.SetTraceID(randomTraceID(rnd))
		randomAttributes(rnd, exemplar.FilteredAttributes(), rnd.IntN(variants))
	}
}

// IDsMetrics returns the identities of the points.
func IDsMetrics(data pmetric.Metrics) []int64 {
	var ids []int64
	eachMetric(data, func(_ pmetric.ResourceMetrics, _ pmetric.ScopeMetrics, m pmetric.Metric) {
		for _, point := range pointsOf(m) {
			ids = append(ids, idOf(point.attrs))
		}
	})
	return ids
}

// FlattenMetrics returns a line for each point.
func FlattenMetrics(data pmetric.Metrics) []string {
	var lines []string
	eachMetric(data, func(r pmetric.ResourceMetrics, s pmetric.ScopeMetrics, m pmetric.Metric) {
		for _, point := range pointsOf(m) {
			lines = append(lines, fmt.Sprintf("%s %s | metric %q %q %q %s point %d %x",
				formatResource(r.Resource(), r.SchemaUrl()), formatScope(s.Scope(), s.SchemaUrl()),
				m.Name(), m.Description(), m.Unit(), formatMap(m.Metadata()), idOf(point.attrs), point.alone()))
		}
	})
	return lines
}

func eachMetric(data pmetric.Metrics, f func(pmetric.ResourceMetrics, pmetric.ScopeMetrics, pmetric.Metric)) {
	for _, r := range data.ResourceMetrics().All() {
		for _, s := range r.ScopeMetrics().All() {
			for _, m := range s.Metrics().All() {
				f(r, s, m)
			}
		}
	}
}

// point is a point of any kind.
type point struct {
	attrs  pcommon.Map
	copyTo func(pmetric.Metric) // makes the metric like that of the point, with just it
}

// alone is the marshalled point in a metric that has only its kind, its
// temporality and whether it is monotonic.
func (p point) alone() []byte {
	data := pmetric.NewMetrics()
	p.copyTo(data.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty())
	buf, _ := (&pmetric.ProtoMarshaler{}).MarshalMetrics(data)
	return buf
}

func pointsOf(m pmetric.Metric) []point {
	var points []point
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		for _, p := range m.Gauge().DataPoints().All() {
			points = append(points, point{p.Attributes(), func(to pmetric.Metric) {
				p.CopyTo(to.SetEmptyGauge().DataPoints().AppendEmpty())
			}})
		}
	case pmetric.MetricTypeSum:
		for _, p := range m.Sum().DataPoints().All() {
			points = append(points, point{p.Attributes(), func(to pmetric.Metric) {
				to.SetEmptySum().SetIsMonotonic(m.Sum().IsMonotonic())
				to.Sum().SetAggregationTemporality(m.Sum().AggregationTemporality())
				p.CopyTo(to.Sum().DataPoints().AppendEmpty())
			}})
		}
	case pmetric.MetricTypeHistogram:
		for _, p := range m.Histogram().DataPoints().All() {
			points = append(points, point{p.Attributes(), func(to pmetric.Metric) {
				to.SetEmptyHistogram().SetAggregationTemporality(m.Histogram().AggregationTemporality())
				p.CopyTo(to.Histogram().DataPoints().AppendEmpty())
			}})
		}
	case pmetric.MetricTypeExponentialHistogram:
		for _, p := range m.ExponentialHistogram().DataPoints().All() {
			points = append(points, point{p.Attributes(), func(to pmetric.Metric) {
				to.SetEmptyExponentialHistogram().SetAggregationTemporality(m.ExponentialHistogram().AggregationTemporality())
				p.CopyTo(to.ExponentialHistogram().DataPoints().AppendEmpty())
			}})
		}
	case pmetric.MetricTypeSummary:
		for _, p := range m.Summary().DataPoints().All() {
			points = append(points, point{p.Attributes(), func(to pmetric.Metric) {
				p.CopyTo(to.SetEmptySummary().DataPoints().AppendEmpty())
			}})
		}
	}
	return points
}
