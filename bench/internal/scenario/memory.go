// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/pullbatch/batcherexporter/bench/internal/input"
	"github.com/pullbatch/batcherexporter/bench/internal/measure"
	"github.com/pullbatch/batcherexporter/bench/internal/report"
	"github.com/pullbatch/batcherexporter/bench/internal/subject"
)

var (
	bp, bpQueue, bpBare = subject.Processor.Name, subject.ProcessorQueue.Name, subject.ProcessorBare.Name
	ehb, batcher, floor = subject.Helper.Name, subject.Batcher.Name, subject.Floor.Name

	byItems = []subject.Maker{
		subject.Passthrough, subject.Floor, subject.ProcessorBare, subject.Processor, subject.ProcessorQueue, subject.Helper, subject.Batcher,
	}
	byItemsShort = []subject.Maker{subject.Floor, subject.Processor, subject.Helper, subject.Batcher}
	byBytes      = []subject.Maker{subject.Floor, subject.Helper, subject.Batcher}
)

// totalItems is how much is put through per run: more for larger requests, of
// which each item costs less. It takes the batcher more than six milliseconds, next to
// which the quarter of one for its start and its stop is little.
var totalItems = map[int]int{1: 3 * usualMax, 10: 20 * usualMax, 100: 60 * usualMax, 1000: 96 * usualMax}

// shortItems bounds that in the short form.
const shortItems = 48 * usualMax

// turns makes as many pairs as give sure figures: see measure.Turns.
func (s Settings) turns() measure.Turns {
	return measure.Turns{Pairs: s.Pairs, CPU: time.Duration(s.Pairs) * 16 * time.Millisecond}
}

var requestSizes = []int{1, 10, 100, 1000}

func (s Settings) producers() []int {
	if s.Short {
		return []int{1, 8}
	}
	return []int{1, 8, 64}
}

func (s Settings) logs(items, resources int) input.Spec {
	total := totalItems[items]
	if s.Short {
		total = min(total, shortItems)
	}
	return input.Spec{Signal: input.Logs, Items: items, Total: s.Scale * total, Resources: resources}
}

// itemsTable is T1: what an item costs in memory, by items, without merging.
func itemsTable(ctx context.Context, s Settings) (report.Section, error) {
	sec := report.Section{Title: "In memory, batches by items", Note: "Logs in batches of 8192, `merge_resources: false`. " +
		"Where a run is short, there are as many pairs as take the batcher " + s.turns().CPU.String() + " of CPU time; so it is in all tables that tell CPU per item."}
	makers, peers := byItems, []string{floor, ehb, bp, bpBare}
	if s.Short {
		makers, peers = byItemsShort, peers[:3]
	} else {
		sec.Note += " `bp` hands over to the bare sink and is no product; it is not a peer in the verdicts."
	}
	cpu := panel(makers).figures("CPU ns per item", "items × producers", measure.CPUPerItem, peers...)
	allocs := panel(makers).figures("Allocations per item", "items × producers", measure.AllocationsPerItem)
	bytes := panel(makers).figures("Bytes allocated per item", "items × producers", measure.BytesPerItem)
	fill := panel(makers).figures("Items per batch", "items × producers", measure.Fill)
	chart := report.Chart{File: "items.svg", Title: "CPU per item, one producer, batches of 8192", X: "items per request", Y: "ns"}
	lines := map[string]*report.Line{}
	for _, producers := range s.producers() {
		for _, size := range requestSizes {
			c := cell{name: fmt.Sprintf("items-%d-producers-%d", size, producers), input: s.logs(size, 1), max: usualMax, producers: producers}
			series, err := s.compare(ctx, c, makers...)
			if err != nil {
				return sec, err
			}
			row := fmt.Sprintf("%d × %d", size, producers)
			for _, f := range []*figures{cpu, allocs, bytes, fill} {
				f.add(row, series)
			}
			judgeItems(&sec, row, size, series)
			if producers == 1 {
				addPoints(lines, makers, size, series)
			}
		}
	}
	sec.Tables = []*report.Table{cpu.table, allocs.table, bytes.table, fill.table}
	for _, m := range makers {
		chart.Series = append(chart.Series, *lines[m.Name])
	}
	sec.Charts = []report.Chart{chart}
	err := judgeAllocations(ctx, s, &sec)
	return sec, err
}

func addPoints(lines map[string]*report.Line, makers []subject.Maker, x int, s measure.Series) {
	for _, m := range makers {
		l := lines[m.Name]
		if l == nil {
			l = &report.Line{Name: m.Name}
			lines[m.Name] = l
		}
		l.X = append(l.X, float64(x))
		l.Y = append(l.Y, s.Of(m.Name, measure.CPUPerItem).Center)
	}
}

func judgeItems(sec *report.Section, row string, size int, s measure.Series) {
	best := s.Best(measure.CPUPerItem, bp, bpQueue, ehb)
	sec.Judge("T1", row+", CPU × best peer ("+best+")", 0.75, s.Ratio(batcher, best, measure.CPUPerItem))
	if size <= uncutSize {
		sec.Judge("T1", row+", CPU × floor", 2.5, s.Ratio(batcher, floor, measure.CPUPerItem))
	}
}

