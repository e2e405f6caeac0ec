// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import (
	"crypto/sha256"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Within says whether the items of rests, all of them together, are items of sent:
// each at most as often as there. Two rests that name the same item are not, unless
// sent has it twice. An item is equal to another if it has the same bytes, as do
// its resource, scope and metric; which order they are in does not matter.
//
// It is false for profiles, whose items are bytes only together with a dictionary,
// and for what cannot be encoded. It reads data only, in a time that is linear in
// its bytes.
func Within[T any](sent T, rests []T) bool {
	unused := map[digest]int{}
	if !eachItem(sent, func(d digest) bool { unused[d]++; return true }) {
		return false
	}
	for _, rest := range rests {
		if !eachItem(rest, func(d digest) bool { unused[d]--; return unused[d] >= 0 }) {
			return false
		}
	}
	return true
}

// digest stands for an item, or for a header with all headers above it.
type digest [sha256.Size]byte

// eachItem calls f for each item of data. It ends early, and is false, if f is, or
// if data cannot be read.
func eachItem(data any, f func(digest) bool) bool {
	switch d := data.(type) {
	case plog.Logs:
		e := encoder[plog.Logs]{marshal: (&plog.ProtoMarshaler{}).MarshalLogs}
		return eachScope(logs{}, d, &e, func(above digest, from, one plog.ScopeLogs) bool {
			return eachOf(from.LogRecords(), one.LogRecords().AppendEmpty(), func() bool { return e.next(above, f) })
		})
	case ptrace.Traces:
		e := encoder[ptrace.Traces]{marshal: (&ptrace.ProtoMarshaler{}).MarshalTraces}
		return eachScope(traces{}, d, &e, func(above digest, from, one ptrace.ScopeSpans) bool {
			return eachOf(from.Spans(), one.Spans().AppendEmpty(), func() bool { return e.next(above, f) })
		})
	case pmetric.Metrics:
		e := encoder[pmetric.Metrics]{marshal: (&pmetric.ProtoMarshaler{}).MarshalMetrics}
		return eachScope(metrics{}, d, &e, func(above digest, from, one pmetric.ScopeMetrics) bool {
			for _, m := range from.Metrics().All() {
				head := one.Metrics().AppendEmpty()
				head.SetName(m.Name())
				head.SetDescription(m.Description())
				head.SetUnit(m.Unit())
				m.Metadata().CopyTo(head.Metadata())
				header := e.digest(above)
				pmetric.NewMetric().MoveTo(head)
				if !eachPoint(m, head, func() bool { return e.next(header, f) }) {
					return false
				}
				one.Metrics().RemoveIf(func(pmetric.Metric) bool { return true })
			}
			return true
		})
	}
	return false
}

// encoder makes digests of what one value holds, which is filled anew for each.
type encoder[T any] struct {
	value   T
	marshal func(T) ([]byte, error)
	err     error
}

func (e *encoder[T]) digest(above digest) (d digest) {
	content, err := e.marshal(e.value)
	if err != nil {
		e.err = err
	}
	h := sha256.New()
	h.Write(above[:])
	h.Write(content)
	h.Sum(d[:0])
	return d
}

func (e *encoder[T]) next(above digest, f func(digest) bool) bool {
	d := e.digest(above)
	return e.err == nil && f(d)
}

// eachScope calls f for each scope, with the digest of its headers, and an empty
// scope in the value of e to fill with one item at a time. What each level adds is
// encoded alone, or a resource of a megabyte would be once per item.
func eachScope[T any, RL list[RL, R], R resourceGroup, SL list[SL, S], S scopeGroup](
	a adapter[T, RL, R, SL, S], data T, e *encoder[T], f func(above digest, from, one S) bool,
) bool {
	fresh := func() R {
		e.value = a.newData()
		return a.resources(e.value).AppendEmpty()
	}
	for i := range a.resources(data).Len() {
		r, one := a.resources(data).At(i), fresh()
		r.Resource().CopyTo(one.Resource())
		one.SetSchemaUrl(r.SchemaUrl())
		resource := e.digest(digest{})
		for j := range a.scopes(r).Len() {
			s, one := a.scopes(r).At(j), a.scopes(fresh()).AppendEmpty()
			s.Scope().CopyTo(one.Scope())
			one.SetSchemaUrl(s.SchemaUrl())
			if scope := e.digest(resource); !f(scope, s, a.scopes(fresh()).AppendEmpty()) {
				return false
			}
		}
	}
	return true
}

// eachOf copies one entry after the other to one, and calls f for each.
func eachOf[L list[L, E], E interface{ CopyTo(E) }](from L, one E, f func() bool) bool {
	for i := range from.Len() {
		if from.At(i).CopyTo(one); !f() {
			return false
		}
	}
	return true
}

// eachPoint gives bare the kind of data that m has, with one point after the
// other, and calls f for each.
func eachPoint(m, bare pmetric.Metric, f func() bool) bool {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		return eachOf(m.Gauge().DataPoints(), bare.SetEmptyGauge().DataPoints().AppendEmpty(), f)
	case pmetric.MetricTypeSum:
		sum := bare.SetEmptySum()
		sum.SetAggregationTemporality(m.Sum().AggregationTemporality())
		sum.SetIsMonotonic(m.Sum().IsMonotonic())
		return eachOf(m.Sum().DataPoints(), sum.DataPoints().AppendEmpty(), f)
	case pmetric.MetricTypeHistogram:
		histogram := bare.SetEmptyHistogram()
		histogram.SetAggregationTemporality(m.Histogram().AggregationTemporality())
		return eachOf(m.Histogram().DataPoints(), histogram.DataPoints().AppendEmpty(), f)
	case pmetric.MetricTypeExponentialHistogram:
		histogram := bare.SetEmptyExponentialHistogram()
		histogram.SetAggregationTemporality(m.ExponentialHistogram().AggregationTemporality())
		return eachOf(m.ExponentialHistogram().DataPoints(), histogram.DataPoints().AppendEmpty(), f)
	case pmetric.MetricTypeSummary:
		return eachOf(m.Summary().DataPoints(), bare.SetEmptySummary().DataPoints().AppendEmpty(), f)
	case pmetric.MetricTypeEmpty:
	}
	return true
}
