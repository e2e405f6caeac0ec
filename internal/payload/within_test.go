// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"pgregory.net/rapid"

	"github.com/pullbatch/batcherexporter/internal/payload/payloadtest"
)

func TestWithin(t *testing.T) {
	t.Run("logs", func(t *testing.T) { testWithin(t, logsSubject()) })
	t.Run("traces", func(t *testing.T) { testWithin(t, tracesSubject()) })
	t.Run("metrics", func(t *testing.T) { testWithin(t, metricsSubject()) })
}

// testWithin cuts two pieces that overlap or not. All items differ.
func testWithin[T any](t *testing.T, s subject[T]) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		n := rapid.IntRange(1, 40).Draw(t, "items")
		data := func() T { return s.random(rand.New(rand.NewPCG(seed, 0)), n, 0) }
		cut := func(name string) (T, int, int) {
			from := rapid.IntRange(0, n-1).Draw(t, name+" from")
			to := rapid.IntRange(from+1, n).Draw(t, name+" to")
			whole := data()
			return s.Cut(whole, s.Index(whole, false, 0), from, to), from, to
		}
		a, a0, a1 := cut("a")
		b, b0, b1 := cut("b")
		assert.True(t, Within(data(), []T{a}))
		assert.Equal(t, a1 <= b0 || b1 <= a0, Within(data(), []T{a, b}))
		assert.True(t, Within(data(), []T{data()}), "all of it")
		assert.False(t, Within(a, []T{data(), b}), "more than was sent")
		assert.False(t, Within(data(), []T{s.simple(1, 1000)}), "something else")
	})
}

func TestWithinCountsEqualItems(t *testing.T) {
	twice := payloadtest.SimpleLogs(1, 7)
	payloadtest.SimpleLogs(1, 7).ResourceLogs().MoveAndAppendTo(twice.ResourceLogs())
	one := payloadtest.SimpleLogs(1, 7)
	assert.True(t, Within(twice, []plog.Logs{one, one}))
	assert.False(t, Within(twice, []plog.Logs{one, one, one}))
	other := payloadtest.SimpleLogs(1, 7)
	other.ResourceLogs().At(0).Resource().Attributes().PutStr("host", "another")
	assert.False(t, Within(twice, []plog.Logs{other}), "of another resource")
}

func TestWithinKnowsMetricsApart(t *testing.T) {
	sent := payloadtest.SimpleMetrics(1, 7)
	other := payloadtest.SimpleMetrics(1, 7)
	other.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).SetName("another")
	assert.False(t, Within(sent, []pmetric.Metrics{other}))
}

func TestWithinDoesNotReadProfiles(t *testing.T) {
	assert.False(t, Within(pprofile.NewProfiles(), nil))
}
