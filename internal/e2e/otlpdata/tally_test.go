// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package otlpdata

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// add counts one request that holds the range, as the signal.
func add(t *Tally, signal Signal, r Range) {
	switch signal {
	case Traces:
		t.AddTraces(NewTraces(r))
	case Logs:
		t.AddLogs(NewLogs(r))
	case Metrics:
		t.AddMetrics(NewMetrics(r))
	}
}

func TestTallyCompare(t *testing.T) {
	accepted := []Range{{First: 1, Items: 20}, {First: 100, Items: 7}}
	for _, signal := range Signals() {
		t.Run(string(signal), func(t *testing.T) {
			tally := &Tally{}
			for _, r := range accepted {
				add(tally, signal, r)
			}
			assert.Equal(t, 2, tally.Requests())
			assert.Equal(t, 27, tally.Items())
			assert.Equal(t, 20, tally.Largest())
			assert.Equal(t, 1, tally.RequestsOf(7))
			assert.Equal(t, 1, tally.Above(7))
			assert.Zero(t, tally.Repeats())
			difference := tally.Compare(accepted)
			assert.True(t, difference.Empty(), "%v", difference)
		})
	}
}

func TestTallyCompareFindsEachDifference(t *testing.T) {
	for _, signal := range Signals() {
		t.Run(string(signal), func(t *testing.T) {
			tally := &Tally{}
			add(tally, signal, Range{First: 1, Items: 3})
			add(tally, signal, Range{First: 3, Items: 1})
			add(tally, signal, Range{First: 9, Items: 1})
			difference := tally.Compare([]Range{{First: 1, Items: 4}})
			assert.Equal(t, []uint64{4}, difference.Missing)
			assert.Equal(t, []uint64{3}, difference.Repeated)
			assert.Equal(t, []uint64{9}, difference.Unexpected)
			assert.Equal(t, 1, tally.Repeats())
			assert.Equal(t, "missing 1 [4]; repeated 1 [3]; not accepted but arrived 1 [9]", difference.String())
		})
	}
}

func TestReadFile(t *testing.T) {
	first, second := Range{First: 1, Items: 20}, Range{First: 21, Items: 5}
	lines := map[Signal]func(Range) ([]byte, error){
		Traces:  func(r Range) ([]byte, error) { return (&ptrace.JSONMarshaler{}).MarshalTraces(NewTraces(r)) },
		Logs:    func(r Range) ([]byte, error) { return (&plog.JSONMarshaler{}).MarshalLogs(NewLogs(r)) },
		Metrics: func(r Range) ([]byte, error) { return (&pmetric.JSONMarshaler{}).MarshalMetrics(NewMetrics(r)) },
	}
	for _, signal := range Signals() {
		t.Run(string(signal), func(t *testing.T) {
			content := []byte(`{"resourceOthers":[]}` + "\n")
			for _, r := range []Range{first, second} {
				line, err := lines[signal](r)
				require.NoError(t, err)
				content = append(append(content, line...), '\n')
			}
			path := filepath.Join(t.TempDir(), "out.json")
			require.NoError(t, os.WriteFile(path, content, 0o600))

			tally, err := ReadFile(signal, path)
			require.NoError(t, err)
			assert.Equal(t, 2, tally.Requests())
			difference := tally.Compare([]Range{first, second})
			assert.True(t, difference.Empty(), "%v", difference)

			require.NoError(t, os.WriteFile(path, content[:len(content)-1], 0o600))
			_, err = ReadFile(signal, path)
			assert.ErrorContains(t, err, "the last line of "+path+" does not end")

			killed := &Tally{}
			require.NoError(t, killed.AddKilled(signal, path))
			assert.Equal(t, 2, killed.Requests(), "what lacks only its end was taken")
			require.NoError(t, os.WriteFile(path, content[:len(content)-2], 0o600))
			killed = &Tally{}
			require.NoError(t, killed.AddKilled(signal, path))
			assert.Equal(t, 1, killed.Requests(), "what is cut off was not")
		})
	}
}

func TestLogBody(t *testing.T) {
	body := func(r Range) string {
		return NewLogs(r).ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Body().Str()
	}
	assert.Equal(t, "something happened", body(Range{First: 1, Items: 1}))
	long := body(Range{First: 1, Items: 1, BodyBytes: 1001})
	assert.Len(t, long, 1001)
	assert.Equal(t, long, body(Range{First: 1, Items: 1, BodyBytes: 1001}))
	assert.NotEqual(t, long, body(Range{First: 2, Items: 1, BodyBytes: 1001}))
}

func TestTallyKnowsTheOrder(t *testing.T) {
	tally := &Tally{}
	for _, r := range []Range{{First: 1, Items: 3}, {First: 7, Items: 2}, {First: 7, Items: 2}, {First: 5, Items: 2}, {First: 9, Items: 1}} {
		tally.AddLogs(NewLogs(r))
	}
	assert.Equal(t, []int{3, 2, 2, 2, 1}, tally.Sizes())
	assert.Equal(t, 1, tally.Behind(), "5; 6 came after it, and the second 7 is not new")
}
