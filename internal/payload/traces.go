// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import (
	"sync"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata/pref"
)

// Traces is the signal whose items are spans.
func Traces() Signal[ptrace.Traces] {
	return signal[ptrace.Traces, ptrace.ResourceSpansSlice, ptrace.ResourceSpans, ptrace.ScopeSpansSlice, ptrace.ScopeSpans]{traces{}, &sync.Pool{}}
}

type traces struct{}

var spanSizer = &ptrace.ProtoMarshaler{}

func (traces) Items(data ptrace.Traces) int       { return data.SpanCount() }
func (traces) Bytes(data ptrace.Traces) int       { return spanSizer.TracesSize(data) }
func (traces) IsReadOnly(data ptrace.Traces) bool { return data.IsReadOnly() }
func (traces) Ref(data ptrace.Traces)             { pref.RefTraces(data) }
func (traces) Unref(data ptrace.Traces)           { pref.UnrefTraces(data) }

func (traces) Clone(data ptrace.Traces) ptrace.Traces {
	clone := ptrace.NewTraces()
	data.CopyTo(clone)
	return clone
}

func (traces) Remainder(err error) (data ptrace.Traces, ok bool) {
	switch partial := err.(type) { //nolint:errorlint // the node alone
	case consumererror.Traces:
		data = partial.Data()
	case *consumererror.Traces:
		data = partial.Data()
	default:
		return data, false
	}
	return data, true
}

func (traces) newData() ptrace.Traces                                 { return ptrace.NewTraces() }
func (traces) resources(data ptrace.Traces) ptrace.ResourceSpansSlice { return data.ResourceSpans() }
func (traces) scopes(r ptrace.ResourceSpans) ptrace.ScopeSpansSlice   { return r.ScopeSpans() }
func (traces) resourceSize(r ptrace.ResourceSpans) int                { return spanSizer.ResourceSpansSize(r) }

func (traces) scopeSize(s ptrace.ScopeSpans) int { return spanSizer.ScopeSpansSize(s) }

func (traces) indexScope(ix *Index, s ptrace.ScopeSpans) {
	addItems(ix, s.Spans(), spanSizer.SpanSize)
}

func (traces) moveSpan(ix *Index, src, dst ptrace.ScopeSpans, part span) {
	moveShare(share{ix, ix.group(scopeLevel, part.from), part}, src.Spans(), dst.Spans())
}

func (traces) moveScope(src, dst ptrace.ScopeSpans) {
	appendAll(src.Spans(), dst.Spans())
}
