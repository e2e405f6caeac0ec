// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
)

func TestGrouped(t *testing.T) {
	f := func(n int, want string) {
		t.Helper()
		assert.Equal(t, want, grouped(n))
	}
	f(0, "0")
	f(999, "999")
	f(1000, "1,000")
	f(-1234567, "-1,234,567")
}

func TestReadMaxSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte("batch:\n  min_size: 7\n  max_size: 2048\n"), 0o600))
	size, err := readMaxSize(path)
	require.NoError(t, err)
	assert.Equal(t, 2048, size)

	require.NoError(t, os.WriteFile(path, []byte("batch:\n  min_size: 7\n"), 0o600))
	_, err = readMaxSize(path)
	assert.ErrorContains(t, err, "has no `max_size`")
}

// spans returns a tally of the ranges, each a request.
func spans(ranges ...otlpdata.Range) *otlpdata.Tally {
	tally := &otlpdata.Tally{}
	for _, r := range ranges {
		tally.AddTraces(otlpdata.NewTraces(r))
	}
	return tally
}

func TestCheck(t *testing.T) {
	f := func(accepted int, tally *otlpdata.Tally, want ...string) {
		t.Helper()
		r := newResult(otlpdata.Traces, figures{accepted: accepted}, tally, 5)
		err := check([]result{r}, 5)
		if len(want) == 0 {
			assert.NoError(t, err)
			return
		}
		assert.EqualError(t, err, strings.Join(want, "\n"))
	}
	f(7, spans(otlpdata.Range{First: 1, Items: 5}, otlpdata.Range{First: 6, Items: 2}))
	f(0, spans(), "traces: nothing was accepted")
	f(7, spans(otlpdata.Range{First: 1, Items: 5}), "traces: 2 of 7 accepted items are missing")
	f(5, spans(otlpdata.Range{First: 1, Items: 5}, otlpdata.Range{First: 5, Items: 2}),
		"traces: 2 items arrived more than once")
	// One that is lost and one that comes twice do not cancel out.
	f(5, spans(otlpdata.Range{First: 1, Items: 4}, otlpdata.Range{First: 4, Items: 1}),
		"traces: 1 of 5 accepted items are missing", "traces: 1 items arrived more than once")
	f(6, spans(otlpdata.Range{First: 1, Items: 6}),
		"traces: 1 of 1 batches have more than 5 items, the largest 6")
}

func TestSummary(t *testing.T) {
	f := figures{requests: 1200, accepted: 12, due: map[string]int{"size": 2, "shutdown": 1}}
	tally := spans(otlpdata.Range{First: 1, Items: 5}, otlpdata.Range{First: 6, Items: 5}, otlpdata.Range{First: 11, Items: 2})
	out := &strings.Builder{}
	results := []result{newResult(otlpdata.Traces, f, tally, 5), newResult(otlpdata.Logs, f, tally, 5)}
	printSummary(out, results)
	printVerdict(out, results, 5)
	want := `
                      traces        logs       total
requests in            1,200       1,200       2,400
items in                  12          12          24
items refused              0           0           0
batches out                3           3           6
items per batch            4           4           4
largest batch              5           5           5
full batches               2           2           4
due by size                2           2           4
due by timeout             0           0           0
due by pressure            0           0           0
due by flush               0           0           0
due by shutdown            1           1           2
missing                    0           0           0
repeated                   0           0           0

ok: 2,400 requests became 6 batches of at most 5 items; all 24 items arrived, none twice
`
	assert.Equal(t, want, out.String())
}

func TestViewPrintsWhatIsNew(t *testing.T) {
	began := time.Now()
	out := &strings.Builder{}
	v := newView(out, began)
	r := report{
		signals: map[otlpdata.Signal]figures{
			otlpdata.Logs: {requests: 1000, accepted: 10_000, batches: 4, queueSize: 512, queueRoom: 2048, due: map[string]int{"size": 4}},
		},
		batches: 4, batchedItems: 8192,
	}
	v.printLine(v.elapsed(began.Add(time.Second)), r)
	r.signals = map[otlpdata.Signal]figures{
		otlpdata.Logs: {requests: 1500, accepted: 15_000, batches: 7, due: map[string]int{"size": 5, "timeout": 2}},
	}
	r.batches, r.batchedItems = 7, 12_000
	v.printLine("stop", r)
	want := `  time   requests in    items in   batches out   items/batch           queue   batches due by
   1 s         1,000      10,000             4         2,048     512 (25.0%)   size 4
  stop           500       5,000             3         1,269               -   size 1, timeout 2
`
	assert.Equal(t, want, out.String())
}
