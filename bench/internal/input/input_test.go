// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package input_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/pullbatch/batcherexporter/bench/internal/input"
)

// TestRequests checks that requests are of the size that was asked for, and add up.
func TestRequests(t *testing.T) {
	for _, signal := range []input.Signal{input.Logs, input.Traces, input.Metrics, input.Profiles} {
		t.Run(string(signal), func(t *testing.T) {
			all := input.Spec{Signal: signal, Items: 10, Total: 35, Resources: 2}.Requests()
			require.Len(t, all, 4)
			for i, want := range []int{10, 10, 10, 5} {
				assert.Equal(t, want, input.Items(all[i]))
			}
			raw, err := input.Marshal(all[0])
			require.NoError(t, err)
			assert.Len(t, raw, input.Bytes(all[0]))
			copied, err := input.Marshal(input.Clone(all[0]))
			require.NoError(t, err)
			assert.Equal(t, raw, copied)
			if signal == input.Profiles {
				return
			}
			input.Grow(all[0], 3, 5000)
			assert.Greater(t, input.Bytes(all[0]), len(raw)+5000)
		})
	}
}

// TestShape checks the input's shape, to which published figures belong.
func TestShape(t *testing.T) {
	all := input.Spec{Signal: input.Logs, Items: 1, Total: 3, Resources: input.AllDifferent}.Requests()
	seen := map[any]bool{}
	for _, data := range all {
		rl := data.(plog.Logs).ResourceLogs().At(0)
		assert.Equal(t, 12, rl.Resource().Attributes().Len())
		r := rl.ScopeLogs().At(0).LogRecords().At(0)
		assert.Equal(t, 5, r.Attributes().Len())
		assert.Len(t, r.Body().Str(), 200)
		name, _ := rl.Resource().Attributes().Get("service.instance.id")
		seen[name.Str()] = true
	}
	assert.Len(t, seen, 3)
}

// TestDictionary checks that a request of profiles has the dictionary that its
// samples need: one stack for one of them, the whole program's for many.
func TestDictionary(t *testing.T) {
	all := input.Spec{Signal: input.Profiles, Items: 1, Total: 1000, Resources: 1}.Requests()
	for _, data := range all {
		d := data.(pprofile.Profiles).Dictionary()
		require.Equal(t, 2, d.StackTable().Len())
		frames := d.StackTable().At(1).LocationIndices().Len()
		require.GreaterOrEqual(t, frames, 8)
		require.LessOrEqual(t, d.LocationTable().Len(), frames+1)
		require.LessOrEqual(t, d.FunctionTable().Len(), frames+1)
		require.Equal(t, 2, d.AttributeTable().Len())
	}
	one := input.Spec{Signal: input.Profiles, Items: 8192, Total: 8192, Resources: 1}.Requests()
	d := one[0].(pprofile.Profiles).Dictionary()
	t.Logf("%d stacks, %d locations, %d functions, %d strings", d.StackTable().Len(), d.LocationTable().Len(), d.FunctionTable().Len(), d.StringTable().Len())
	assert.Less(t, d.StackTable().Len(), 300)
	assert.Greater(t, d.LocationTable().Len(), 500)
}

// TestSupply checks that a supply hands out what the spec says, each time anew.
func TestSupply(t *testing.T) {
	for _, spec := range []input.Spec{
		{Signal: input.Logs, Items: 1000, Total: 100_500, Resources: 3},
		{Signal: input.Logs, Items: 10, Total: 40_005, Resources: input.AllDifferent},
		{Signal: input.Traces, Items: 7, Total: 6, Resources: 1},
		{Signal: input.Profiles, Items: 50_000, Total: 50_000, Resources: 50},
	} {
		want, supply := spec.Requests(), spec.Supply()
		first, second := supply.New(), supply.New()
		require.Len(t, first, len(want))
		for i := range want {
			require.Equal(t, input.Items(want[i]), input.Items(first[i]))
			if first[i] == second[i] { // the same data, not only equal data
				t.Fatalf("request %d is handed out twice", i)
			}
		}
		raw, err := input.Marshal(want[0])
		require.NoError(t, err)
		copied, err := input.Marshal(first[0])
		require.NoError(t, err)
		assert.Equal(t, raw, copied)
	}
}

func TestIdeal(t *testing.T) {
	spec := input.Spec{Signal: input.Logs, Items: 10, Total: 95, Resources: 3}
	ideal := input.Ideal(spec.Requests(), 3)
	assert.Equal(t, 95, ideal.LogRecordCount())
	assert.Equal(t, 3, ideal.ResourceLogs().Len())
}

func TestStamps(t *testing.T) {
	data := input.Spec{Signal: input.Logs, Items: 10, Total: 10, Resources: 1}.Requests()[0]
	input.Stamp(data, 42)
	var stamps []pcommon.Timestamp
	input.Stamps(data, func(s pcommon.Timestamp) { stamps = append(stamps, s) })
	assert.Equal(t, []pcommon.Timestamp{42}, stamps)
}
