// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package report writes what was measured as markdown and charts.
package report

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/pullbatch/batcherexporter/bench/internal/measure"
)

// Table is a table of figures.
type Table struct {
	Title string
	Head  []string
	Rows  [][]string
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Verdict says whether a target is met.
type Verdict struct {
	Target   string
	What     string
	Limit    float64 // the most that Measured may be
	Measured measure.Estimate
}

// String is the verdict in words. Where the confidence interval holds the limit,
// the run cannot tell for sure.
func (v Verdict) String() string {
	switch {
	case v.Measured.Hi <= v.Limit:
		return "met"
	case v.Measured.Lo > v.Limit:
		return "**missed**"
	case v.Measured.Center <= v.Limit:
		return "met, within noise"
	}
	return "**missed**, within noise"
}

// Section is the outcome of one comparison.
type Section struct {
	Title    string
	Note     string
	Tables   []*Table
	Charts   []Chart
	Verdicts []Verdict
}

// Judge appends a verdict.
func (s *Section) Judge(target, what string, limit float64, measured measure.Estimate) {
	s.Verdicts = append(s.Verdicts, Verdict{target, what, limit, measured})
}

// Report is everything that a run measured.
type Report struct {
	Preface  string
	Sections []Section
}

// WriteTo writes the report and its charts into a directory.
func (r *Report) WriteTo(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Measured against the peers\n\n%s\n## Targets\n\n", r.Preface)
	verdicts(&b, r.Sections)
	for _, s := range r.Sections {
		s.write(&b)
		for _, c := range s.Charts {
			if err := c.save(dir); err != nil {
				return fmt.Errorf("cannot draw %s: %w", c.File, err)
			}
		}
	}
	return os.WriteFile(filepath.Join(dir, "README.md"), []byte(b.String()), 0o644) //nolint:gosec // for everybody to read
}

func verdicts(w io.Writer, sections []Section) {
	t := Table{Head: []string{"target", "what", "at most", "measured", "verdict"}}
	for _, s := range sections {
		for _, v := range s.Verdicts {
			t.Add(v.Target, v.What, fmt.Sprintf("%.4g", v.Limit), v.Measured.String(), v.String())
		}
	}
	t.write(w)
}

func (s *Section) write(w io.Writer) {
	fmt.Fprintf(w, "## %s\n\n%s\n\n", s.Title, s.Note)
	for _, t := range s.Tables {
		t.write(w)
	}
	for _, c := range s.Charts {
		fmt.Fprintf(w, "![%s](%s)\n\n", c.Title, c.File)
	}
}

// Print writes a section as text, its verdicts included.
func (s *Section) Print(w io.Writer) {
	s.write(w)
	verdicts(w, []Section{*s})
}

func (t *Table) write(w io.Writer) {
	if t.Title != "" {
		fmt.Fprintf(w, "**%s**\n\n", t.Title)
	}
	line := func(cells []string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.Head)
	rule := make([]string, len(t.Head))
	for i := range rule {
		rule[i] = "---"
	}
	line(rule)
	for _, row := range t.Rows {
		line(row)
	}
	fmt.Fprintln(w)
}
