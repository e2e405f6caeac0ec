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

var variants = []subject.Maker{subject.Floor, subject.Processor, subject.Helper, subject.Batcher}

// signalsTable is the table of items for the other signals.
func signalsTable(ctx context.Context, s Settings) (report.Section, error) {
	sec := report.Section{Title: "Other signals", Note: "Spans, data points and samples of profiles in batches of 8192, one producer. " + profilesNote}
	cpu := panel(variants).figures("CPU ns per item", "signal, items", measure.CPUPerItem, floor, ehb, bp)
	for _, signal := range []input.Signal{input.Traces, input.Metrics} {
		for _, size := range s.signalSizes() {
			spec := s.logs(size, 1)
			spec.Signal = signal
			row := fmt.Sprintf("%s, %d", signal, size)
			series, err := s.compare(ctx, cell{name: row, input: spec, max: usualMax, producers: 1}, variants...)
			if err != nil {
				return sec, err
			}
			cpu.add(row, series)
			judgeSignal(&sec, row, size, series)
		}
	}
	sec.Tables = []*report.Table{cpu.table}
	err := profilesTables(ctx, s, &sec)
	return sec, err
}

func (s Settings) signalSizes() []int {
	if s.Short {
		return []int{10, 100}
	}
	return requestSizes
}

// judgeSignal holds other signals to what T1 asks for logs.
func judgeSignal(sec *report.Section, row string, size int, s measure.Series) {
	best := s.Best(measure.CPUPerItem, bp, ehb)
	sec.Judge("signals", row+", CPU × best peer ("+best+")", 0.75, s.Ratio(batcher, best, measure.CPUPerItem))
	if size <= uncutSize {
		sec.Judge("signals", row+", CPU × floor", 2.5, s.Ratio(batcher, floor, measure.CPUPerItem))
	}
}

// sizesTable is the table of items for other sizes of batches.
func sizesTable(ctx context.Context, s Settings) (report.Section, error) {
	sec := report.Section{Title: "Sizes of batches", Note: "Logs in requests of 10, one producer."}
	cpu := panel(variants).figures("CPU ns per item", "items per batch", measure.CPUPerItem, floor, ehb, bp)
	sizes := []int{512, 2048, 8192, 32768, 131_072}
	if s.Short {
		sizes = []int{512, 131_072}
	}
	for _, size := range sizes {
		spec := s.logs(10, 1)
		spec.Total = max(spec.Total, 2*size)
		series, err := s.compare(ctx, cell{name: fmt.Sprintf("batches of %d", size), input: spec, max: size, producers: 1}, variants...)
		if err != nil {
			return sec, err
		}
		cpu.add(strconv.Itoa(size), series)
	}
	sec.Tables = []*report.Table{cpu.table}
	return sec, nil
}
