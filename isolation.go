// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"sync"
	"time"

	"github.com/pullbatch/batcherexporter/internal/settle"
)

// isolationPause is how long batches that are refused for their content are not
// halved, after one of which halving saved nothing.
const isolationPause = time.Minute

// isolation decides whether a batch that was refused for its content is halved,
// so that one bad record costs one record and its own caller.
type isolation struct {
	// Fixed after construction.
	on       bool
	maxCalls int // for one batch

	mu struct {
		sync.Mutex
		pausedUntil time.Time
	}
}

// allInOne are the exporters whose protocols take all of a request or nothing.
// Some backends of others keep half of it and say no: halving would send that
// half twice.
var allInOne = map[string]bool{"otlp": true, "otlp_grpc": true, "otlphttp": true, "otlp_http": true}

// newIsolation is for a wrapped exporter of that type.
func newIsolation(cfg RefusalsConfig, wrapped string) *isolation {
	on := cfg.Isolate == IsolateAlways || cfg.Isolate == IsolateAuto && allInOne[wrapped]
	return &isolation{on: on, maxCalls: cfg.MaxAttempts}
}

func (i *isolation) active() bool {
	if !i.on {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return !time.Now().Before(i.mu.pausedUntil)
}

func (i *isolation) pause() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.pausedUntil = time.Now().Add(isolationPause)
}

// search is the state of isolating one batch.
type search struct {
	calls    int // made since the batch was refused
	saved    int // items that were delivered since
	first    settle.Verdict
	quarters int // that were refused like the first
}

// quarterDepth is how often the batch is halved before it is clear whether all of
// it is bad.
const quarterDepth = 2

// refused notes the refusal of a piece that was halved that often. It reports
// whether halving is worth going on.
func (s *search) refused(v settle.Verdict, depth, maxCalls int) bool {
	if depth == 0 {
		s.first, s.quarters = v, 0
	}
	if depth == quarterDepth && v.Alike(s.first) {
		s.quarters++
	}
	return s.quarters < 1<<quarterDepth && s.calls < maxCalls
}
