// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package scenario has the comparisons, each of which is a section of the report.
package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/pullbatch/batcherexporter/bench/internal/input"
	"github.com/pullbatch/batcherexporter/bench/internal/measure"
	"github.com/pullbatch/batcherexporter/bench/internal/report"
	"github.com/pullbatch/batcherexporter/bench/internal/subject"
)

// Settings are how thoroughly to measure.
type Settings struct {
	Pairs int
	Short bool
	Scale int // how many times the usual input

	// Collector is the path of the collector of the testbed; "": there is none.
	Collector string

	// Profile starts a CPU profile of one region; nil: none.
	Profile func(name string) (stop func())
	Log     func(format string, args ...any)
}

// Scenario is one comparison.
type Scenario struct {
	Name string
	Run  func(context.Context, Settings) (report.Section, error)
}

// All are the comparisons, in the order of the report.
func All() []Scenario {
	return []Scenario{
		{"items", itemsTable},
		{"contention", contentionTable},
		{"split", splitTable},
		{"wire", wireTable},
		{"oversize", oversizeTable},
		{"overflow", overflowTable},
		{"bytes", bytesTable},
		{"compressed", compressedTable},
		{"trickle", trickleTable},
		{"rate", rateTable},
		{"merging", mergingTable},
		{"signals", signalsTable},
		{"sizes", sizesTable},
		{"testbed", testbedTable},
	}
}

const (
	usualMax   = 8192
	usualFlush = time.Second // longer than any table takes to fill a batch
)

// cell is one combination that subjects are compared in.
type cell struct {
	name      string
	input     input.Spec
	max       int
	inBytes   bool
	merge     bool
	producers int
	sink      func() *subject.Sink // nil: one that only counts
}

// names are those of makers.
func names(makers []subject.Maker) []string {
	all := make([]string, 0, len(makers))
	for _, m := range makers {
		all = append(all, m.Name)
	}
	return all
}

func byName(makers []subject.Maker) map[string]subject.Maker {
	all := map[string]subject.Maker{}
	for _, m := range makers {
		all[m.Name] = m
	}
	return all
}

// compare measures subjects in a cell, in turn.
func (s Settings) compare(ctx context.Context, c cell, makers ...subject.Maker) (measure.Series, error) {
	return s.compareIn(ctx, s.turns(), c, makers...)
}

func (s Settings) compareIn(ctx context.Context, t measure.Turns, c cell, makers ...subject.Maker) (measure.Series, error) {
	began := time.Now()
	supply, known := c.input.Supply(), byName(makers)
	series, err := t.Run(names(makers), func(name string) (measure.Result, error) {
		load := measure.Load{Requests: supply.New, Items: c.input.Total, Producers: c.producers}
		if s.Profile != nil && name == subject.Batcher.Name {
			load.Profile = func() func() { return s.Profile(c.name) }
		}
		return measure.Through(ctx, known[name], c.setup(), load)
	})
	if err != nil {
		return series, fmt.Errorf("%s: %w", c.name, err)
	}
	s.Log("%s: %.1f s", c.name, time.Since(began).Seconds())
	return series, nil
}

func (c cell) setup() subject.Setup {
	sink := &subject.Sink{}
	if c.sink != nil {
		sink = c.sink()
	}
	return subject.Setup{
		Signal: c.input.Signal, Sink: sink,
		Max: c.max, InBytes: c.inBytes, Flush: usualFlush, Merge: c.merge, QueueSize: subject.Unlimited,
	}
}

// figures is a table with a row for each cell and a column for each subject.
type figures struct {
	table   *report.Table
	metric  measure.Metric
	makers  []subject.Maker
	compare []string // subjects whose ratio to the batcher is told
}

// panel is subjects that a table has columns for.
type panel []subject.Maker

func (p panel) figures(title, rows string, m measure.Metric, compare ...string) *figures {
	f := &figures{&report.Table{Title: title, Head: append([]string{rows}, names(p)...)}, m, p, compare}
	for _, name := range compare {
		f.table.Head = append(f.table.Head, "batcher / "+name)
	}
	return f
}

func (f *figures) add(row string, s measure.Series) {
	cells := []string{row}
	for _, m := range f.makers {
		cells = append(cells, s.Of(m.Name, f.metric).String())
	}
	for _, name := range f.compare {
		cells = append(cells, s.Ratio(subject.Batcher.Name, name, f.metric).String())
	}
	f.table.Add(cells...)
}
