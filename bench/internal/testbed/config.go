// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// BatchItems is the size of a batch of every subject that batches, both the
	// least and the most.
	BatchItems = 1000

	// queueItems is more than any cell has waiting.
	queueItems = 1_000_000

	usualConsumers = 10
	flushTimeout   = time.Second
)

// Subject is a way to batch, or not to, in front of an OTLP exporter.
type Subject struct {
	Name string

	processor bool // batches in the batch processor
	queue     bool
	batch     bool // batches in the queue
	batcher   bool // has the queue and its batches in the batcher
	merge     bool // `merge_resources`
}

// The subjects. What is not said is as the exporter's defaults have it.
var (
	None           = Subject{Name: "none"}
	NoneQueue      = Subject{Name: "none+queue", queue: true}
	Processor      = Subject{Name: "bp", processor: true}
	ProcessorQueue = Subject{Name: "bp+queue", processor: true, queue: true}
	Helper         = Subject{Name: "ehb", queue: true, batch: true}
	Batcher        = Subject{Name: "batcher", queue: true, batch: true, batcher: true}
	BatcherMerging = Subject{Name: "batcher merging", queue: true, batch: true, batcher: true, merge: true}
)

// Chain is the processors of a pipeline.
type Chain struct {
	Name string

	// first come before the batch processor, rest after it. That is the order that
	// its documentation recommends, and the one in which it saves most: what comes
	// after it is called once per batch.
	first, rest []string
}

// The chains.
var (
	NoProcessors = Chain{Name: "no processors"}
	Transform    = Chain{Name: "filter, transform", first: []string{"filter"}, rest: []string{"transform"}}
	Heavy        = Chain{Name: "four heavy transforms", rest: []string{"transform/parse", "transform/redact", "transform/hash", "transform/shape"}}
)

// Cell is what one run measures.
type Cell struct {
	Subject   Subject
	Chain     Chain
	Consumers int           // of the queue; 0: as many as by default
	Delay     time.Duration // of each call at the backend
}

//go:embed processors.yaml
var processorsYAML string

// Config is the configuration of a collector that sends to the backend's address.
// Its metrics are recorded as by default, for a reader that nobody asks, on a port
// that the system chooses.
func (c Cell) Config(backend string) string {
	id, block := c.exporter(backend)
	return fmt.Sprintf(`receivers:
  otlp: {protocols: {grpc: {endpoint: "127.0.0.1:0"}}}

%s
exporters:
  %s: {%s}

service:
  telemetry:
    metrics:
      level: normal
      readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: 0}}}}]
  pipelines:
    logs: {receivers: [otlp], processors: [%s], exporters: [%s]}
`, processorsYAML, id, block, strings.Join(c.processors(), ", "), id)
}

func (c Cell) processors() []string {
	if !c.Subject.processor {
		return slices.Concat(c.Chain.first, c.Chain.rest)
	}
	return slices.Concat(c.Chain.first, []string{"batch"}, c.Chain.rest)
}

func (c Cell) exporter(backend string) (id, block string) {
	otlp := fmt.Sprintf("endpoint: %q, tls: {insecure: true}", backend)
	queue := "sending_queue: {" + c.queue() + "}"
	if c.Subject.batcher {
		return "batcher", "exporter: {otlp_grpc: {" + otlp + "}}, " + queue
	}
	return "otlp_grpc", otlp + ", " + queue
}

func (c Cell) queue() string {
	if !c.Subject.queue {
		return "enabled: false"
	}
	consumers := c.Consumers
	if consumers == 0 {
		consumers = usualConsumers
	}
	keys := fmt.Sprintf("sizer: items, queue_size: %d, num_consumers: %d", queueItems, consumers)
	if !c.Subject.batch {
		return keys
	}
	batch := fmt.Sprintf("sizer: items, min_size: %d, max_size: %d, flush_timeout: %s", BatchItems, BatchItems, flushTimeout)
	if c.Subject.batcher {
		batch += fmt.Sprintf(", merge_resources: %t", c.Subject.merge)
	}
	return keys + ", batch: {" + batch + "}"
}
