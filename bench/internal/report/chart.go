// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is a chart with a line or, where X has names, bars for each subject.
type Chart struct {
	File   string
	Title  string
	X, Y   string
	Names  []string // of the groups of bars; nil: lines over logarithmic axes
	Series []Line
}

// Line is the points of one subject.
type Line struct {
	Name string
	X, Y []float64 // X is unused with bars
}

const (
	chartWidth  = 21 * vg.Centimeter
	chartHeight = 11 * vg.Centimeter
	barsWidth   = 12 * vg.Centimeter // of all bars
	margin      = 4 * vg.Millimeter
	legendWidth = 6 * vg.Centimeter // beside the chart, where it hides nothing
)

func (c Chart) save(dir string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	p.Legend.Top, p.Legend.Padding = true, vg.Millimeter
	p.Add(plotter.NewGrid())
	// To the left of the names, so that a wide font does not cover the samples.
	p.Legend.Left = true
	p.Legend.XOffs = chartWidth - legendWidth - 5*margin
	add := c.lines
	if c.Names != nil {
		add = c.bars
	}
	if err := add(p); err != nil {
		return err
	}
	canvas := vgsvg.New(chartWidth, chartHeight)
	p.Draw(draw.Crop(draw.New(canvas), margin, -legendWidth, margin, -margin))
	var image bytes.Buffer
	if _, err := canvas.WriteTo(&image); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, c.File), image.Bytes(), 0o644)
}

func (c Chart) lines(p *plot.Plot) error {
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	var all []any
	for _, l := range c.Series {
		points := make(plotter.XYs, len(l.Y))
		for i := range l.Y {
			points[i] = plotter.XY{X: l.X[i], Y: l.Y[i]}
		}
		all = append(all, l.Name, points)
	}
	return plotutil.AddLinePoints(p, all...)
}

func (c Chart) bars(p *plot.Plot) error {
	groups, bars := len(c.Names), len(c.Series)
	width := barsWidth / vg.Length(groups*(bars+1))
	for i, l := range c.Series {
		b, err := plotter.NewBarChart(plotter.Values(l.Y), width)
		if err != nil {
			return err
		}
		b.Color = plotutil.Color(i)
		b.LineStyle.Width = 0
		b.Offset = width * (vg.Length(i) - vg.Length(bars-1)/2)
		p.Add(b)
		p.Legend.Add(l.Name, b)
	}
	p.NominalX(c.Names...)
	return nil
}
