// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
	"github.com/pullbatch/batcherexporter/internal/e2e/selfmetrics"
)

// triggers are what can make a batch due, in the order in which they are printed.
var triggers = []string{"size", "timeout", "pressure", "flush", "shutdown"}

// report is what the batching collector has counted since its start.
type report struct {
	signals map[otlpdata.Signal]figures
	// The histogram of batch sizes, which does not tell signals apart.
	batches, batchedItems int
}

// figures are what the batching collector has counted of one signal.
type figures struct {
	requests  int // that the receiver accepted
	accepted  int // items in them
	refused   int // items that the receiver refused
	batches   int
	queueSize int // items that wait or are being sent
	queueRoom int
	due       map[string]int // batches, by what made them due
}

// names are how metrics name the items of a signal and its OTLP service.
var names = map[otlpdata.Signal]struct{ items, service string }{
	otlpdata.Traces:  {items: "spans", service: "TraceService"},
	otlpdata.Logs:    {items: "log_records", service: "LogsService"},
	otlpdata.Metrics: {items: "metric_points", service: "MetricsService"},
}

func readReport(s selfmetrics.Snapshot) report {
	ours := selfmetrics.Match{"exporter": "batcher"}
	r := report{
		signals:      map[otlpdata.Signal]figures{},
		batches:      s.Count("otelcol_exporter_queue_batch_send_size", ours),
		batchedItems: s.Value("otelcol_exporter_queue_batch_send_size", ours),
	}
	for _, signal := range otlpdata.Signals() {
		name := names[signal]
		ours := selfmetrics.Match{"exporter": "batcher", "data_type": string(signal)}
		f := figures{
			requests: s.Count("rpc.server.call.duration", selfmetrics.Match{
				"rpc.method": "*" + name.service + "/Export", "rpc.response.status_code": "OK",
			}),
			accepted:  s.Value("otelcol_receiver_accepted_"+name.items, nil),
			refused:   s.Value("otelcol_receiver_refused_"+name.items, nil),
			batches:   s.Value("otelcol_exporter_batcher_batches", ours),
			queueSize: s.Value("otelcol_exporter_queue_size", ours),
			queueRoom: s.Value("otelcol_exporter_queue_capacity", ours),
			due:       map[string]int{},
		}
		for _, trigger := range triggers {
			ours["trigger"] = trigger
			f.due[trigger] = s.Value("otelcol_exporter_batcher_batches", ours)
		}
		r.signals[signal] = f
	}
	return r
}

// sum adds up the signals.
func sum(all map[otlpdata.Signal]figures) figures {
	total := figures{due: map[string]int{}}
	for _, f := range all {
		total.requests += f.requests
		total.accepted += f.accepted
		total.refused += f.refused
		total.batches += f.batches
		total.queueSize += f.queueSize
		total.queueRoom += f.queueRoom
		for trigger, n := range f.due {
			total.due[trigger] += n
		}
	}
	return total
}
