// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
)

// result compares what one signal went in as with what the backend wrote.
type result struct {
	name string
	figures
	written  int // requests that the backend wrote: the batches
	items    int // in them
	largest  int
	full     int // of exactly the bound
	above    int // of more than the bound
	missing  int
	repeated int
}

func newResult(signal otlpdata.Signal, f figures, tally *otlpdata.Tally, maxItems int) result {
	// Without an identity, which telemetrygen gives to spans only, an item that is
	// lost and one that comes twice would cancel out.
	arrived := tally.Items() - tally.Repeats()
	return result{
		name:     string(signal),
		figures:  f,
		written:  tally.Requests(),
		items:    tally.Items(),
		largest:  tally.Largest(),
		full:     tally.RequestsOf(maxItems),
		above:    tally.Above(maxItems),
		missing:  max(0, f.accepted-arrived),
		repeated: tally.Repeats() + max(0, arrived-f.accepted),
	}
}

// total returns the column that sums up the others.
func total(results []result) result {
	all := map[otlpdata.Signal]figures{}
	t := result{name: "total"}
	for _, r := range results {
		all[otlpdata.Signal(r.name)] = r.figures
		t.written += r.written
		t.items += r.items
		t.largest = max(t.largest, r.largest)
		t.full += r.full
		t.above += r.above
		t.missing += r.missing
		t.repeated += r.repeated
	}
	t.figures = sum(all)
	return t
}

// check names everything that went wrong.
func check(results []result, maxItems int) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, r := range results {
		if r.accepted == 0 {
			fail("%s: nothing was accepted", r.name)
		}
		if r.missing > 0 {
			fail("%s: %s of %s accepted items are missing", r.name, grouped(r.missing), grouped(r.accepted))
		}
		if r.repeated > 0 {
			fail("%s: %s items arrived more than once", r.name, grouped(r.repeated))
		}
		if r.above > 0 {
			fail("%s: %s of %s batches have more than %s items, the largest %s",
				r.name, grouped(r.above), grouped(r.written), grouped(maxItems), grouped(r.largest))
		}
	}
	return errors.Join(errs...)
}

// row is a line of the summary: a name, and how to get its number.
type row struct {
	name  string
	value func(result) string
}

func number(name string, get func(result) int) row {
	return row{name: name, value: func(r result) string { return grouped(get(r)) }}
}

func rows() []row {
	rows := []row{
		{name: "", value: func(r result) string { return r.name }},
		number("requests in", func(r result) int { return r.requests }),
		number("items in", func(r result) int { return r.accepted }),
		number("items refused", func(r result) int { return r.refused }),
		number("batches out", func(r result) int { return r.written }),
		{name: "items per batch", value: func(r result) string { return average(r.items, r.written) }},
		number("largest batch", func(r result) int { return r.largest }),
		number("full batches", func(r result) int { return r.full }),
	}
	for _, trigger := range triggers {
		rows = append(rows, number("due by "+trigger, func(r result) int { return r.due[trigger] }))
	}
	return append(rows,
		number("missing", func(r result) int { return r.missing }),
		number("repeated", func(r result) int { return r.repeated }),
	)
}

func printSummary(out io.Writer, results []result) {
	columns := slices.Concat(results, []result{total(results)})
	fmt.Fprintln(out)
	for _, row := range rows() {
		fmt.Fprintf(out, "%-16s", row.name)
		for _, column := range columns {
			fmt.Fprintf(out, "%12s", row.value(column))
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out)
}

func printVerdict(out io.Writer, results []result, maxItems int) {
	t := total(results)
	fmt.Fprintf(out, "ok: %s requests became %s batches of at most %s items; all %s items arrived, none twice\n",
		grouped(t.requests), grouped(t.written), grouped(maxItems), grouped(t.accepted))
}
