// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payloadtest // import "github.com/pullbatch/batcherexporter/internal/payload/payloadtest"

import (
	"fmt"
	"math/rand/v2"

	"go.opentelemetry.io/collector/pdata/plog"
)

// SimpleLogs makes log records numbered from firstID.
func SimpleLogs(items int, firstID int64) plog.Logs {
	data := plog.NewLogs()
	r := data.ResourceLogs().AppendEmpty()
	simpleResource(r.Resource())
	s := r.ScopeLogs().AppendEmpty()
	s.Scope().SetName("library")
	s.LogRecords().EnsureCapacity(items)
	for i := range items {
		rec := s.LogRecords().AppendEmpty()
		rec.SetTimestamp(1_700_000_000_000_000_000)
		rec.SetSeverityNumber(plog.SeverityNumberInfo)
		rec.Body().SetStr("a message of a length that is usual for messages")
		rec.Attributes().PutInt(idKey, firstID+int64(i))
		rec.Attributes().PutStr("http.request.method", "GET")
	}
	return data
}

// RandomLogs makes log records numbered from firstID.
func RandomLogs(rnd *rand.Rand, items int, firstID int64) plog.Logs {
	data := plog.NewLogs()
	for _, n := range split(rnd, items, 1+rnd.IntN(4)) {
		r := data.ResourceLogs().AppendEmpty()
		r.SetSchemaUrl(randomResource(rnd, r.Resource()))
		for _, n := range split(rnd, n, 1+rnd.IntN(3)) {
			s := r.ScopeLogs().AppendEmpty()
			s.SetSchemaUrl(randomScope(rnd, s.Scope()))
			for range n {
				randomRecord(rnd, s.LogRecords().AppendEmpty(), firstID)
				firstID++
			}
		}
	}
	return data
}

func randomRecord(rnd *rand.Rand, rec plog.LogRecord, id int64) {
	rec.Attributes().PutInt(idKey, id)
	randomAttributes(rnd, rec.Attributes(), 1+rnd.IntN(6))
	rec.SetTimestamp(randomTime(rnd))
	rec.SetObservedTimestamp(randomTime(rnd))
	rec.SetSeverityNumber(plog.SeverityNumber(rnd.IntN(25)))
	rec.SetSeverityText(randomText(rnd, 10))
	rec.SetEventName(randomText(rnd, 5))
	rec.SetFlags(plog.LogRecordFlags(rnd.IntN(2)))
	rec.SetDroppedAttributesCount(uint32(rnd.IntN(3)))
	rec.SetTraceID(randomTraceID(rnd))
	rec.SetSpanID(randomSpanID(rnd))
	if rnd.IntN(2) == 0 {
		rec.Body().SetStr(randomText(rnd, 400))
	} else {
		randomAttributes(rnd, rec.Body().SetEmptyMap(), rnd.IntN(variants))
	}
}

// IDsLogs returns the identities of the log records.
func IDsLogs(data plog.Logs) []int64 {
	var ids []int64
	eachRecord(data, func(_ plog.ResourceLogs, _ plog.ScopeLogs, rec plog.LogRecord) {
		ids = append(ids, idOf(rec.Attributes()))
	})
	return ids
}

// FlattenLogs returns a line for each log record.
func FlattenLogs(data plog.Logs) []string {
	var lines []string
	scratch := plog.NewLogs()
	into := scratch.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	eachRecord(data, func(r plog.ResourceLogs, s plog.ScopeLogs, rec plog.LogRecord) {
		rec.CopyTo(into)
		buf, _ := (&plog.ProtoMarshaler{}).MarshalLogs(scratch)
		lines = append(lines, fmt.Sprintf("%s %s | log %d %x",
			formatResource(r.Resource(), r.SchemaUrl()), formatScope(s.Scope(), s.SchemaUrl()), idOf(rec.Attributes()), buf))
	})
	return lines
}

func eachRecord(data plog.Logs, f func(plog.ResourceLogs, plog.ScopeLogs, plog.LogRecord)) {
	for _, r := range data.ResourceLogs().All() {
		for _, s := range r.ScopeLogs().All() {
			for _, rec := range s.LogRecords().All() {
				f(r, s, rec)
			}
		}
	}
}
