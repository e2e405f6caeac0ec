// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/pullbatch/batcherexporter/bench/internal/measure"
	"github.com/pullbatch/batcherexporter/bench/internal/report"
	"github.com/pullbatch/batcherexporter/bench/internal/testbed"
)

// slowCall is so long that one consumer cannot keep up with ten batches a second.
const slowCall = 150 * time.Millisecond

// testbedPeers are those that the batcher is judged against.
var testbedPeers = []string{testbed.Processor.Name, testbed.ProcessorQueue.Name, testbed.Helper.Name}

func (s Settings) testbedRounds() int {
	if s.Short {
		return 1
	}
	return 3
}

func (s Settings) testbedFor() time.Duration {
	if s.Short {
		return 4 * time.Second
	}
	return 15 * time.Second
}

func (s Settings) testbedSubjects() []testbed.Subject {
	if s.Short {
		return []testbed.Subject{testbed.NoneQueue, testbed.ProcessorQueue, testbed.Helper, testbed.Batcher, testbed.BatcherMerging}
	}
	return []testbed.Subject{
		testbed.None, testbed.NoneQueue, testbed.Processor, testbed.ProcessorQueue,
		testbed.Helper, testbed.Batcher, testbed.BatcherMerging,
	}
}

func (s Settings) testbedChains() []testbed.Chain {
	if s.Short {
		return []testbed.Chain{testbed.NoProcessors, testbed.Heavy}
	}
	return []testbed.Chain{testbed.NoProcessors, testbed.Transform, testbed.Heavy}
}

func (s Settings) testbedConsumers() []int {
	if s.Short {
		return []int{1, 10}
	}
	return []int{1, 2, 10, 50}
}

// testbedTable is what a whole collector takes, seen from outside.
func testbedTable(ctx context.Context, s Settings) (report.Section, error) {
	sec := report.Section{Title: "Testbed"}
	if s.Collector == "" {
		sec.Note = "Left out, since there was no collector to measure: `-collector` names one, and `make bench` builds it."
		s.Log("testbed: left out, there is no -collector")
		return sec, nil
	}
	sec.Note = s.testbedNote()
	if err := s.testbedMatrix(ctx, &sec); err != nil {
		return sec, err
	}
	err := s.testbedSlow(ctx, &sec)
	return sec, err
}

func (s Settings) testbedNote() string {
	figures := fmt.Sprintf("Figures are the median of %d runs, subjects in turn, and how far the others are from it.", s.testbedRounds())
	if s.testbedRounds() == 1 {
		figures = "Each figure is of one run."
	}
	return fmt.Sprintf("A collector as a child process gets 10,000 log records per second over OTLP/gRPC in requests of %d for %s, and sends them to a backend over OTLP/gRPC "+
		"with gzip. Load, backend and collector share the cores of the machine. "+
		"`none` is the OTLP exporter without a queue, `none+queue` with one; `bp` and `bp+queue` have the batch processor in front of it; `ehb` has `sending_queue::batch`; "+
		"`batcher` wraps it, with `merge_resources: false`, and `batcher merging` with its default. Batches are of %d items, which take %s to fill, with a timeout of 1s; "+
		"queues hold a million items and have 10 consumers. The batch processor comes after filters and before transforms, where it saves most. "+
		"CPU (in percent of a core, the maximum of one second) and RSS (in MiB) are those of the collector while the load lasts; CPU per record is up to its stop, and with it "+
		"what is still to be done for the backlog. A request takes from the call to the reply; "+
		"delivery is from sending a record to its arrival at the backend; both in ms. %s", rateItems, s.testbedFor(), testbed.BatchItems, rateFill, figures)
}

// runCells measures cells in turn, each under its name.
func (s Settings) runCells(ctx context.Context, names []string, cells map[string]testbed.Cell) (measure.Series, error) {
	bed := testbed.Bed{Collector: s.Collector, Load: testbed.Load{Items: rateItems, Every: rateEvery, For: s.testbedFor()}}
	series, err := measure.RunWarm(s.testbedRounds(), names, func(name string) (measure.Result, error) {
		began := time.Now()
		r, err := bed.Run(ctx, cells[name])
		s.Log("testbed, %s, %s: %.1f s", cells[name].Chain.Name, name, time.Since(began).Seconds())
		return r, err
	})
	return series.Spread(), err
}

