// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"strconv"

	"github.com/pullbatch/batcherexporter/bench/internal/input"
	"github.com/pullbatch/batcherexporter/bench/internal/measure"
	"github.com/pullbatch/batcherexporter/bench/internal/report"
	"github.com/pullbatch/batcherexporter/bench/internal/subject"
)

const (
	splitMax      = 512
	splitMaxBytes = splitMax * 400 // about as many records
	hugeRequest   = 1_000_000
	largeRequest  = 10_000
)

// splitCell is one row of the table of splits.
type splitCell struct {
	items    int // of each request
	requests int
	bytes    bool
	makers   []subject.Maker
}

func (c splitCell) name() string {
	unit := "items"
	if c.bytes {
		unit = "bytes"
	}
	return fmt.Sprintf("split-%d-%s", c.items, unit)
}

func (c splitCell) cell() cell {
	limit := splitMax
	if c.bytes {
		limit = splitMaxBytes
	}
	spec := input.Spec{Signal: input.Logs, Items: c.items, Total: c.items * c.requests, Resources: 1}
	return cell{name: c.name(), input: spec, max: limit, inBytes: c.bytes, producers: 1}
}

// splitCells leave out what takes a peer minutes: its time grows with the square.
func (s Settings) splitCells() []splitCell {
	peers := []subject.Maker{subject.Processor, subject.Helper, subject.Batcher}
	helper := []subject.Maker{subject.Helper, subject.Batcher}
	alone := []subject.Maker{subject.Batcher}
	cells := []splitCell{
		{largeRequest, 20, false, alone},
		{62_500, 1, false, peers},
		{125_000, 1, false, peers},
		{hugeRequest, 1, false, alone},
		{largeRequest, 20, true, alone},
		{62_500, 1, true, helper},
		{hugeRequest, 1, true, alone},
	}
	if s.Short {
		cells[5].items = 31_250
	}
	return cells
}

// splitTable is T4: one request that is much larger than a batch.
func splitTable(ctx context.Context, s Settings) (report.Section, error) {
	sec := report.Section{Title: "Splitting one request", Note: "Batches of 512 logs, or of about as many bytes. " +
		"The row of 10,000 logs is twenty such requests; its times are for all of them."}
	t := &report.Table{Head: []string{"one request of", "by", "subject", "wall ms", "wall ns per item", "CPU ns per item", "allocations per item"}}
	large := map[bool]measure.Series{}
	for _, c := range s.splitCells() {
		series, err := s.compare(ctx, c.cell(), c.makers...)
		if err != nil {
			return sec, err
		}
		c.rows(t, series)
		switch c.items {
		case largeRequest:
			large[c.bytes] = series
		case hugeRequest:
			c.judge(&sec, series, large[c.bytes])
		}
	}
	sec.Tables = []*report.Table{t}
	return sec, nil
}

func (c splitCell) rows(t *report.Table, s measure.Series) {
	unit := c.cell()
	by := "items"
	if unit.inBytes {
		by = "bytes"
	}
	for _, m := range c.makers {
		t.Add(strconv.Itoa(c.items), by, m.Name, s.Of(m.Name, measure.WallMillis).String(), s.Of(m.Name, measure.WallPerItem).String(),
			s.Of(m.Name, measure.CPUPerItem).String(), s.Of(m.Name, measure.AllocationsPerItem).String())
	}
}

func (c splitCell) judge(sec *report.Section, s, large measure.Series) {
	what, limit := "1,000,000 logs by items, wall ms with all cores free", 60.0
	if c.bytes {
		what, limit = "1,000,000 logs by bytes, wall ms", 250
	}
	sec.Judge("T4", what, limit, s.Of(batcher, measure.WallMillis))
	if !c.bytes {
		sec.Judge("T4", "1,000,000 logs by items, CPU ms (what one core takes)", 110, scaled(s.Of(batcher, measure.CPUPerItem), hugeRequest/1e6))
	}
	sec.Judge("T4", c.name()+", CPU per item × that of 10,000", 1.3, measure.RatioOfSeries(s, large, batcher, measure.CPUPerItem))
	sec.Judge("T4", c.name()+", wall per item × that of 10,000", 1.3, measure.RatioOfSeries(s, large, batcher, measure.WallPerItem))
}
