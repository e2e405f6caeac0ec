// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/pullbatch/batcherexporter/bench/internal/input"
	"github.com/pullbatch/batcherexporter/bench/internal/measure"
	"github.com/pullbatch/batcherexporter/bench/internal/report"
	"github.com/pullbatch/batcherexporter/bench/internal/subject"
)

// merging is the batcher with `merge_resources`, whatever the setup says.
var merging = subject.Maker{Name: "batcher merging", Open: func(ctx context.Context, s subject.Setup) (subject.Subject, error) {
	s.Merge = true
	return subject.Batcher.Open(ctx, s)
}}

// wireSize is what data takes on the wire.
type wireSize struct{ raw, gzip, zstd float64 }

// weigh encodes and compresses data as exporters of OTLP do by default.
func weigh(data any) (wireSize, error) {
	raw, err := input.Marshal(data)
	if err != nil {
		return wireSize{}, err
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write(raw); err != nil {
		return wireSize{}, err
	}
	if err := w.Close(); err != nil {
		return wireSize{}, err
	}
	e, err := zstd.NewWriter(nil)
	if err != nil {
		return wireSize{}, err
	}
	return wireSize{float64(len(raw)), float64(zipped.Len()), float64(len(e.EncodeAll(raw, nil)))}, e.Close()
}

func (w wireSize) perItem(items int) [3]string {
	n := float64(items)
	return [3]string{fmt.Sprintf("%.0f", w.raw/n), fmt.Sprintf("%.1f", w.gzip/n), fmt.Sprintf("%.1f", w.zstd/n)}
}

// weighing is a sink that weighs all that it gets.
type weighing struct {
	subject.Sink

	mu    sync.Mutex
	total wireSize
}

func newWeighing() *weighing {
	w := &weighing{}
	w.Each = func(data any) error {
		size, err := weigh(data)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.total.raw += size.raw
		w.total.gzip += size.gzip
		w.total.zstd += size.zstd
		return err
	}
	return w
}

const wireItems = 4 * usualMax

// wireTable is T12: bytes on the wire. These are counted, not measured.
func wireTable(ctx context.Context, s Settings) (report.Section, error) {
	sec := report.Section{Title: "Bytes on the wire", Note: "Logs in batches of 8192: bytes per record as protobuf, after gzip and after zstd. " +
		"`ideal` has each resource once per batch."}
	makers := []subject.Maker{subject.Processor, subject.Helper, subject.Batcher, merging}
	t := &report.Table{Head: []string{"items × resources", "subject", "protobuf", "gzip", "zstd"}}
	chart := report.Chart{File: "wire.svg", Title: "Bytes per record, four resources, batches of 8192", X: "items per request", Y: "bytes before compression"}
	bars := map[string]*report.Line{}
	for _, resources := range []int{1, 4} {
		for _, size := range requestSizes {
			spec := input.Spec{Signal: input.Logs, Items: size, Total: wireItems, Resources: resources}
			sizes, err := weighSubjects(ctx, spec, makers)
			if err != nil {
				return sec, err
			}
			row := fmt.Sprintf("%d × %d", size, resources)
			for _, name := range append(names(makers), ideal) {
				per := sizes[name].perItem(wireItems)
				t.Add(row, name, per[0], per[1], per[2])
				if resources > 1 {
					addBar(bars, name, sizes[name].raw/wireItems)
				}
			}
			sec.Judge("T12", row+", protobuf × ideal", 1.03, measure.Exact(sizes[merging.Name].raw/sizes[ideal].raw))
		}
	}
	for _, size := range requestSizes {
		chart.Names = append(chart.Names, strconv.Itoa(size))
	}
	for _, name := range append(names(makers), ideal) {
		chart.Series = append(chart.Series, *bars[name])
	}
	s.Log("wire: done")
	sec.Tables, sec.Charts = []*report.Table{t}, []report.Chart{chart}
	return sec, nil
}

const ideal = "ideal"

func addBar(bars map[string]*report.Line, name string, v float64) {
	if bars[name] == nil {
		bars[name] = &report.Line{Name: name}
	}
	bars[name].Y = append(bars[name].Y, v)
}

// weighSubjects returns what the same data takes behind each subject, and at the
// least.
func weighSubjects(ctx context.Context, spec input.Spec, makers []subject.Maker) (map[string]wireSize, error) {
	sizes := map[string]wireSize{}
	for _, m := range makers {
		sink := newWeighing()
		set := cell{input: spec, max: usualMax}.setup()
		set.Sink = &sink.Sink
		if _, err := measure.Through(ctx, m, set, measure.Load{Requests: spec.Requests, Items: spec.Total}); err != nil {
			return nil, err
		}
		sizes[m.Name] = sink.total
	}
	one := spec
	one.Total = usualMax
	least, err := weigh(input.Ideal(one.Requests(), spec.Resources))
	n := float64(spec.Total / usualMax)
	sizes[ideal] = wireSize{least.raw * n, least.gzip * n, least.zstd * n}
	return sizes, err
}
