// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import (
	"sync"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/xpdata/pref"
)

// Metrics is the signal whose items are data points.
func Metrics() Signal[pmetric.Metrics] {
	return signal[
		pmetric.Metrics,
		pmetric.ResourceMetricsSlice, pmetric.ResourceMetrics,
		pmetric.ScopeMetricsSlice, pmetric.ScopeMetrics,
	]{metrics{}, &sync.Pool{}}
}

type metrics struct{}

var metricSizer = &pmetric.ProtoMarshaler{}

func (metrics) Items(data pmetric.Metrics) int       { return data.DataPointCount() }
func (metrics) Bytes(data pmetric.Metrics) int       { return metricSizer.MetricsSize(data) }
func (metrics) IsReadOnly(data pmetric.Metrics) bool { return data.IsReadOnly() }
func (metrics) Ref(data pmetric.Metrics)             { pref.RefMetrics(data) }
func (metrics) Unref(data pmetric.Metrics)           { pref.UnrefMetrics(data) }

func (metrics) Clone(data pmetric.Metrics) pmetric.Metrics {
	clone := pmetric.NewMetrics()
	data.CopyTo(clone)
	return clone
}

func (metrics) Remainder(err error) (data pmetric.Metrics, ok bool) {
	switch partial := err.(type) { //nolint:errorlint // the node alone
	case consumererror.Metrics:
		data = partial.Data()
	case *consumererror.Metrics:
		data = partial.Data()
	default:
		return data, false
	}
	return data, true
}

func (metrics) newData() pmetric.Metrics { return pmetric.NewMetrics() }
func (metrics) resources(data pmetric.Metrics) pmetric.ResourceMetricsSlice {
	return data.ResourceMetrics()
}

func (metrics) scopes(r pmetric.ResourceMetrics) pmetric.ScopeMetricsSlice { return r.ScopeMetrics() }

func (metrics) resourceSize(r pmetric.ResourceMetrics) int { return metricSizer.ResourceMetricsSize(r) }

func (metrics) scopeSize(s pmetric.ScopeMetrics) int { return metricSizer.ScopeMetricsSize(s) }

// moveScope does not join metrics: two entries of one name may differ in
// anything, and receivers do not care.
func (metrics) moveScope(src, dst pmetric.ScopeMetrics) {
	appendAll(src.Metrics(), dst.Metrics())
}

func (metrics) indexScope(ix *Index, s pmetric.ScopeMetrics) {
	all := s.Metrics()
	for m := range all.Len() {
		ix.open(innerLevel, m)
		addPoints(ix, all.At(m))
		ix.close(innerLevel, metricCost(ix, all.At(m)))
	}
}

// metricCost is what is left of a metric if its points are taken away, the
// frame of its data included. Points are sized twice for that: most metrics have
// few, and to take them out for a moment would need a place for each of the five
// kinds.
func metricCost(ix *Index, m pmetric.Metric) cost {
	if !ix.hasBytes() {
		return cost{}
	}
	return cost{framed(metricSizer.MetricSize(m)) - ix.spent(innerLevel)}
}

func addPoints(ix *Index, m pmetric.Metric) {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		addItems(ix, m.Gauge().DataPoints(), metricSizer.NumberDataPointSize)
	case pmetric.MetricTypeSum:
		addItems(ix, m.Sum().DataPoints(), metricSizer.NumberDataPointSize)
	case pmetric.MetricTypeHistogram:
		addItems(ix, m.Histogram().DataPoints(), metricSizer.HistogramDataPointSize)
	case pmetric.MetricTypeExponentialHistogram:
		addItems(ix, m.ExponentialHistogram().DataPoints(), metricSizer.ExponentialHistogramDataPointSize)
	case pmetric.MetricTypeSummary:
		addItems(ix, m.Summary().DataPoints(), metricSizer.SummaryDataPointSize)
	case pmetric.MetricTypeEmpty:
	}
}

func (metrics) moveSpan(ix *Index, src, dst pmetric.ScopeMetrics, part span) {
	groups := ix.groups(innerLevel, part)
	dst.Metrics().EnsureCapacity(len(groups))
	for _, g := range groups {
		m, piece := src.Metrics().At(int(g.pos)), dst.Metrics().AppendEmpty()
		if part.covers(g) {
			m.MoveTo(piece)
			continue
		}
		piece.SetName(m.Name())
		piece.SetDescription(m.Description())
		piece.SetUnit(m.Unit())
		m.Metadata().CopyTo(piece.Metadata())
		movePoints(share{ix, g, part.within(g)}, m, piece)
	}
}

// movePoints moves a share of the points of m to piece, and says of them what m
// says.
func movePoints(sh share, m, piece pmetric.Metric) {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		moveShare(sh, m.Gauge().DataPoints(), piece.SetEmptyGauge().DataPoints())
	case pmetric.MetricTypeSum:
		sum := piece.SetEmptySum()
		sum.SetAggregationTemporality(m.Sum().AggregationTemporality())
		sum.SetIsMonotonic(m.Sum().IsMonotonic())
		moveShare(sh, m.Sum().DataPoints(), sum.DataPoints())
	case pmetric.MetricTypeHistogram:
		histogram := piece.SetEmptyHistogram()
		histogram.SetAggregationTemporality(m.Histogram().AggregationTemporality())
		moveShare(sh, m.Histogram().DataPoints(), histogram.DataPoints())
	case pmetric.MetricTypeExponentialHistogram:
		histogram := piece.SetEmptyExponentialHistogram()
		histogram.SetAggregationTemporality(m.ExponentialHistogram().AggregationTemporality())
		moveShare(sh, m.ExponentialHistogram().DataPoints(), histogram.DataPoints())
	case pmetric.MetricTypeSummary:
		moveShare(sh, m.Summary().DataPoints(), piece.SetEmptySummary().DataPoints())
	case pmetric.MetricTypeEmpty:
	}
}
