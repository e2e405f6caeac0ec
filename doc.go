// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package batcherexporter puts a pull-based queue and a batcher in front of any
// exporter that is compiled into the collector.
//
// What it promises, for traces, metrics, logs and profiles alike:
//
//   - A batch is formed when it can be sent, not before. Data that waits behind
//     a slow backend grows into fuller batches, and nobody holds a slot while
//     waiting for data.
//   - No batch exceeds its bounds, neither the one in items nor the one in
//     bytes, whatever made it leave: size, time, pressure, a flush or a stop.
//   - Data stays within the capacity of the queue from the moment it is accepted
//     until the wrapped exporter took it or it was counted as lost, so memory is
//     bounded by configuration however slow the backend is.
//   - Every request is settled exactly once, with the outcome of all its parts.
//     Nothing is dropped without a count, a reason and a log line.
//   - Splitting and merging keep every field of the data and the order of items,
//     and cost time in proportion to the items, not to the number of pieces.
//   - A stop sends what is queued until drain_timeout, then reports what is left.
//
// docs/design.md describes the parts and the rules that hold between them.
package batcherexporter // import "github.com/pullbatch/batcherexporter"

//go:generate internal/tools/generate.sh
