// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package settle

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Every row knows its own examples, and no example means something else as well.
func TestVocabulary(t *testing.T) {
	for _, w := range vocabulary {
		assert.NotEmpty(t, w.source)
		assert.NotEmpty(t, w.examples, w.pattern)
		for _, text := range w.examples {
			assert.True(t, w.pattern.MatchString(text), "%q by %s", text, w.pattern)
			size, found := sizeIn(text)
			assert.Equal(t, w.meaning == requestTooLarge || w.meaning == maybeTooLarge, found, text)
			if w.meaning == requestTooLarge {
				assert.False(t, size.Ambiguous, text)
			}
		}
	}
}
