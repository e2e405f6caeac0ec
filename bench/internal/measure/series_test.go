// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTurns(t *testing.T) {
	for name, tt := range map[string]struct {
		cpu, took  time.Duration
		warm, want int
	}{
		"no time is asked for":     {0, time.Millisecond, 1, 3},
		"few pairs take it":        {30 * time.Millisecond, 10 * time.Millisecond, 1, 3},
		"as many as take it":       {30 * time.Millisecond, 3 * time.Millisecond, 2, 10},
		"no more than the maximum": {time.Hour, 0, 2, mostPairs},
	} {
		t.Run(name, func(t *testing.T) {
			var order []string
			s, err := Turns{Pairs: 3, CPU: tt.cpu}.Run([]string{"a", "b"}, func(name string) (Result, error) {
				order = append(order, name)
				if name == "a" { // which does not count
					return Result{}, nil
				}
				return Result{Usage: Usage{CPU: tt.took}}, nil
			})
			require.NoError(t, err)
			assert.Len(t, s.results["b"], tt.want)
			require.Len(t, order, 2*(tt.warm+tt.want))
			for i, name := range order {
				assert.Equal(t, []string{"a", "b"}[i%2], name)
			}
		})
	}
}

// TestRatios checks that pairs are of neighbours, and that series of unequal
// length have a ratio too.
func TestRatios(t *testing.T) {
	n := 0
	run := func(name string) (Result, error) {
		n++
		items := map[string]int{"a": 1, "b": 2}[name]
		return Result{Usage: Usage{CPU: time.Duration(n+n%2) * time.Second}, Items: items}, nil
	}
	long, err := RunWarm(9, []string{"a", "b"}, run)
	require.NoError(t, err)
	assert.Equal(t, Exact(2), long.Ratio("a", "b", CPUPerItem))
	assert.Equal(t, "b", long.Best(CPUPerItem, "a", "b", "absent"))
	n = 0
	short, err := RunWarm(6, []string{"a", "b"}, run)
	require.NoError(t, err)
	assert.Equal(t, Exact(1), RatioOfSeries(long, short, "a", CPUPerItem))
	assert.Equal(t, Exact(1), RatioOfSeries(short, long, "a", CPUPerItem))
}

func TestTurnsFail(t *testing.T) {
	broken := errors.New("broken")
	_, err := Run(1, []string{"a"}, func(string) (Result, error) { return Result{}, broken })
	require.ErrorIs(t, err, broken)
	assert.ErrorContains(t, err, "a: ")
}

// TestFewPairs checks what is said of figures without a confidence interval.
func TestFewPairs(t *testing.T) {
	for _, values := range [][]float64{{12.5}, {12, 13}, {11, 12, 12.5, 13, 14}} {
		assert.Equal(t, "12.5 ± ∞", estimate(values).String(), "%v", values)
	}
	assert.Equal(t, "12.5 ± 20%", estimate([]float64{11, 12, 12.25, 12.75, 13, 15}).String())
	assert.Equal(t, "12.5", estimate([]float64{12.5, 12.5, 12.5, 12.5, 12.5, 12.5}).String())
	assert.Equal(t, "0", Exact(0).String())
	assert.Equal(t, "0.20 (-1.00 to 3.00)", Estimate{0.2, -1, 3}.String())
}
