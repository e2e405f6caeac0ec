// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/pullbatch/batcherexporter/bench/internal/input"
	"github.com/pullbatch/batcherexporter/bench/internal/measure"
	"github.com/pullbatch/batcherexporter/bench/internal/report"
	"github.com/pullbatch/batcherexporter/bench/internal/subject"
)

var zippers = sync.Pool{New: func() any { return gzip.NewWriter(io.Discard) }}

// newZipping is a sink that encodes and compresses, as an exporter of OTLP over
// gRPC does, with pooled compressors.
func newZipping() *subject.Sink {
	return &subject.Sink{Each: func(data any) error {
		raw, err := input.Marshal(data)
		if err != nil {
			return err
		}
		w := zippers.Get().(*gzip.Writer)
		defer zippers.Put(w)
		w.Reset(io.Discard)
		if _, err := w.Write(raw); err != nil {
			return err
		}
		return w.Close()
	}}
}

// mix is requests of a size that have some resources in turn.
type mix struct{ size, resources int }

func (m mix) String() string {
	if m.resources == input.AllDifferent {
		return fmt.Sprintf("%d × all different", m.size)
	}
	return fmt.Sprintf("%d × %d", m.size, m.resources)
}

// compressedTable is T3: the whole path to the compressed request.
func compressedTable(ctx context.Context, s Settings) (report.Section, error) {
	makers := []subject.Maker{subject.Processor, subject.Helper, subject.Batcher, merging}
	sec := report.Section{Title: "The whole path, compressed", Note: "Logs in batches of 8192 to a sink that encodes and compresses them (gzip), as every exporter of OTLP does."}
	cpu := panel(makers).figures("CPU ns per item", "items × resources", measure.CPUPerItem)
	cpu.table.Head = append(cpu.table.Head, "merging / best peer")
	for _, m := range []mix{{1, 1}, {1, 50}, {1, input.AllDifferent}, {10, 1}, {10, 50}} {
		spec := s.logs(m.size, m.resources)
		spec.Total = s.Scale * 4 * usualMax // each item takes microseconds
		c := cell{name: "compressed " + m.String(), input: spec, max: usualMax, producers: 1, sink: newZipping}
		series, err := s.compare(ctx, c, makers...)
		if err != nil {
			return sec, err
		}
		best := series.Best(measure.CPUPerItem, bp, ehb)
		ratio := series.Ratio(merging.Name, best, measure.CPUPerItem)
		cpu.add(m.String(), series)
		row := len(cpu.table.Rows) - 1
		cpu.table.Rows[row] = append(cpu.table.Rows[row], ratio.String())
		limit := 1.0
		if m == (mix{1, 1}) {
			limit = 0.7
		}
		if m.resources != input.AllDifferent {
			sec.Judge("T3", m.String()+", CPU × best peer ("+best+")", limit, ratio)
		}
	}
	sec.Tables = []*report.Table{cpu.table}
	return sec, nil
}

// manyResources is how many there are where all are different: so many that the
// figures are not those of the first samples, in which that is found out.
const manyResources = 20 * usualMax

// mergingTable is what merging costs where there is little or nothing to merge.
func mergingTable(ctx context.Context, s Settings) (report.Section, error) {
	makers := []subject.Maker{subject.Batcher, merging}
	sec := report.Section{Title: "Merging where little repeats", Note: "Logs in batches of 8192 to a sink that only counts, so that merging can save nothing."}
	cpu := panel(makers).figures("CPU ns per item", "items × resources", measure.CPUPerItem)
	cpu.table.Head = append(cpu.table.Head, "merging / not")
	for _, m := range []mix{{1, 1}, {1, 50}, {1, input.AllDifferent}, {10, 1}, {10, 50}, {10, input.AllDifferent}} {
		spec := s.logs(m.size, m.resources)
		if m.resources == input.AllDifferent {
			spec.Total = max(spec.Total, s.Scale*manyResources*m.size)
		}
		c := cell{name: "merging " + m.String(), input: spec, max: usualMax, producers: 1}
		series, err := s.compare(ctx, c, makers...)
		if err != nil {
			return sec, err
		}
		ratio := series.Ratio(merging.Name, batcher, measure.CPUPerItem)
		cpu.add(m.String(), series)
		row := len(cpu.table.Rows) - 1
		cpu.table.Rows[row] = append(cpu.table.Rows[row], ratio.String())
		if m.resources == input.AllDifferent {
			sec.Judge("merging", m.String()+", CPU × not merging", 1.1, ratio)
		}
	}
	sec.Tables = []*report.Table{cpu.table}
	return sec, nil
}
