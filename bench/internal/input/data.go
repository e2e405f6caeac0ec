// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package input

import (
	"fmt"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Items is how many spans, log records, data points or samples data has.
func Items(data any) int {
	switch d := data.(type) {
	case plog.Logs:
		return d.LogRecordCount()
	case ptrace.Traces:
		return d.SpanCount()
	case pmetric.Metrics:
		return d.DataPointCount()
	case pprofile.Profiles:
		return d.SampleCount()
	}
	return 0
}

// Bytes is the size of data as an export request.
func Bytes(data any) int {
	switch d := data.(type) {
	case plog.Logs:
		return (&plog.ProtoMarshaler{}).LogsSize(d)
	case ptrace.Traces:
		return (&ptrace.ProtoMarshaler{}).TracesSize(d)
	case pmetric.Metrics:
		return (&pmetric.ProtoMarshaler{}).MetricsSize(d)
	case pprofile.Profiles:
		return (&pprofile.ProtoMarshaler{}).ProfilesSize(d)
	}
	return 0
}

// Marshal encodes data as an export request.
func Marshal(data any) ([]byte, error) {
	switch d := data.(type) {
	case plog.Logs:
		return (&plog.ProtoMarshaler{}).MarshalLogs(d)
	case ptrace.Traces:
		return (&ptrace.ProtoMarshaler{}).MarshalTraces(d)
	case pmetric.Metrics:
		return (&pmetric.ProtoMarshaler{}).MarshalMetrics(d)
	case pprofile.Profiles:
		return (&pprofile.ProtoMarshaler{}).MarshalProfiles(d)
	}
	return nil, fmt.Errorf("data of type %T is of no signal", data)
}

// Clone copies data.
func Clone(data any) any {
	switch d := data.(type) {
	case plog.Logs:
		c := plog.NewLogs()
		d.CopyTo(c)
		return c
	case ptrace.Traces:
		c := ptrace.NewTraces()
		d.CopyTo(c)
		return c
	case pmetric.Metrics:
		c := pmetric.NewMetrics()
		d.CopyTo(c)
		return c
	case pprofile.Profiles:
		c := pprofile.NewProfiles()
		d.CopyTo(c)
		return c
	}
	return nil
}

// Stamp writes a moment into the first record of a request of logs.
func Stamp(data any, moment pcommon.Timestamp) {
	logsOf(data).At(0).ScopeLogs().At(0).LogRecords().At(0).SetObservedTimestamp(moment)
}

// Stamps calls f with every moment that was written into data.
func Stamps(data any, f func(pcommon.Timestamp)) {
	for _, rl := range logsOf(data).All() {
		for _, sl := range rl.ScopeLogs().All() {
			for _, r := range sl.LogRecords().All() {
				if r.ObservedTimestamp() != 0 {
					f(r.ObservedTimestamp())
				}
			}
		}
	}
}

func logsOf(data any) plog.ResourceLogsSlice { return data.(plog.Logs).ResourceLogs() }

// Ideal is the smallest form of requests of logs that have resources in turn: each
// resource once, with all its records. The requests are emptied.
func Ideal(requests []any, resources int) plog.Logs {
	ideal := plog.NewLogs()
	for i, data := range requests {
		rl := logsOf(data).At(0)
		if i < resources {
			rl.MoveTo(ideal.ResourceLogs().AppendEmpty())
			continue
		}
		into := ideal.ResourceLogs().At(i % resources).ScopeLogs().At(0).LogRecords()
		rl.ScopeLogs().At(0).LogRecords().MoveAndAppendTo(into)
	}
	return ideal
}

// Grow makes an item of a request of one resource larger by that many bytes.
func Grow(data any, item, bytes int) {
	key, pad := "padding", string(make([]byte, bytes))
	switch d := data.(type) {
	case plog.Logs:
		d.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(item).Attributes().PutStr(key, pad)
	case ptrace.Traces:
		d.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(item).Attributes().PutStr(key, pad)
	case pmetric.Metrics:
		d.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Gauge().DataPoints().At(item).Attributes().PutStr(key, pad)
	}
}
