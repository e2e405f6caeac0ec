// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// view prints what happened since the last line.
type view struct {
	out      io.Writer
	began    time.Time
	previous report
}

func newView(out io.Writer, began time.Time) *view {
	v := &view{out: out, began: began}
	fmt.Fprintf(out, "%6s%14s%12s%14s%14s%16s   %s\n",
		"time", "requests in", "items in", "batches out", "items/batch", "queue", "batches due by")
	return v
}

// elapsed names a line by its second.
func (v *view) elapsed(at time.Time) string {
	return fmt.Sprintf("%.0f s", at.Sub(v.began).Seconds())
}

func (v *view) printLine(name string, r report) {
	before, now := sum(v.previous.signals), sum(r.signals)
	line := fmt.Sprintf("%6s%14s%12s%14s%14s%16s   %s", name,
		grouped(now.requests-before.requests),
		grouped(now.accepted-before.accepted),
		grouped(now.batches-before.batches),
		average(r.batchedItems-v.previous.batchedItems, r.batches-v.previous.batches),
		fill(now.queueSize, now.queueRoom),
		dueBetween(before, now))
	fmt.Fprintln(v.out, strings.TrimRight(line, " "))
	v.previous = r
}

// dueBetween lists what made batches due.
func dueBetween(before, now figures) string {
	var parts []string
	for _, trigger := range triggers {
		if n := now.due[trigger] - before.due[trigger]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", trigger, grouped(n)))
		}
	}
	return strings.Join(parts, ", ")
}

func fill(size, room int) string {
	if room == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%.1f%%)", grouped(size), 100*float64(size)/float64(room))
}

func average(items, batches int) string {
	if batches == 0 {
		return "-"
	}
	return grouped((items + batches/2) / batches)
}

// grouped prints a number with a comma between each three digits.
func grouped(n int) string {
	digits := strconv.Itoa(n)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return sign + digits
}