// testbedMatrix compares all subjects behind each chain of processors.
func (s Settings) testbedMatrix(ctx context.Context, sec *report.Section) error {
	chart := report.Chart{File: "testbed.svg", Title: "CPU of the collector at 10,000 records per second", Y: "% of a core"}
	bars := map[string]*report.Line{}
	var all []string
	for _, subject := range s.testbedSubjects() {
		all = append(all, subject.Name)
	}
	for _, chain := range s.testbedChains() {
		cells := map[string]testbed.Cell{}
		for _, subject := range s.testbedSubjects() {
			cells[subject.Name] = testbed.Cell{Subject: subject, Chain: chain}
		}
		series, err := s.runCells(ctx, all, cells)
		if err != nil {
			return fmt.Errorf("%s: %w", chain.Name, err)
		}
		sec.Tables = append(sec.Tables, testbedFigures(chain.Name, series))
		judgeTestbed(sec, chain.Name, series)
		chart.Names = append(chart.Names, chain.Name)
		for _, name := range all {
			addBar(bars, name, series.Of(name, measure.CPUPercent).Center)
		}
	}
	for _, name := range all {
		chart.Series = append(chart.Series, *bars[name])
	}
	sec.Charts = []report.Chart{chart}
	return nil
}

// column is a figure and what it is called.
type column struct {
	head   string
	metric measure.Metric
}

var testbedColumns = []column{
	{"CPU avg %", measure.CPUPercent},
	{"CPU max %", testbed.CPUMax},
	{"CPU µs per record", testbed.CPURecord},
	{"RSS avg", testbed.RSSAvg},
	{"RSS max", testbed.RSSMax},
	{"sent", testbed.Records},
	{"refused", testbed.Refused},
	{"received", testbed.Received},
	{"backlog", testbed.Backlog},
	{"batches", measure.Batches},
	{"items per batch", measure.Fill},
	{"request p50", testbed.RequestP50},
	{"request p99", testbed.RequestP99},
	{"delivery p50", measure.P50},
	{"delivery p99", measure.P99},
}

func testbedFigures(title string, series measure.Series) *report.Table {
	t := &report.Table{Title: title, Head: []string{"subject"}}
	addColumns(t, testbedColumns)
	for _, name := range series.Names {
		t.Add(append([]string{name}, cellsOf(series, name, testbedColumns)...)...)
	}
	return t
}

func addColumns(t *report.Table, columns []column) {
	for _, c := range columns {
		t.Head = append(t.Head, c.head)
	}
}

func cellsOf(series measure.Series, name string, columns []column) []string {
	cells := make([]string, 0, len(columns))
	for _, c := range columns {
		e := series.Of(name, c.metric)
		if math.IsInf(e.Hi, 0) { // a single run
			e = measure.Exact(e.Center)
		}
		cells = append(cells, e.String())
	}
	return cells
}

// judgeTestbed judges the CPU of a record, not that of the period: who is behind
// when the load ends has used less. The latency has no limit of its own here, since
// a batch is encoded, compressed and decoded on its way.
func judgeTestbed(sec *report.Section, chain string, series measure.Series) {
	best := series.Best(testbed.CPURecord, testbedPeers...)
	for _, name := range []string{testbed.Batcher.Name, testbed.BatcherMerging.Name} {
		what := fmt.Sprintf("%s, CPU of %s × best batching peer (%s)", chain, name, best)
		sec.Judge("testbed", what, 1, series.Ratio(name, best, testbed.CPURecord))
	}
}

var slowColumns = []column{
	{"received in time", testbed.InTime},
	{"backlog", testbed.Backlog},
	{"items per batch", measure.Fill},
	{"delivery p50", measure.P50},
	{"delivery p99", measure.P99},
	{"CPU avg %", measure.CPUPercent},
}

// testbedSlow is the effect of `num_consumers` before a slow backend.
func (s Settings) testbedSlow(ctx context.Context, sec *report.Section) error {
	t := &report.Table{
		Title: fmt.Sprintf("A backend that takes %s per call: received while the load lasts, and the backlog at its end", slowCall),
		Head:  []string{"num_consumers", "subject"},
	}
	addColumns(t, slowColumns)
	for _, n := range s.testbedConsumers() {
		var names []string
		cells := map[string]testbed.Cell{}
		for _, subject := range []testbed.Subject{testbed.Helper, testbed.Batcher} {
			names = append(names, subject.Name)
			cells[subject.Name] = testbed.Cell{Subject: subject, Chain: testbed.NoProcessors, Consumers: n, Delay: slowCall}
		}
		series, err := s.runCells(ctx, names, cells)
		if err != nil {
			return fmt.Errorf("%d consumers: %w", n, err)
		}
		for _, name := range names {
			t.Add(append([]string{strconv.Itoa(n), name}, cellsOf(series, name, slowColumns)...)...)
		}
	}
	sec.Tables = append(sec.Tables, t)
	return nil
}
