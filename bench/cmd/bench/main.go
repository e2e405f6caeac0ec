// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Command bench measures the batcher against its peers and writes a report.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/pullbatch/batcherexporter/bench/internal/report"
	"github.com/pullbatch/batcherexporter/bench/internal/scenario"
)

type options struct {
	only    *regexp.Regexp
	out     string
	profile string
	set     scenario.Settings
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o, err := parse()
	if err == nil {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // the process ends, and with it what stop would undo
	}
}

func parse() (options, error) {
	var o options
	var only string
	flag.BoolVar(&o.set.Short, "short", false, "measure less, in under ten minutes")
	flag.StringVar(&only, "only", ".", "which comparisons to run, a regular expression")
	flag.IntVar(&o.set.Pairs, "pairs", 0, "how often each subject runs at the least (default 10, 6 with -short)")
	flag.IntVar(&o.set.Scale, "scale", 1, "how many times the usual input the tables of memory get")
	flag.StringVar(&o.set.Collector, "collector", "", "the collector for the testbed, a path; without it the testbed is left out")
	flag.StringVar(&o.out, "out", "report", "directory for the report")
	flag.StringVar(&o.profile, "profile", "", "directory for CPU profiles of the batcher, one a run")
	flag.Parse()
	if o.set.Pairs == 0 {
		o.set.Pairs = 10
		if o.set.Short {
			o.set.Pairs = 6 // fewer have no confidence interval
		}
	}
	var err error
	o.only, err = regexp.Compile(only)
	return o, err
}

func run(ctx context.Context, o options) error {
	o.set.Log = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o755); err != nil {
			return err
		}
		o.set.Profile = profiler(o)
	}
	began := time.Now()
	r := report.Report{}
	for _, s := range scenario.All() {
		if !o.only.MatchString(s.Name) || ctx.Err() != nil {
			continue
		}
		sec, err := s.Run(ctx, o.set)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		sec.Print(os.Stdout)
		r.Sections = append(r.Sections, sec)
		r.Preface = preface(o.set, time.Since(began))
		if err := r.WriteTo(o.out); err != nil { // what is measured is there if the run is ended
			return err
		}
	}
	return ctx.Err()
}

// profiler writes each region into a file of its own, which pprof merges.
func profiler(o options) func(string) func() {
	n := 0
	return func(name string) func() {
		n++
		f, err := os.Create(filepath.Join(o.profile, fmt.Sprintf("%s-%d.pprof", name, n)))
		if err != nil {
			o.set.Log("no profile: %v", err)
			return func() {}
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			o.set.Log("no profile: %v", err)
		}
		return func() {
			pprof.StopCPUProfile()
			_ = f.Close()
		}
	}
}

// preface says what was measured with, and where.
func preface(set scenario.Settings, took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s/%s, %d cores, %s; load average at the end %s; at least %d pairs, in %s.\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), cpuModel(), loadAverage(), set.Pairs, took.Round(time.Second))
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if strings.HasSuffix(m.Path, "/exporterhelper") || strings.HasSuffix(m.Path, "/batchprocessor") || strings.HasSuffix(m.Path, "collector/pdata") {
			fmt.Fprintf(&b, "- %s %s\n", m.Path, m.Version)
		}
	}
	b.WriteString("\nFigures are medians with the 95 % confidence interval that benchstat gives. Subjects of a row ran in turn in one process, " +
		"and a ratio is the median of the ratios of neighbours. `floor` moves requests into a batch under one mutex and does nothing else; " +
		"`bp` is the batch processor, `eh` an exporter on exporterhelper without a queue, `ehq` with a queue, `ehb` with queue and batches. " +
		"The batcher wraps an `eh`. A verdict within noise has its limit inside the interval.\n")
	return b.String()
}

func cpuModel() string {
	all, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(all)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return "unknown processor"
}

func loadAverage() string {
	all, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(all))[:min(3, len(strings.Fields(string(all))))], " ")
}
