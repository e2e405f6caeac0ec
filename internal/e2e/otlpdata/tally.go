// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package otlpdata

import (
	"encoding/binary"
	"fmt"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Tally is what a backend received of one signal. The zero value has received
// nothing. It is not safe for concurrent use.
type Tally struct {
	sizes []int          // items of each request, in the order of arrival
	items int            // their sum, items without an identity included
	seen  map[uint64]int // how often each identity arrived

	latest uint64 // the identity that arrived for the first time last
	behind int    // identities that arrived for the first time after a higher one
}

// AddTraces counts one request.
func (t *Tally) AddTraces(td ptrace.Traces) {
	t.addRequest(td.SpanCount())
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				id := span.SpanID()
				t.addIdentity(binary.BigEndian.Uint64(id[:]))
			}
		}
	}
}

// AddLogs counts one request.
func (t *Tally) AddLogs(ld plog.Logs) {
	t.addRequest(ld.LogRecordCount())
	for _, rl := range ld.ResourceLogs().All() {
		for _, sl := range rl.ScopeLogs().All() {
			for _, record := range sl.LogRecords().All() {
				t.addAttributes(record.Attributes())
			}
		}
	}
}

// AddMetrics counts one request.
func (t *Tally) AddMetrics(md pmetric.Metrics) {
	t.addRequest(md.DataPointCount())
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				t.addPoints(m)
			}
		}
	}
}

func (t *Tally) addPoints(m pmetric.Metric) {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		addEach(t, m.Gauge().DataPoints().All())
	case pmetric.MetricTypeSum:
		addEach(t, m.Sum().DataPoints().All())
	case pmetric.MetricTypeHistogram:
		addEach(t, m.Histogram().DataPoints().All())
	case pmetric.MetricTypeExponentialHistogram:
		addEach(t, m.ExponentialHistogram().DataPoints().All())
	case pmetric.MetricTypeSummary:
		addEach(t, m.Summary().DataPoints().All())
	}
}

func addEach[P interface{ Attributes() pcommon.Map }](t *Tally, points func(func(int, P) bool)) {
	for _, p := range points {
		t.addAttributes(p.Attributes())
	}
}

func (t *Tally) addAttributes(attributes pcommon.Map) {
	if id, ok := attributes.Get(identityKey); ok {
		t.addIdentity(uint64(id.Int()))
	}
}

func (t *Tally) addIdentity(id uint64) {
	if t.seen == nil {
		t.seen = map[uint64]int{}
	}
	t.seen[id]++
	if t.seen[id] > 1 {
		return
	}
	if id < t.latest {
		t.behind++
	}
	t.latest = id
}

func (t *Tally) addRequest(items int) {
	t.sizes = append(t.sizes, items)
	t.items += items
}

// Requests returns how many requests arrived.
func (t *Tally) Requests() int { return len(t.sizes) }

// Items returns how many items arrived, those that came twice counted twice.
func (t *Tally) Items() int { return t.items }

// Has reports whether the identity arrived.
func (t *Tally) Has(id uint64) bool { return t.seen[id] > 0 }

// Behind returns how many identities arrived after a higher one; of those that
// arrived more than once, the first time counts.
func (t *Tally) Behind() int { return t.behind }

// Sizes returns the items of each request, in the order of arrival.
func (t *Tally) Sizes() []int { return t.sizes }

// Identities returns how many different identities arrived.
func (t *Tally) Identities() int { return len(t.seen) }

// Largest returns the number of items of the largest request.
func (t *Tally) Largest() int {
	largest := 0
	for _, items := range t.sizes {
		largest = max(largest, items)
	}
	return largest
}

// RequestsOf returns how many requests had exactly so many items.
func (t *Tally) RequestsOf(items int) int {
	n := 0
	for _, size := range t.sizes {
		if size == items {
			n++
		}
	}
	return n
}

// Above returns how many requests had more items than the bound.
func (t *Tally) Above(bound int) int {
	n := 0
	for _, size := range t.sizes {
		if size > bound {
			n++
		}
	}
	return n
}

// Repeats returns how many items arrived again: one for each arrival of an
// identity after its first.
func (t *Tally) Repeats() int {
	repeats := 0
	for _, times := range t.seen {
		repeats += times - 1
	}
	return repeats
}

// Difference is what separates what arrived from what should have.
type Difference struct {
	Missing    []uint64 // accepted, but never arrived
	Repeated   []uint64 // arrived more than once
	Unexpected []uint64 // arrived, but not accepted
}

// Compare finds the items that make the tally differ from one arrival of each item
// that was accepted.
func (t *Tally) Compare(accepted []Range) Difference {
	var d Difference
	expected := make(map[uint64]bool, len(t.seen))
	for _, r := range accepted {
		for id := r.First; id < r.First+uint64(r.Items); id++ {
			expected[id] = true
			if t.seen[id] == 0 {
				d.Missing = append(d.Missing, id)
			}
		}
	}
	for id, times := range t.seen {
		if times > 1 {
			d.Repeated = append(d.Repeated, id)
		}
		if !expected[id] {
			d.Unexpected = append(d.Unexpected, id)
		}
	}
	return d
}

// Empty reports whether there is no difference.
func (d Difference) Empty() bool {
	return len(d.Missing) == 0 && len(d.Repeated) == 0 && len(d.Unexpected) == 0
}

func (d Difference) String() string {
	return fmt.Sprintf("missing %s; repeated %s; not accepted but arrived %s",
		sample(d.Missing), sample(d.Repeated), sample(d.Unexpected))
}

// sample prints how many identities there are, and some of them: a lost batch would
// print thousands.
func sample(ids []uint64) string {
	const shown = 5
	switch {
	case len(ids) == 0:
		return "0"
	case len(ids) <= shown:
		return fmt.Sprintf("%d %v", len(ids), ids)
	}
	return fmt.Sprintf("%d, among them %v", len(ids), ids[:shown])
}
