// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import (
	"sync"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/xpdata/pref"
)

// Logs is the signal whose items are log records.
func Logs() Signal[plog.Logs] {
	return signal[plog.Logs, plog.ResourceLogsSlice, plog.ResourceLogs, plog.ScopeLogsSlice, plog.ScopeLogs]{logs{}, &sync.Pool{}}
}

type logs struct{}

var logSizer = &plog.ProtoMarshaler{}

func (logs) Items(data plog.Logs) int       { return data.LogRecordCount() }
func (logs) Bytes(data plog.Logs) int       { return logSizer.LogsSize(data) }
func (logs) IsReadOnly(data plog.Logs) bool { return data.IsReadOnly() }
func (logs) Ref(data plog.Logs)             { pref.RefLogs(data) }
func (logs) Unref(data plog.Logs)           { pref.UnrefLogs(data) }

func (logs) Clone(data plog.Logs) plog.Logs {
	clone := plog.NewLogs()
	data.CopyTo(clone)
	return clone
}

func (logs) Remainder(err error) (data plog.Logs, ok bool) {
	switch partial := err.(type) { //nolint:errorlint // the node alone
	case consumererror.Logs:
		data = partial.Data()
	case *consumererror.Logs:
		data = partial.Data()
	default:
		return data, false
	}
	return data, true
}

func (logs) newData() plog.Logs                              { return plog.NewLogs() }
func (logs) resources(data plog.Logs) plog.ResourceLogsSlice { return data.ResourceLogs() }
func (logs) scopes(r plog.ResourceLogs) plog.ScopeLogsSlice  { return r.ScopeLogs() }
func (logs) resourceSize(r plog.ResourceLogs) int            { return logSizer.ResourceLogsSize(r) }
func (logs) scopeSize(s plog.ScopeLogs) int                  { return logSizer.ScopeLogsSize(s) }

func (logs) indexScope(ix *Index, s plog.ScopeLogs) {
	addItems(ix, s.LogRecords(), logSizer.LogRecordSize)
}

func (logs) moveSpan(ix *Index, src, dst plog.ScopeLogs, part span) {
	moveShare(share{ix, ix.group(scopeLevel, part.from), part}, src.LogRecords(), dst.LogRecords())
}

func (logs) moveScope(src, dst plog.ScopeLogs) {
	appendAll(src.LogRecords(), dst.LogRecords())
}
