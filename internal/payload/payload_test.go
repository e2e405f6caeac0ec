// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/featuregate"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata/pref"
	"pgregory.net/rapid"

	"github.com/pullbatch/batcherexporter/internal/payload/payloadtest"
)

// subject is a signal with what its tests need.
type subject[T any] struct {
	Signal[T]
	simple    func(items int, firstID int64) T
	random    func(rnd *rand.Rand, items int, firstID int64) T
	ids       func(T) []int64
	flatten   func(T) []string
	readOnly  func(T)
	unmarshal func([]byte) (T, error)
	marshal   func(T) ([]byte, error)
	partial   func(error, T) error
}

func logsSubject() subject[plog.Logs] {
	return subject[plog.Logs]{
		Signal: Logs(), simple: payloadtest.SimpleLogs, random: payloadtest.RandomLogs,
		ids: payloadtest.IDsLogs, flatten: payloadtest.FlattenLogs,
		readOnly:  plog.Logs.MarkReadOnly,
		unmarshal: (&plog.ProtoUnmarshaler{}).UnmarshalLogs, marshal: (&plog.ProtoMarshaler{}).MarshalLogs,
		partial: consumererror.NewLogs,
	}
}

func tracesSubject() subject[ptrace.Traces] {
	return subject[ptrace.Traces]{
		Signal: Traces(), simple: payloadtest.SimpleTraces, random: payloadtest.RandomTraces,
		ids: payloadtest.IDsTraces, flatten: payloadtest.FlattenTraces,
		readOnly:  ptrace.Traces.MarkReadOnly,
		unmarshal: (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces, marshal: (&ptrace.ProtoMarshaler{}).MarshalTraces,
		partial: consumererror.NewTraces,
	}
}

func metricsSubject() subject[pmetric.Metrics] {
	return subject[pmetric.Metrics]{
		Signal: Metrics(), simple: payloadtest.SimpleMetrics, random: payloadtest.RandomMetrics,
		ids: payloadtest.IDsMetrics, flatten: payloadtest.FlattenMetrics,
		readOnly:  pmetric.Metrics.MarkReadOnly,
		unmarshal: (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics, marshal: (&pmetric.ProtoMarshaler{}).MarshalMetrics,
		partial: consumererror.NewMetrics,
	}
}

// draw makes random data.
func (s subject[T]) draw(t *rapid.T, maxItems int) T {
	rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	return s.random(rnd, rapid.IntRange(0, maxItems).Draw(t, "items"), 0)
}

// drawMany makes several requests, with identities that go on from one to the
// next.
func (s subject[T]) drawMany(t *rapid.T, maxItems int) []T {
	rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	var all []T
	first := 0
	for _, n := range rapid.SliceOfN(rapid.IntRange(0, maxItems), 1, 8).Draw(t, "items of each") {
		all = append(all, s.random(rnd, n, int64(first)))
		first += n
	}
	return all
}

// flattenAll flattens several requests, one after the other.
func (s subject[T]) flattenAll(all []T) []string {
	var lines []string
	for _, data := range all {
		lines = append(lines, s.flatten(data)...)
	}
	return lines
}

// byScope puts the lines of equal resource and scope together, in their order.
func byScope(lines []string) []string {
	sorted := slices.Clone(lines)
	slices.SortStableFunc(sorted, func(a, b string) int {
		a, _, _ = strings.Cut(a, " | ")
		b, _, _ = strings.Cut(b, " | ")
		return strings.Compare(a, b)
	})
	return sorted
}

func TestSizes(t *testing.T) {
	t.Run("logs", func(t *testing.T) { testSizes(t, logsSubject()) })
	t.Run("traces", func(t *testing.T) { testSizes(t, tracesSubject()) })
	t.Run("metrics", func(t *testing.T) { testSizes(t, metricsSubject()) })
}

func testSizes[T any](t *testing.T, s subject[T]) {
	rapid.Check(t, func(t *rapid.T) {
		data := s.draw(t, 30)
		buf, err := s.marshal(data)
		require.NoError(t, err)
		assert.Equal(t, len(buf), s.Bytes(data))
		assert.Equal(t, len(buf), s.Cost(data, 0))
		assert.Equal(t, len(buf), s.Cost(data, 10))
		assert.True(t, s.ExactCost())
		want := s.flatten(data)
		assert.Equal(t, len(buf), s.Index(data, true, 10).Whole())
		assert.Equal(t, want, s.flatten(data), "an index leaves the data as it was")
		assert.Len(t, s.flatten(data), s.Items(data))
		assert.Len(t, s.ids(data), s.Items(data))
	})
}

func TestCloneAndReadOnly(t *testing.T) {
	t.Run("logs", func(t *testing.T) { testClone(t, logsSubject()) })
	t.Run("traces", func(t *testing.T) { testClone(t, tracesSubject()) })
	t.Run("metrics", func(t *testing.T) { testClone(t, metricsSubject()) })
}

func testClone[T any](t *testing.T, s subject[T]) {
	data := s.random(rand.New(rand.NewPCG(1, 2)), 20, 0)
	want := s.flatten(data)
	assert.False(t, s.IsReadOnly(data))
	s.readOnly(data)
	assert.True(t, s.IsReadOnly(data))

	s.Ref(data)
	ix := s.Index(data, true, 0) // must not change what is shared
	s.Unref(data)
	assert.Equal(t, want, s.flatten(data))

	clone := s.Clone(data)
	assert.Equal(t, s.Index(clone, true, 0).Whole(), ix.Whole())
	assert.False(t, s.IsReadOnly(clone))
	s.Cut(clone, ix, 0, ix.Items())
	assert.Equal(t, want, s.flatten(data), "a clone shares nothing with what it was made of")
}

func TestRemainder(t *testing.T) {
	t.Run("logs", func(t *testing.T) { testRemainder(t, logsSubject()) })
	t.Run("traces", func(t *testing.T) { testRemainder(t, tracesSubject()) })
	t.Run("metrics", func(t *testing.T) { testRemainder(t, metricsSubject()) })
}

func testRemainder[T any](t *testing.T, s subject[T]) {
	cause := errors.New("backend took half")
	rest, ok := s.Remainder(s.partial(cause, s.simple(3, 7)))
	require.True(t, ok)
	assert.Equal(t, []int64{7, 8, 9}, s.ids(rest))
	rest, ok = s.Remainder(s.partial(cause, s.simple(0, 0)))
	require.True(t, ok, "it says something, although nothing that helps")
	assert.Empty(t, s.ids(rest))
	for name, err := range map[string]error{
		"nil":     nil,
		"other":   cause,
		"wrapped": fmt.Errorf("sending: %w", s.partial(cause, s.simple(3, 7))),
		"joined":  errors.Join(cause, s.partial(cause, s.simple(3, 7))),
	} {
		_, ok := s.Remainder(err)
		assert.False(t, ok, name)
	}
}

func TestPooling(t *testing.T) {
	gate := pref.UseProtoPooling
	require.NoError(t, featuregate.GlobalRegistry().Set(gate.ID(), true))
	defer func() { require.NoError(t, featuregate.GlobalRegistry().Set(gate.ID(), false)) }()
	t.Run("logs", func(t *testing.T) { testPooling(t, logsSubject()) })
	t.Run("traces", func(t *testing.T) { testPooling(t, tracesSubject()) })
	t.Run("metrics", func(t *testing.T) { testPooling(t, metricsSubject()) })
}

// testPooling gives back all that Consume brought, as soon as it may: what was
// cut or merged must not be in it any more.
func testPooling[T any](t *testing.T, s subject[T]) {
	rapid.Check(t, func(t *rapid.T) {
		data := s.draw(t, 40)
		want := s.flatten(data)
		parts := pieces(t, s, data, s.Index(data, true, 0))
		s.Unref(data)
		batch := s.NewMerger(true).Begin(false)
		for i, part := range parts {
			batch.Add(part)
			if i > 0 {
				s.Unref(part)
			}
		}
		s.simple(10, 0) // takes from the pool
		assert.Equal(t, byScope(want), byScope(s.flatten(batch.Data())))
	})
}
