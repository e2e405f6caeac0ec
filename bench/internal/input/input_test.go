// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package input_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/pullbatch/batcherexporter/bench/internal/input"
)

// TestRequests checks that requests are of the size that was asked for, and add up.
func TestRequests(t *testing.T) {
	for _, signal := range []input.Signal{input.Logs, input.Traces, input.Metrics} {
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
