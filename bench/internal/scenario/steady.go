// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pullbatch/batcherexporter/bench/internal/input"
	"github.com/pullbatch/batcherexporter/bench/internal/measure"
	"github.com/pullbatch/batcherexporter/bench/internal/report"
	"github.com/pullbatch/batcherexporter/bench/internal/subject"
)

func (s Settings) steadyFor() time.Duration {
	if s.Short {
		return 2 * time.Second
	}
	return 15 * time.Second
}

// steadyPairs is the fewest that have a confidence interval: a run takes long, and
// hardly differs from the next.
const steadyPairs = 6

var steadyMakers = []subject.Maker{subject.Passthrough, subject.ProcessorBare, subject.Processor, subject.ProcessorQueue, subject.Helper, subject.Batcher}

// steadyLoad is a load and what subjects are opened with for it.
type steadyLoad struct {
	pace  measure.Pace
	setup subject.Setup
}

// steady measures subjects under a steady load, in turn.
func (s Settings) steady(ctx context.Context, l steadyLoad, makers ...subject.Maker) (measure.Series, error) {
	l.pace.Requests = int(s.steadyFor() / l.pace.Every)
	known := byName(makers)
	return measure.RunWarm(min(s.Pairs, steadyPairs), names(makers), func(name string) (measure.Result, error) {
		set := l.setup
		set.Sink = &subject.Sink{}
		return measure.Paced(ctx, known[name], set, l.pace)
	})
}

const (
	trickleEvery = 50 * time.Microsecond
	trickleMax   = 2048
	trickleFlush = 5 * time.Second
)

// trickleTable is T6: single spans, and the queue that a user gets by default.
func trickleTable(ctx context.Context, s Settings) (report.Section, error) {
	sec := report.Section{Title: "Steady trickle", Note: fmt.Sprintf("One span every 50 µs for %s, batches of 2048, `flush_timeout: 5s`. CPU is in percent of a core.", s.steadyFor())}
	span := input.Spec{Signal: input.Traces, Items: 1, Total: 1, Resources: 1}.Requests()[0]
	p := measure.Pace{Template: span, Every: trickleEvery}
	set := subject.Setup{Signal: input.Traces, Max: trickleMax, Flush: trickleFlush, QueueSize: subject.Unlimited}
	series, err := s.steady(ctx, steadyLoad{p, set}, steadyMakers...)
	if err != nil {
		return sec, err
	}
	sec.Tables = append(sec.Tables, steadyFigures("Unlimited queue", steadyMakers, series))
	total := int(s.steadyFor() / trickleEvery)
	sec.Judge("T6", "batches", float64((total+trickleMax-1)/trickleMax), series.Of(batcher, measure.Batches))
	judgeOverhead(&sec, "T6", series, bp)
	err = defaultQueue(ctx, s, &sec, steadyLoad{p, set})
	return sec, err
}

// defaultQueue is the trickle with the default `queue_size`.
func defaultQueue(ctx context.Context, s Settings, sec *report.Section, l steadyLoad) error {
	makers := []subject.Maker{subject.Helper, subject.Batcher}
	s.Pairs, l.pace.Refusals, l.setup.QueueSize = 1, true, 0
	series, err := s.steady(ctx, l, makers...)
	if err != nil {
		return err
	}
	t := &report.Table{Title: "Default queue", Head: []string{"subject", "spans refused", "batches", "spans per batch"}}
	for _, m := range makers {
		t.Add(m.Name, counted(series, m.Name, measure.Value("refused")), counted(series, m.Name, measure.Batches), counted(series, m.Name, measure.Fill))
	}
	sec.Tables = append(sec.Tables, t)
	refused := series.Of(batcher, measure.Value("refused")).Center
	sec.Judge("T6", "spans refused with the default queue", 0, measure.Exact(refused))
	return nil
}

// counted is a figure of a single run.
func counted(s measure.Series, name string, m measure.Metric) string {
	return measure.Exact(s.Of(name, m).Center).String()
}

// judgeOverhead compares the CPU of the batcher with that of a peer. The load's own
// is in both, and drops out.
func judgeOverhead(sec *report.Section, target string, s measure.Series, peer string) {
	sec.Judge(target, "CPU above that of "+peer+", % of a core", 0, s.Difference(batcher, peer, measure.CPUPercent))
}

var steadyColumns = []column{
	{"batches", measure.Batches},
	{"items per batch", measure.Fill},
	{"mutex wait ns per item", measure.MutexWaitPerItem},
	{"allocations per item", measure.AllocationsPerItem},
}

// latencyColumns are for loads that are stamped.
var latencyColumns = []column{{"p50 ms", measure.P50}, {"p99 ms", measure.P99}}

func steadyFigures(title string, makers []subject.Maker, s measure.Series, more ...column) *report.Table {
	columns := slices.Concat(steadyColumns, more)
	t := &report.Table{Title: title, Head: []string{"subject", "CPU %", "CPU over passthrough %"}}
	addColumns(t, columns)
	for _, m := range makers {
		over := s.Difference(m.Name, subject.Passthrough.Name, measure.CPUPercent)
		t.Add(slices.Concat([]string{m.Name, s.Of(m.Name, measure.CPUPercent).String(), over.String()}, cellsOf(s, m.Name, columns))...)
	}
	return t
}

const (
	rateEvery = time.Millisecond
	rateItems = 10
	rateMax   = 1000
	rateFill  = rateMax / rateItems * rateEvery
)

// rateTable is T7: 10,000 logs per second in requests of ten.
func rateTable(ctx context.Context, s Settings) (report.Section, error) {
	sec := report.Section{Title: "10,000 logs per second", Note: fmt.Sprintf("Requests of 10 for %s, batches of 1000, which take 100 ms to fill. "+
		"Latency is from Consume to the sink.", s.steadyFor())}
	request := input.Spec{Signal: input.Logs, Items: rateItems, Total: rateItems, Resources: 1}.Requests()[0]
	p := measure.Pace{Template: request, Every: rateEvery, Stamped: true}
	set := subject.Setup{Signal: input.Logs, Max: rateMax, Flush: usualFlush, QueueSize: subject.Unlimited}
	makers := append([]subject.Maker{subject.HelperQueue}, steadyMakers...)
	series, err := s.steady(ctx, steadyLoad{p, set}, makers...)
	if err != nil {
		return sec, err
	}
	sec.Tables = []*report.Table{steadyFigures("", makers, series, latencyColumns...)}
	judgeOverhead(&sec, "T7", series, series.Best(measure.CPUPercent, bp, bpQueue, ehb))
	sec.Judge("T7", "p99 ms", float64((rateFill+2*time.Millisecond)/time.Millisecond), series.Of(batcher, measure.P99))
	return sec, nil
}
