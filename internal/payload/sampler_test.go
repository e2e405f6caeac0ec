// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pullbatch/batcherexporter/internal/payload/payloadtest"
)

func TestSampler(t *testing.T) {
	for _, tt := range []struct {
		name   string
		seen   int // resources of each batch
		joined int
		want   bool // on after the first sample
	}{
		{"all equal", 50, 49, true},
		{"just enough", worthwhile, 1, true},
		{"not enough", 2 * worthwhile, 1, false},
		{"none equal", 1, 0, false},
		{"large batches", 10 * sampleSize, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s sampler
			for seen := 0; seen < sampleSize; seen += tt.seen {
				assert.True(t, s.on(), "a sample is taken as a whole")
				s.found(tt.seen, tt.joined)
			}
			assert.Equal(t, tt.want, s.on())
		})
	}
}

func TestSamplerTriesAgain(t *testing.T) {
	var s sampler
	for pause := firstPause; pause <= 4*longestPause; pause *= 2 {
		s.found(sampleSize, 0)
		for range min(pause, longestPause) * sampleSize / 16 {
			assert.False(t, s.on())
			s.passed(16)
		}
		assert.True(t, s.on(), "after a pause of %d", pause)
	}
	s.found(sampleSize, sampleSize/2)
	assert.True(t, s.on(), "the new sample counts alone")
	s.found(sampleSize, 0)
	assert.False(t, s.on())
	s.passed(firstPause * sampleSize)
	assert.True(t, s.on(), "the first pause after a sample that was not in vain is short")
}

// TestSamplerEndsJoiningInABatch has a batch that joins at first: what is not
// joined any more stays behind it.
func TestSamplerEndsJoiningInABatch(t *testing.T) {
	m := Logs().NewMerger(true)
	b := m.Begin(false)
	all := 2*sampleSize + 2*tallied
	for i := range all {
		data := logsSubject().simple(1, int64(i))
		if i%(2*worthwhile) > 0 { // some are equal, not enough
			data.ResourceLogs().At(0).Resource().Attributes().PutInt("number", int64(i))
		}
		b.Add(data)
	}
	resources := b.Data().ResourceLogs()
	assert.Less(t, resources.Len(), all)
	assert.Greater(t, resources.Len(), all-sampleSize/worthwhile, "it stopped after a sample")
	last := int64(-1)
	for _, id := range payloadtest.IDsLogs(b.Data()) {
		if id%(2*worthwhile) == 0 {
			assert.Greater(t, id, last)
			last = id
		}
	}
}
