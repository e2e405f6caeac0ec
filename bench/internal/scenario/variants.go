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
	sec := report.Section{Title: "Other signals", Note: "Spans and data points in batches of 8192, one producer."}
	cpu := panel(variants).figures("CPU ns per item", "signal, items", measure.CPUPerItem, floor, ehb, bp)
	sizes := requestSizes
	if s.Short {
		sizes = []int{10, 100}
	}
	for _, signal := range []input.Signal{input.Traces, input.Metrics} {
		for _, size := range sizes {
			spec := s.logs(size, 1)
			spec.Signal = signal
			row := fmt.Sprintf("%s, %d", signal, size)
			series, err := s.compare(ctx, cell{name: row, input: spec, max: usualMax, producers: 1}, variants...)
			if err != nil {
				return sec, err
			}
			cpu.add(row, series)
		}
	}
	sec.Tables = []*report.Table{cpu.table}
	return sec, nil
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
