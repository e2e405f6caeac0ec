// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"testing"

	"github.com/stretchr/testify/assert"
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
	s.found(sampleSize, 0)
	for range pauseRatio * sampleSize / 10 {
		assert.False(t, s.on())
		s.passed(10)
	}
	s.passed(10)
	assert.True(t, s.on())
	s.found(sampleSize, sampleSize/2)
	assert.True(t, s.on(), "the new sample counts alone")
	s.found(sampleSize, 0)
	assert.False(t, s.on())
}
