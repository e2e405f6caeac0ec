// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// Result is what one run of a subject gave.
type Result struct {
	Usage

	Items, Batches int
	P50, P99       float64 // latency from Consume to sink in milliseconds, where it is measured
	Values         map[string]float64
}

// Metric reads a figure of a result.
type Metric func(Result) float64

// The figures of every run.
var (
	CPUPerItem         Metric = func(r Result) float64 { return perItem(float64(r.CPU), r) }
	WallPerItem        Metric = func(r Result) float64 { return perItem(float64(r.Wall), r) }
	MutexWaitPerItem   Metric = func(r Result) float64 { return perItem(float64(r.MutexWait), r) }
	AllocationsPerItem Metric = func(r Result) float64 { return perItem(float64(r.Allocations), r) }
	BytesPerItem       Metric = func(r Result) float64 { return perItem(float64(r.Bytes), r) }
	Batches            Metric = func(r Result) float64 { return float64(r.Batches) }
	Fill               Metric = func(r Result) float64 { return float64(r.Items) / max(float64(r.Batches), 1) }
	WallMillis         Metric = func(r Result) float64 { return float64(r.Wall) / 1e6 }
	CPUPercent         Metric = func(r Result) float64 { return 100 * float64(r.CPU) / float64(r.Wall) }
	P50                Metric = func(r Result) float64 { return r.P50 }
	P99                Metric = func(r Result) float64 { return r.P99 }
)

// Value is a figure that only some comparison has.
func Value(name string) Metric { return func(r Result) float64 { return r.Values[name] } }

func perItem(total float64, r Result) float64 { return total / max(float64(r.Items), 1) }

// Estimate is a median and its confidence interval.
type Estimate struct{ Center, Lo, Hi float64 }

// confidence is that of benchstat.
const confidence = 0.95

func estimate(values []float64) Estimate {
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), confidence)
	return Estimate{s.Center, s.Lo, s.Hi}
}

// spread is the median and the range of a few values, which have no confidence
// interval. Of one value it is not known.
func spread(values []float64) Estimate {
	e := estimate(values)
	if len(values) > 1 {
		e.Lo, e.Hi = slices.Min(values), slices.Max(values)
	}
	return e
}

// Exact is the estimate of a figure that was not measured but counted.
func Exact(v float64) Estimate { return Estimate{v, v, v} }

// String is the median and how far the interval reaches from it, as in benchstat. A
// difference may be near to nothing, and gets the interval itself.
func (e Estimate) String() string {
	reach := max(e.Hi-e.Center, e.Center-e.Lo)
	switch {
	case math.IsInf(reach, 0): // too few runs for an interval
		return format(e.Center) + " ± ∞"
	case e.Center == 0 || reach/math.Abs(e.Center) < 0.005:
		return format(e.Center)
	case reach > math.Abs(e.Center):
		return fmt.Sprintf("%s (%s to %s)", format(e.Center), format(e.Lo), format(e.Hi))
	}
	return fmt.Sprintf("%s ± %.0f%%", format(e.Center), 100*reach/math.Abs(e.Center))
}

// format prints three significant digits.
func format(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100 || a == 0:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.4f", v)
}

// Series are the results of subjects that ran in turn: the n-th results of all
// were taken one after the other.
type Series struct {
	Names    []string
	results  map[string][]Result
	estimate func([]float64) Estimate
}

// Spread is the series with the range of its runs in place of the confidence
// interval, for so few runs that those have none.
func (s Series) Spread() Series {
	s.estimate = spread
	return s
}

// Of estimates a figure of a subject.
func (s Series) Of(name string, m Metric) Estimate {
	values := make([]float64, 0, len(s.results[name]))
	for _, r := range s.results[name] {
		values = append(values, m(r))
	}
	return s.estimate(values)
}

// Ratio estimates how many times the figure of b that of a is, of runs that were
// neighbours: what disturbs both drops out.
func (s Series) Ratio(a, b string, m Metric) Estimate {
	return s.pairwise(a, b, func(x, y Result) float64 { return m(x) / m(y) })
}

// Difference estimates by how much the figure of a is above that of b.
func (s Series) Difference(a, b string, m Metric) Estimate {
	return s.pairwise(a, b, func(x, y Result) float64 { return m(x) - m(y) })
}

func (s Series) pairwise(a, b string, f func(a, b Result) float64) Estimate {
	values := make([]float64, 0, len(s.results[a]))
	for i, r := range s.results[a] {
		values = append(values, f(r, s.results[b][i]))
	}
	return s.estimate(values)
}

// Best is which of the named subjects has the smallest median.
func (s Series) Best(m Metric, names ...string) string {
	best, least := "", math.Inf(1)
	for _, name := range names {
		if len(s.results[name]) == 0 {
			continue
		}
		if v := s.Of(name, m).Center; v < least {
			best, least = name, v
		}
	}
	return best
}

// RatioOfSeries estimates the figure of one subject in s over that in another
// series, whose turns were not its neighbours.
func RatioOfSeries(s, other Series, name string, m Metric) Estimate {
	values := make([]float64, 0, len(s.results[name]))
	all, others := s.results[name], other.results[name]
	for i := range min(len(all), len(others)) {
		values = append(values, m(all[i])/m(others[i]))
	}
	return s.estimate(values)
}
