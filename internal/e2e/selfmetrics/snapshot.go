// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package selfmetrics receives the metrics that a collector reports about itself.
package selfmetrics

import (
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// Snapshot is what a collector reported at one moment. The zero value holds nothing.
type Snapshot struct {
	At     time.Time
	series []series
	// collected is when the collector read its metrics, by its clock.
	collected pcommon.Timestamp
}

// series is one data point of a sum, a gauge or a histogram.
type series struct {
	name       string
	attributes map[string]string
	value      float64 // of a histogram, the sum of what was recorded
	count      uint64  // of a histogram, how often something was recorded
}

// Match says which series of a metric are meant: those that have each of these
// attributes. A value that ends in * matches by its beginning, one that begins
// with * by its end.
type Match map[string]string

// Value returns the sum of the values of a metric, over the series that match.
func (s Snapshot) Value(name string, match Match) int {
	total := 0.0
	for _, one := range s.series {
		if one.matches(name, match) {
			total += one.value
		}
	}
	return int(total)
}

// Count returns how often a histogram was recorded, over the series that match.
func (s Snapshot) Count(name string, match Match) int {
	total := uint64(0)
	for _, one := range s.series {
		if one.matches(name, match) {
			total += one.count
		}
	}
	return int(total)
}

// Has reports whether the collector reported the metric at all.
func (s Snapshot) Has(name string) bool {
	for _, one := range s.series {
		if one.name == name {
			return true
		}
	}
	return false
}

func (s series) matches(name string, match Match) bool {
	if s.name != name {
		return false
	}
	for key, want := range match {
		if !matchesValue(s.attributes[key], want) {
			return false
		}
	}
	return true
}

func matchesValue(got, want string) bool {
	if begin, ok := strings.CutSuffix(want, "*"); ok {
		return strings.HasPrefix(got, begin)
	}
	if end, ok := strings.CutPrefix(want, "*"); ok {
		return strings.HasSuffix(got, end)
	}
	return got == want
}

func newSnapshot(md pmetric.Metrics) Snapshot {
	s := Snapshot{At: time.Now()}
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				s.add(m)
			}
		}
	}
	return s
}

func (s *Snapshot) add(m pmetric.Metric) {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		s.addNumbers(m.Name(), m.Gauge().DataPoints())
	case pmetric.MetricTypeSum:
		s.addNumbers(m.Name(), m.Sum().DataPoints())
	case pmetric.MetricTypeHistogram:
		for _, p := range m.Histogram().DataPoints().All() {
			s.collected = max(s.collected, p.Timestamp())
			s.series = append(s.series, series{
				name: m.Name(), attributes: texts(p.Attributes()), value: p.Sum(), count: p.Count(),
			})
		}
	}
}

func (s *Snapshot) addNumbers(name string, points pmetric.NumberDataPointSlice) {
	for _, p := range points.All() {
		s.collected = max(s.collected, p.Timestamp())
		value := p.DoubleValue()
		if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
			value = float64(p.IntValue())
		}
		s.series = append(s.series, series{name: name, attributes: texts(p.Attributes()), value: value})
	}
}

func texts(attributes pcommon.Map) map[string]string {
	m := make(map[string]string, attributes.Len())
	for key, value := range attributes.All() {
		m[key] = value.AsString()
	}
	return m
}
