// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/pullbatch/batcherexporter/bench/internal/input"
	"github.com/pullbatch/batcherexporter/bench/internal/measure"
	"github.com/pullbatch/batcherexporter/bench/internal/report"
	"github.com/pullbatch/batcherexporter/bench/internal/subject"
)

const profilesNote = "Profiles have tables of their own: the batch processor does not take them, and their floor is none. " +
	"It merges dictionaries as exporterhelper does, with what the library has for that, which looks through the whole dictionary of the batch for each request. " +
	"exporterhelper never cuts a profile, so that its batches go over `max_size`, " +
	"and drops one that is above `max_size` in bytes, without an error for the caller: see the last table, where each request is one profile."

var withProfiles = []subject.Maker{subject.Floor, subject.Helper, subject.Batcher}

// profilesTotal is small, since each sample brings parts of a dictionary with it. For
// each request the peer indexes the whole dictionary of the batch, and leaves as much
// garbage: that is a gigabyte for 8192 single samples.
var profilesTotal = map[int]int{1: usualMax, 10: 2 * usualMax, 100: 4 * usualMax, 1000: 8 * usualMax}

// profilesTables is the table of items for profiles, and what becomes of the bound.
func profilesTables(ctx context.Context, s Settings, sec *report.Section) error {
	cpu := panel(withProfiles).figures("CPU ns per sample of profiles", "samples per request", measure.CPUPerItem, floor, ehb)
	for _, size := range s.signalSizes() {
		spec := input.Spec{Signal: input.Profiles, Items: size, Total: s.Scale * profilesTotal[size], Resources: 1}
		row := fmt.Sprintf("%s, %d", input.Profiles, size)
		series, err := s.compare(ctx, cell{name: row, input: spec, max: usualMax, producers: 1}, withProfiles...)
		if err != nil {
			return err
		}
		cpu.add(strconv.Itoa(size), series)
		sec.Judge("signals", row+", CPU × best peer ("+ehb+")", 0.75, series.Ratio(batcher, ehb, measure.CPUPerItem))
	}
	bounds, err := boundsTable(ctx, sec)
	sec.Tables = append(sec.Tables, cpu.table, bounds)
	return err
}

// boundCell is a load of profiles and the most that a batch may be.
type boundCell struct {
	samples int // of each request
	max     int
	inBytes bool
}

func (c boundCell) String() string {
	unit := "samples"
	if c.inBytes {
		unit = "bytes"
	}
	return fmt.Sprintf("%d, at most %d %s", c.samples, c.max, unit)
}

const boundTotal = 8000

var boundCells = []boundCell{
	{300, 1000, false},
	{boundTotal, 1000, false},
	{100, 32 << 10, true},
	{boundTotal, 32 << 10, true},
}

// bounded is what came of a load.
type bounded struct {
	mu                        sync.Mutex
	arrived, batches, largest int
}

// boundsTable is how batches of profiles keep their bound.
func boundsTable(ctx context.Context, sec *report.Section) (*report.Table, error) {
	t := &report.Table{Title: "Profiles and `max_size`", Head: []string{
		"samples per request, `max_size`", "subject", fmt.Sprintf("samples that arrive, of %d", boundTotal), "batches", "largest batch", "× `max_size`",
	}}
	for _, c := range boundCells {
		for _, m := range []subject.Maker{subject.Helper, subject.Batcher} {
			b, err := c.send(ctx, m)
			if err != nil {
				return t, err
			}
			over := float64(b.largest) / float64(c.max)
			t.Add(c.String(), m.Name, strconv.Itoa(b.arrived), strconv.Itoa(b.batches), strconv.Itoa(b.largest), fmt.Sprintf("%.2f", over))
			if m.Name == batcher {
				sec.Judge("signals", "profiles, "+c.String()+", samples lost", 0, measure.Exact(float64(boundTotal-b.arrived)))
				sec.Judge("signals", "profiles, "+c.String()+", largest batch × `max_size`", 1, measure.Exact(over))
			}
		}
	}
	return t, nil
}

// send puts the load through a subject. That samples are lost is an outcome, not an
// error.
func (c boundCell) send(ctx context.Context, m subject.Maker) (*bounded, error) {
	b := &bounded{}
	spec := input.Spec{Signal: input.Profiles, Items: c.samples, Total: boundTotal, Resources: 1}
	set := cell{input: spec, max: c.max, inBytes: c.inBytes, sink: func() *subject.Sink { return &subject.Sink{Each: b.note(c.inBytes)} }}.setup()
	return b, putThrough(ctx, m, set, spec.Requests())
}

func (b *bounded) note(inBytes bool) func(any) error {
	return func(data any) error {
		size := input.Items(data)
		if inBytes {
			size = input.Bytes(data)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.arrived += input.Items(data)
		b.batches++
		b.largest = max(b.largest, size)
		return nil
	}
}
