// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package otlpdata

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// identityKey is the attribute that holds the identity of a log record or a data
// point. A span needs none: its span ID is its identity.
const identityKey = "identity"

// services is the number of different resources: some requests can share a header
// in a batch and some cannot.
const services = 3

// epoch is the time of the item 0. It is fixed, so that equal ranges are equal data.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// NewTraces returns one span for each identity of r.
func NewTraces(r Range) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	describe(rs.Resource(), r)
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("e2e")
	for id := r.First; id < r.First+uint64(r.Items); id++ {
		span := ss.Spans().AppendEmpty()
		span.SetTraceID(traceID(r.First))
		span.SetSpanID(spanID(id))
		span.SetName("operation")
		span.SetStartTimestamp(timestamp(id))
		span.SetEndTimestamp(timestamp(id + 1))
	}
	return td
}

// NewLogs returns one log record for each identity of r.
func NewLogs(r Range) plog.Logs {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	describe(rl.Resource(), r)
	sl := rl.ScopeLogs().AppendEmpty()
	sl.Scope().SetName("e2e")
	for id := r.First; id < r.First+uint64(r.Items); id++ {
		record := sl.LogRecords().AppendEmpty()
		record.SetTimestamp(timestamp(id))
		if r.Alike {
			record.Body().SetStr(strings.Repeat("=", r.BodyBytes))
		} else {
			record.Body().SetStr(body(id, r.BodyBytes))
		}
		identify(record.Attributes(), id)
	}
	return ld
}

// body returns a text of that size. It is random, so that compression leaves about
// half of it.
func body(id uint64, size int) string {
	if size == 0 {
		return "something happened"
	}
	seed := [32]byte{}
	binary.BigEndian.PutUint64(seed[:], id)
	raw := make([]byte, (size+1)/2)
	_, _ = rand.NewChaCha8(seed).Read(raw) // never fails
	return hex.EncodeToString(raw)[:size]
}

// pointsPerMetric is how many data points in a row belong to one metric: a batch
// can end within a metric, and a request holds metrics of several types.
const pointsPerMetric = 3

// NewMetrics returns one data point for each identity of r. Their metrics are of
// all five types in turn.
func NewMetrics(r Range) pmetric.Metrics {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	describe(rm.Resource(), r)
	sm := rm.ScopeMetrics().AppendEmpty()
	sm.Scope().SetName("e2e")
	for first := r.First; first < r.First+uint64(r.Items); first += pointsPerMetric {
		rest := int(r.First + uint64(r.Items) - first)
		addMetric(sm.Metrics().AppendEmpty(), Range{First: first, Items: min(rest, pointsPerMetric)})
	}
	return md
}

func addMetric(m pmetric.Metric, r Range) {
	add := newPoints(m, r.First/pointsPerMetric%5)
	for id := r.First; id < r.First+uint64(r.Items); id++ {
		attributes, at := add(id)
		identify(attributes, id)
		at(timestamp(id))
	}
}

// newPoints makes m a metric of a type and returns what adds a point to it.
func newPoints(m pmetric.Metric, kind uint64) func(id uint64) (pcommon.Map, func(pcommon.Timestamp)) {
	m.SetName(fmt.Sprintf("metric.%d", kind))
	m.SetUnit("1")
	switch kind {
	case 0:
		points := m.SetEmptyGauge().DataPoints()
		return func(id uint64) (pcommon.Map, func(pcommon.Timestamp)) {
			p := points.AppendEmpty()
			p.SetIntValue(int64(id))
			return p.Attributes(), p.SetTimestamp
		}
	case 1:
		sum := m.SetEmptySum()
		sum.SetIsMonotonic(true)
		sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		return func(id uint64) (pcommon.Map, func(pcommon.Timestamp)) {
			p := sum.DataPoints().AppendEmpty()
			p.SetDoubleValue(float64(id))
			return p.Attributes(), p.SetTimestamp
		}
	case 2:
		histogram := m.SetEmptyHistogram()
		histogram.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
		return func(id uint64) (pcommon.Map, func(pcommon.Timestamp)) {
			p := histogram.DataPoints().AppendEmpty()
			p.SetCount(id)
			return p.Attributes(), p.SetTimestamp
		}
	case 3:
		histogram := m.SetEmptyExponentialHistogram()
		histogram.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
		return func(id uint64) (pcommon.Map, func(pcommon.Timestamp)) {
			p := histogram.DataPoints().AppendEmpty()
			p.SetCount(id)
			return p.Attributes(), p.SetTimestamp
		}
	default:
		points := m.SetEmptySummary().DataPoints()
		return func(id uint64) (pcommon.Map, func(pcommon.Timestamp)) {
			p := points.AppendEmpty()
			p.SetCount(id)
			return p.Attributes(), p.SetTimestamp
		}
	}
}

func describe(resource pcommon.Resource, r Range) {
	resource.Attributes().PutStr("service.name", fmt.Sprintf("service-%d", r.First%services))
	resource.Attributes().PutStr("service.version", "1.2.3")
}

func identify(attributes pcommon.Map, id uint64) {
	attributes.PutInt(identityKey, int64(id))
}

// spanID returns the identity as a span ID. An ID of all zeros is invalid, and the
// client counts from one.
func spanID(id uint64) (span pcommon.SpanID) {
	binary.BigEndian.PutUint64(span[:], id)
	return span
}

func traceID(id uint64) (trace pcommon.TraceID) {
	binary.BigEndian.PutUint64(trace[8:], id)
	return trace
}

func timestamp(id uint64) pcommon.Timestamp {
	return pcommon.NewTimestampFromTime(epoch.Add(time.Duration(id) * time.Millisecond))
}
