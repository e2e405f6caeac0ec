// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func FuzzMergeSplitLogs(f *testing.F)    { fuzzMergeSplit(f, logsSubject()) }
func FuzzMergeSplitTraces(f *testing.F)  { fuzzMergeSplit(f, tracesSubject()) }
func FuzzMergeSplitMetrics(f *testing.F) { fuzzMergeSplit(f, metricsSubject()) }

// fuzzMergeSplit takes whatever the library can unmarshal, cuts it where the
// bytes of cuts say and makes it one again.
func fuzzMergeSplit[T any](f *testing.F, s subject[T]) {
	for seed := range uint64(8) {
		buf, err := s.marshal(s.random(newRand(seed), 5*int(seed), 0))
		require.NoError(f, err)
		f.Add(buf, []byte{3, 50, 7, 200, 128})
	}
	f.Fuzz(func(t *testing.T, buf, cuts []byte) {
		data, err := s.unmarshal(buf)
		if err != nil {
			return
		}
		for _, join := range []bool{false, true} {
			whole := s.Clone(data)
			want := s.flatten(whole)
			parts := fuzzedPieces(t, s, whole, cuts)
			assert.Equal(t, want, s.flattenAll(parts))
			size := s.bytesOfAll(parts)

			batch, saved := s.merge(join, parts)
			got := s.flatten(batch)
			if join {
				want, got = byScope(want), byScope(got)
			}
			assert.Equal(t, want, got)
			assert.LessOrEqual(t, s.Bytes(batch), size-saved)
		}
	})
}

func fuzzedPieces[T any](t *testing.T, s subject[T], data T, cuts []byte) []T {
	size := s.Bytes(data)
	ix := s.Index(data, true, 0)
	assert.Equal(t, s.Items(data), ix.Items())
	assert.Equal(t, size, ix.Whole())
	assert.LessOrEqual(t, ix.Cost(0, ix.Items()), size)
	at := []int{0}
	for _, c := range cuts {
		at = append(at, ix.Items()*int(c)/256)
	}
	slices.Sort(at)
	at = append(at, ix.Items())
	var parts []T
	for i := range len(at) - 1 {
		from, to := at[i], at[i+1]
		part := s.Cut(data, ix, from, to)
		assert.Equal(t, to-from, s.Items(part))
		assert.LessOrEqual(t, s.Bytes(part), ix.Cost(from, to))
		assert.Equal(t, to, max(from, min(to, ix.Fit(from, ix.Cost(from, to)))))
		parts = append(parts, part)
	}
	return parts
}
