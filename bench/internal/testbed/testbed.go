// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package testbed measures a built collector from outside, as the testbed of
// opentelemetry-collector-contrib does: the collector is a child process, and this
// one sends it a steady load over OTLP and is its backend.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pullbatch/batcherexporter/bench/internal/measure"
)

const sampleEvery = time.Second

// The values of a result that it has no field for.
const (
	cpuMax     = "CPU max"
	cpuRecord  = "CPU per record"
	rssAvg     = "RSS avg"
	rssMax     = "RSS max"
	sent       = "sent"
	refused    = "refused"
	received   = "received"
	inTime     = "in time"
	backlog    = "backlog"
	requestP50 = "request p50"
	requestP99 = "request p99"
)

// The figures that read them.
var (
	CPUMax     = measure.Value(cpuMax)     // percent of a core
	CPURecord  = measure.Value(cpuRecord)  // µs for each record, until the last is delivered and the collector has stopped
	RSSAvg     = measure.Value(rssAvg)     // MiB
	RSSMax     = measure.Value(rssMax)     // MiB
	Records    = measure.Value(sent)       // by the load
	Refused    = measure.Value(refused)    // of those, by a reply that is an error
	Received   = measure.Value(received)   // by the backend, in all
	InTime     = measure.Value(inTime)     // by the backend, before the load ended
	Backlog    = measure.Value(backlog)    // accepted, but not received when the load ended
	RequestP50 = measure.Value(requestP50) // ms, from the call of the load to its reply
	RequestP99 = measure.Value(requestP99)
)

// Bed is what cells are run in.
type Bed struct {
	Collector string // path of the binary
	Load      Load
}

// period is what was seen while the load lasted.
type period struct {
	usage  Usage
	inTime int
	sent   Sent
}

// Run measures one cell. CPU and memory are those of the collector while the load
// lasts; P50 and P99 are from the stamp of a record to its arrival at the backend.
// A run in which not every accepted record arrives is an error.
func (b Bed) Run(ctx context.Context, cell Cell) (measure.Result, error) {
	backend, err := Listen(cell.Delay)
	if err != nil {
		return measure.Result{}, err
	}
	defer backend.Close()
	measure.Quiet()() // what this process has left behind is not collected during the run
	collector, err := StartCollector(ctx, b.Collector, cell.Config(backend.Address()))
	if err != nil {
		return measure.Result{}, err
	}
	defer collector.Kill()
	p, err := b.load(ctx, collector, backend)
	if err := errors.Join(err, collector.Stop(ctx)); err != nil {
		return measure.Result{}, err
	}
	backend.Close()
	r, err := p.result(backend)
	if err == nil {
		cpu := collector.CPU() - p.usage.CPUBefore
		r.Values[cpuRecord] = float64(cpu.Microseconds()) / float64(max(r.Items, 1))
	}
	return r, err
}

// load sends the load and watches the collector until its last request was sent.
func (b Bed) load(ctx context.Context, c *Collector, backend *Backend) (period, error) {
	address, err := c.Address()
	if err != nil {
		return period{}, err
	}
	ctx, cancel := c.WhileAlive(ctx)
	defer cancel()
	sampler, err := Watch(c.PID(), sampleEvery)
	if err != nil {
		return period{}, err
	}
	sending, err := b.Load.Send(ctx, address)
	arrived := backend.Received()
	usage, watchErr := sampler.Stop()
	if err := errors.Join(err, watchErr); err != nil {
		return period{}, err
	}
	came, err := sending.Wait()
	return period{usage, arrived, came}, err
}

func (p period) result(backend *Backend) (measure.Result, error) {
	latencies := backend.Latencies()
	accepted, arrived := p.sent.Records-p.sent.Refused, len(latencies)
	if accepted != arrived {
		return measure.Result{}, errors.Join(fmt.Errorf("%d of %d accepted records arrived, and %d were refused", arrived, accepted, p.sent.Refused), p.sent.Err)
	}
	return measure.Result{
		Usage:   measure.Usage{CPU: p.usage.CPU, Wall: p.usage.Wall},
		Items:   arrived,
		Batches: backend.Calls(),
		P50:     measure.Quantile(latencies, 0.5),
		P99:     measure.Quantile(latencies, 0.99),
		Values: map[string]float64{
			cpuMax: p.usage.CPUMax, rssAvg: p.usage.RSSAvg, rssMax: p.usage.RSSMax,
			sent: float64(p.sent.Records), refused: float64(p.sent.Refused), received: float64(arrived),
			inTime: float64(p.inTime), backlog: float64(accepted - p.inTime),
			requestP50: measure.Quantile(p.sent.Latencies, 0.5), requestP99: measure.Quantile(p.sent.Latencies, 0.99),
		},
	}, nil
}
