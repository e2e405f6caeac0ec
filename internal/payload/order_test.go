// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"pgregory.net/rapid"

	"github.com/pullbatch/batcherexporter/internal/payload/payloadtest"
)

func TestOrder(t *testing.T) {
	t.Run("logs", func(t *testing.T) { testOrder(t, Logs(), payloadtest.RandomLogs, payloadtest.IDsLogs) })
	t.Run("traces", func(t *testing.T) { testOrder(t, Traces(), payloadtest.RandomTraces, payloadtest.IDsTraces) })
	t.Run("metrics", func(t *testing.T) { testOrder(t, Metrics(), payloadtest.RandomMetrics, payloadtest.IDsMetrics) })
	t.Run("profiles", func(t *testing.T) {
		testOrder[pprofile.Profiles](t, Profiles(), payloadtest.RandomProfiles, payloadtest.IDsProfiles)
	})
}

// testOrder asks of each item of a batch with which data it came, whether
// resources are joined or not.
func testOrder[T any](t *testing.T, s Signal[T], random func(*rand.Rand, int, int64) T, ids func(T) []int64) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		batch := s.NewMerger(rapid.Bool().Draw(t, "merge_resources")).Begin(true)
		source := map[int64]int{}
		next := int64(0)
		for i := range rapid.IntRange(1, 12).Draw(t, "requests") {
			data := random(r, rapid.IntRange(1, 8).Draw(t, "items"), next)
			for _, id := range ids(data) {
				source[id] = i
				next = id + 1
			}
			batch.Add(data)
		}
		got := ids(batch.Data())
		require.Len(t, got, len(source))
		at := 0
		for _, run := range batch.Order() {
			for range run.Items {
				require.Equal(t, source[got[at]], run.Source, "item %d", got[at])
				at++
			}
		}
		require.Equal(t, len(got), at)
	})
}

// Whoever does not ask for the order pays nothing for it.
func TestNoOrder(t *testing.T) {
	batch := Logs().NewMerger(true).Begin(false)
	batch.Add(payloadtest.SimpleLogs(3, 0))
	batch.Add(payloadtest.SimpleLogs(3, 3))
	require.Nil(t, batch.Order())
}