// uncutSize is up to which size of requests the floor is a measure: of those of
// 1000 every eighth is cut, which the floor never does.
const uncutSize = 100

// uncutMax is a size of batches that no request has to be cut for.
const uncutMax = 8000

// judgeAllocations has batches of whole requests: each record that a cut moves
// costs an allocation in the library.
func judgeAllocations(ctx context.Context, s Settings, sec *report.Section) error {
	for _, size := range requestSizes {
		spec := s.logs(size, 1)
		spec.Total = spec.Total / uncutMax * uncutMax
		c := cell{name: fmt.Sprintf("uncut-%d", size), input: spec, max: uncutMax, producers: 1}
		// No more pairs than that: allocations are counted, and hardly differ.
		series, err := s.compareIn(ctx, measure.Turns{Pairs: s.Pairs}, c, subject.Batcher)
		if err != nil {
			return err
		}
		allocations := scaled(series.Of(batcher, measure.AllocationsPerItem), float64(size))
		sec.Judge("T1", fmt.Sprintf("%d × 1, allocations per request, nothing cut", size), 1, allocations)
	}
	return nil
}

func scaled(e measure.Estimate, by float64) measure.Estimate {
	return measure.Estimate{Center: e.Center * by, Lo: e.Lo * by, Hi: e.Hi * by}
}

// bytesTable is T2: the same with batches by bytes.
func bytesTable(ctx context.Context, s Settings) (report.Section, error) {
	sec := report.Section{Title: "In memory, batches by bytes", Note: "Logs in batches of 1 MiB. The floor computes the size of each request too."}
	cpu := panel(byBytes).figures("CPU ns per item", "items × producers", measure.CPUPerItem, floor, ehb)
	allocs := panel(byBytes).figures("Allocations per item", "items × producers", measure.AllocationsPerItem)
	fill := panel(byBytes).figures("Items per batch", "items × producers", measure.Fill)
	for _, producers := range s.producers() {
		for _, size := range requestSizes {
			spec := s.logs(size, 1)
			spec.Total /= 2 // each item costs several times as much
			c := cell{name: fmt.Sprintf("bytes-%d-producers-%d", size, producers), input: spec, max: 1 << 20, inBytes: true, producers: producers}
			series, err := s.compare(ctx, c, byBytes...)
			if err != nil {
				return sec, err
			}
			row := fmt.Sprintf("%d × %d", size, producers)
			for _, f := range []*figures{cpu, allocs, fill} {
				f.add(row, series)
			}
			limit := 1.5
			if size == 1 && producers == 1 {
				limit = 1.8
			}
			sec.Judge("T2", row+", CPU × floor", limit, series.Ratio(batcher, floor, measure.CPUPerItem))
		}
	}
	sec.Tables = []*report.Table{cpu.table, allocs.table, fill.table}
	return sec, nil
}

// contentionTable is T5: many producers.
func contentionTable(ctx context.Context, s Settings) (report.Section, error) {
	makers := []subject.Maker{subject.Floor, subject.Processor, subject.Helper, subject.Batcher}
	sec := report.Section{Title: "Contention", Note: "Logs in requests of 10 and batches of 8192, from more and more producers."}
	wait := panel(makers).figures("Mutex wait per item, ns", "producers", measure.MutexWaitPerItem)
	wall := panel(makers).figures("Wall per item, ns", "producers", measure.WallPerItem, ehb, bp)
	var one measure.Series
	for _, producers := range []int{1, 8, 64} {
		c := cell{name: fmt.Sprintf("contention-%d", producers), input: s.logs(10, 1), max: usualMax, producers: producers}
		series, err := s.compare(ctx, c, makers...)
		if err != nil {
			return sec, err
		}
		row := strconv.Itoa(producers)
		wait.add(row, series)
		wall.add(row, series)
		if producers == 1 {
			one = series
		}
		judgeContention(&sec, producers, one, series)
	}
	sec.Tables = []*report.Table{wait.table, wall.table}
	return sec, nil
}

func judgeContention(sec *report.Section, producers int, one, s measure.Series) {
	row := fmt.Sprintf("%d producers, ", producers)
	best := s.Best(measure.WallPerItem, bp, ehb)
	sec.Judge("T5", row+"wall × best peer ("+best+")", 1, s.Ratio(batcher, best, measure.WallPerItem))
	if producers == 1 {
		return
	}
	sec.Judge("T5", row+"wall × that of one", 1.2, measure.RatioOfSeries(s, one, batcher, measure.WallPerItem))
	limit := max(80, 2*s.Of(floor, measure.MutexWaitPerItem).Center)
	sec.Judge("T5", row+"mutex wait per item, ns", limit, s.Of(batcher, measure.MutexWaitPerItem))
}
