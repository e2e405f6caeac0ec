// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payloadtest // import "github.com/pullbatch/batcherexporter/internal/payload/payloadtest"

import (
	"fmt"
	"math/rand/v2"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// SimpleTraces makes spans numbered from firstID.
func SimpleTraces(items int, firstID int64) ptrace.Traces {
	data := ptrace.NewTraces()
	r := data.ResourceSpans().AppendEmpty()
	simpleResource(r.Resource())
	s := r.ScopeSpans().AppendEmpty()
	s.Scope().SetName("library")
	s.Spans().EnsureCapacity(items)
	for i := range items {
		span := s.Spans().AppendEmpty()
		span.SetName("GET /a/route/of/usual/length")
		span.SetKind(ptrace.SpanKindServer)
		span.SetStartTimestamp(1_700_000_000_000_000_000)
		span.SetEndTimestamp(1_700_000_000_100_000_000)
		span.Attributes().PutInt(idKey, firstID+int64(i))
		span.Attributes().PutStr("http.request.method", "GET")
	}
	return data
}

// RandomTraces makes spans numbered from firstID.
func RandomTraces(rnd *rand.Rand, items int, firstID int64) ptrace.Traces {
	data := ptrace.NewTraces()
	for _, n := range split(rnd, items, 1+rnd.IntN(4)) {
		r := data.ResourceSpans().AppendEmpty()
		r.SetSchemaUrl(randomResource(rnd, r.Resource()))
		for _, n := range split(rnd, n, rnd.IntN(3)+1) {
			s := r.ScopeSpans().AppendEmpty()
			s.SetSchemaUrl(randomScope(rnd, s.Scope()))
			for range n {
				randomSpan(rnd, s.Spans().AppendEmpty(), firstID)
				firstID++
			}
		}
	}
	return data
}

func randomSpan(rnd *rand.Rand, span ptrace.Span, id int64) {
	span.Attributes().PutInt(idKey, id)
	randomAttributes(rnd, span.Attributes(), 1+rnd.IntN(6))
	span.SetName(randomText(rnd, 30))
	span.SetKind(ptrace.SpanKind(rnd.IntN(6)))
	span.SetStartTimestamp(randomTime(rnd))
	span.SetEndTimestamp(randomTime(rnd))
	span.SetTraceID(randomTraceID(rnd))
	span.SetSpanID(randomSpanID(rnd))
	span.SetParentSpanID(randomSpanID(rnd))
	span.SetFlags(rnd.Uint32N(256))
	span.SetDroppedAttributesCount(rnd.Uint32N(2))
	span.SetDroppedEventsCount(rnd.Uint32N(2))
	span.SetDroppedLinksCount(rnd.Uint32N(2))
	span.TraceState().FromRaw(randomText(rnd, 8))
	span.Status().SetCode(ptrace.StatusCode(rnd.IntN(3)))
	span.Status().SetMessage(randomText(rnd, 20))
	for range rnd.IntN(3) {
		event := span.Events().AppendEmpty()
		event.SetName(randomText(rnd, 20))
		event.SetTimestamp(randomTime(rnd))
		randomAttributes(rnd, event.Attributes(), rnd.IntN(variants))
		link := span.Links().AppendEmpty()
		link.SetTraceID(randomTraceID(rnd))
		link.SetSpanID(randomSpanID(rnd))
		randomAttributes(rnd, link.Attributes(), rnd.IntN(variants))
	}
}

// IDsTraces returns the identities of the spans.
func IDsTraces(data ptrace.Traces) []int64 {
	var ids []int64
	eachSpan(data, func(_ ptrace.ResourceSpans, _ ptrace.ScopeSpans, span ptrace.Span) {
		ids = append(ids, idOf(span.Attributes()))
	})
	return ids
}

// FlattenTraces returns a line for each span.
func FlattenTraces(data ptrace.Traces) []string {
	var lines []string
	scratch := ptrace.NewTraces()
	into := scratch.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	eachSpan(data, func(r ptrace.ResourceSpans, s ptrace.ScopeSpans, span ptrace.Span) {
		span.CopyTo(into)
		buf, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(scratch)
		lines = append(lines, fmt.Sprintf("%s %s | span %d %x",
			formatResource(r.Resource(), r.SchemaUrl()), formatScope(s.Scope(), s.SchemaUrl()), idOf(span.Attributes()), buf))
	})
	return lines
}

func eachSpan(data ptrace.Traces, f func(ptrace.ResourceSpans, ptrace.ScopeSpans, ptrace.Span)) {
	for _, r := range data.ResourceSpans().All() {
		for _, s := range r.ScopeSpans().All() {
			for _, span := range s.Spans().All() {
				f(r, s, span)
			}
		}
	}
}

// randomTraceID is empty now and then.
func randomTraceID(rnd *rand.Rand) (id pcommon.TraceID) {
	if rnd.IntN(4) > 0 {
		id[0], id[15] = byte(rnd.Uint32()), 1
	}
	return id
}

// randomSpanID is empty now and then.
func randomSpanID(rnd *rand.Rand) (id pcommon.SpanID) {
	if rnd.IntN(4) > 0 {
		id[0], id[7] = byte(rnd.Uint32()), 1
	}
	return id
}
