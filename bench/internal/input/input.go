// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package input makes the requests that subjects are measured with. They are the
// same in every run, so that a difference is the subject's.
package input

import (
	"fmt"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Signal is a kind of telemetry.
type Signal string

// The signals that every subject supports.
const (
	Logs    Signal = "logs"
	Traces  Signal = "traces"
	Metrics Signal = "metrics"
)

// Profiles is a signal that the batch processor has not.
const Profiles Signal = "profiles"

const (
	bodyBytes     = 200
	firstUnixNano = 1_700_000_000_000_000_000
)

// AllDifferent is the number of resources of a Spec whose requests have each a
// resource of its own.
const AllDifferent = 0

// Spec describes requests.
type Spec struct {
	Signal    Signal
	Items     int // of each request, the last one excepted
	Total     int // items
	Resources int // which requests have in turn, or AllDifferent
}

// Requests returns new requests. The last is smaller if Total needs that.
func (s Spec) Requests() []any {
	all := make([]any, 0, (s.Total+s.Items-1)/s.Items)
	for first := 0; first < s.Total; first += s.Items {
		resource := len(all)
		if s.Resources != AllDifferent {
			resource %= s.Resources
		}
		all = append(all, s.Signal.request(resource, first, min(s.Items, s.Total-first)))
	}
	return all
}

func (s Signal) request(resource, first, items int) any {
	switch s {
	case Traces:
		return traces(resource, first, items)
	case Metrics:
		return metrics(resource, first, items)
	case Profiles:
		return profiles(resource, first, items)
	default:
		return logs(resource, first, items)
	}
}

func logs(resource, first, items int) plog.Logs {
	data := plog.NewLogs()
	rl := data.ResourceLogs().AppendEmpty()
	fillResource(rl.Resource(), resource)
	sl := rl.ScopeLogs().AppendEmpty()
	fillScope(sl.Scope())
	sl.LogRecords().EnsureCapacity(items)
	for i := first; i < first+items; i++ {
		r := sl.LogRecords().AppendEmpty()
		r.SetTimestamp(timestamp(i))
		r.SetSeverityNumber(plog.SeverityNumberInfo)
		r.SetSeverityText("INFO")
		r.Body().SetStr(text(i))
		fillAttributes(r.Attributes(), i)
	}
	return data
}

func traces(resource, first, items int) ptrace.Traces {
	data := ptrace.NewTraces()
	rs := data.ResourceSpans().AppendEmpty()
	fillResource(rs.Resource(), resource)
	ss := rs.ScopeSpans().AppendEmpty()
	fillScope(ss.Scope())
	ss.Spans().EnsureCapacity(items)
	for i := first; i < first+items; i++ {
		s := ss.Spans().AppendEmpty()
		s.SetTraceID(pcommon.TraceID{1, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)})
		s.SetSpanID(pcommon.SpanID{2, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)})
		s.SetName("GET /api/v1/orders")
		s.SetKind(ptrace.SpanKindServer)
		s.SetStartTimestamp(timestamp(i))
		s.SetEndTimestamp(timestamp(i + 1))
		fillAttributes(s.Attributes(), i)
	}
	return data
}

func metrics(resource, first, items int) pmetric.Metrics {
	data := pmetric.NewMetrics()
	rm := data.ResourceMetrics().AppendEmpty()
	fillResource(rm.Resource(), resource)
	sm := rm.ScopeMetrics().AppendEmpty()
	fillScope(sm.Scope())
	m := sm.Metrics().AppendEmpty()
	m.SetName("http.server.active_requests")
	m.SetUnit("{request}")
	points := m.SetEmptyGauge().DataPoints()
	points.EnsureCapacity(items)
	for i := first; i < first+items; i++ {
		p := points.AppendEmpty()
		p.SetTimestamp(timestamp(i))
		p.SetIntValue(int64(i))
		fillAttributes(p.Attributes(), i)
	}
	return data
}

func timestamp(i int) pcommon.Timestamp { return pcommon.Timestamp(firstUnixNano + i) } //nolint:gosec // i is small

func fillScope(s pcommon.InstrumentationScope) {
	s.SetName("github.com/example/shop/orders")
	s.SetVersion("1.4.2")
}

// fillResource sets twelve attributes, as a resource detector in Kubernetes does.
func fillResource(r pcommon.Resource, i int) {
	a := r.Attributes()
	a.EnsureCapacity(12)
	a.PutStr("service.name", "orders")
	a.PutStr("service.namespace", "shop")
	a.PutStr("service.version", "2026.11.3")
	a.PutStr("service.instance.id", fmt.Sprintf("627cc493-f310-47de-96bd-%012d", i))
	a.PutStr("deployment.environment.name", "production")
	a.PutStr("host.name", fmt.Sprintf("node-%06d.internal.example", i))
	a.PutStr("k8s.cluster.name", "eu-central-1-production")
	a.PutStr("k8s.namespace.name", "shop")
	a.PutStr("k8s.pod.name", fmt.Sprintf("orders-7d9c5f6b8d-%06d", i))
	a.PutStr("k8s.container.name", "orders")
	a.PutStr("telemetry.sdk.name", "opentelemetry")
	a.PutStr("telemetry.sdk.language", "go")
}

var (
	methods = []string{"GET", "POST", "PUT", "DELETE"}
	routes  = []string{"/api/v1/orders", "/api/v1/carts", "/api/v1/users", "/api/v1/prices", "/healthz"}
)

// fillAttributes sets the five attributes of an item.
func fillAttributes(a pcommon.Map, i int) {
	a.EnsureCapacity(5)
	a.PutStr("http.request.method", methods[i%len(methods)])
	a.PutStr("http.route", routes[i%len(routes)])
	a.PutInt("http.response.status_code", int64(200+i%3))
	a.PutStr("user.id", fmt.Sprintf("user-%05d", i*7919%100_000))
	a.PutDouble("duration", float64(i%977)/16)
}

var filler = strings.Repeat("the order was accepted and handed over to billing; ", 4)

// text is a body of bodyBytes bytes.
func text(i int) string {
	s := fmt.Sprintf("order %010d: ", i)
	return s + filler[:bodyBytes-len(s)]
}
