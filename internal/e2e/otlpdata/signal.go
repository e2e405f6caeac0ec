// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package otlpdata makes telemetry whose items have an identity, and counts what
// became of them: which arrived, how often, and in requests of which size.
package otlpdata

// Signal is a kind of telemetry, under the name that pipelines give it.
type Signal string

// The signals that OTLP is stable for.
const (
	Traces  Signal = "traces"
	Logs    Signal = "logs"
	Metrics Signal = "metrics"
)

// Signals returns every signal, in the order in which reports list them.
func Signals() []Signal { return []Signal{Traces, Logs, Metrics} }

// Range is the run of Items identities that begins at First: the items of one
// request, without the request.
type Range struct {
	First uint64
	Items int
	// BodyBytes is the size of the body of each log record; 0 for a short one.
	BodyBytes int
	// Alike gives all log records the same body, of which compression leaves next to
	// nothing. Otherwise it leaves about half.
	Alike bool
}
