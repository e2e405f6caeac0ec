// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
)

// recorder is a client that refuses every request of a size.
type recorder struct {
	refuse int

	mu struct {
		sync.Mutex
		sent map[otlpdata.Range]bool
	}
}

func (r *recorder) Send(_ context.Context, _ otlpdata.Signal, request otlpdata.Range) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.sent == nil {
		r.mu.sent = map[otlpdata.Range]bool{}
	}
	r.mu.sent[request] = true
	if request.Items == r.refuse {
		return errors.New("refused")
	}
	return nil
}

func (r *recorder) Close() error { return nil }

func TestLoadIsTheSameEachTime(t *testing.T) {
	load := Load{Items: 1003, MaxItems: 20, Workers: 4, Seed: 3}
	first, second := &recorder{}, &recorder{}
	outcome := load.Run(t.Context(), first)
	load.Run(t.Context(), second)
	assert.Equal(t, 1003, outcome.Items())
	assert.Len(t, outcome.Accepted, len(first.mu.sent))
	assert.Equal(t, first.mu.sent, second.mu.sent)

	load.Seed++
	other := &recorder{}
	load.Run(t.Context(), other)
	assert.NotEqual(t, first.mu.sent, other.mu.sent)
}

func TestLoadGivesEachItemAnIdentity(t *testing.T) {
	outcome := Load{Items: 1003, MaxItems: 20, Workers: 4}.Run(t.Context(), &recorder{})
	seen := map[uint64]bool{}
	for _, r := range outcome.Accepted {
		assert.LessOrEqual(t, r.Items, 20)
		for id := r.First; id < r.First+uint64(r.Items); id++ {
			assert.False(t, seen[id], id)
			seen[id] = true
		}
	}
	assert.Len(t, seen, 1003)
	assert.False(t, seen[0], "0 is no span ID")
}

func TestLoadTellsAcceptedFromFailed(t *testing.T) {
	outcome := Load{Items: 1000, MaxItems: 3, Workers: 2}.Run(t.Context(), &recorder{refuse: 3})
	assert.EqualError(t, outcome.Err, "request of 3 items: refused")
	failed := 0
	for _, r := range outcome.Failed {
		assert.Equal(t, 3, r.Items)
		failed += r.Items
	}
	for _, r := range outcome.Accepted {
		assert.NotEqual(t, 3, r.Items)
	}
	assert.Equal(t, 1000, outcome.Items()+failed)
}

// ending closes a channel with its third request.
type ending struct {
	recorder
	end chan struct{}
}

func (e *ending) Send(ctx context.Context, signal otlpdata.Signal, r otlpdata.Range) error {
	err := e.recorder.Send(ctx, signal, r)
	if len(e.mu.sent) == 3 {
		close(e.end)
	}
	return err
}

func TestLoadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &ending{end: make(chan struct{})}
		began := time.Now()
		outcome := Load{MaxItems: 5, Workers: 1, Pause: time.Hour, End: c.end, BodyBytes: 7}.Run(t.Context(), c)
		require.NoError(t, outcome.Err)
		assert.Len(t, outcome.Accepted, 3)
		assert.Equal(t, 7, outcome.Accepted[0].BodyBytes)
		assert.Equal(t, 2*time.Hour, time.Since(began))
	})
}
