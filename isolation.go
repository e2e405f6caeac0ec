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
	never    bool // the user said so
	asked    bool // the user asked for it
	maxCalls int  // for one batch

	mu struct {
		sync.Mutex
		pausedUntil time.Time
		off         bool // the backend keeps a part of what it refuses
	}
}

// allInOne are the exporters whose protocols take all of a request or nothing.
// Some backends of others keep half of it and say no: halving would send that
// half twice.
var allInOne = map[string]bool{"otlp": true, "otlp_grpc": true, "otlphttp": true, "otlp_http": true}

// newIsolation is for a wrapped exporter of that type.
func newIsolation(cfg RefusalsConfig, wrapped string) *isolation {
	on := cfg.Isolate == IsolateAlways || cfg.Isolate == IsolateAuto && allInOne[wrapped]
	return &isolation{
		on: on, never: cfg.Isolate == IsolateNever, asked: cfg.Isolate == IsolateAlways, maxCalls: cfg.MaxAttempts,
	}
}

// active says whether a batch that was refused like that is to be halved. Where the
// decoder refused it nothing was kept, whatever the protocol.
func (i *isolation) active(v settle.Verdict) bool {
	if i.never || v.Kept {
		return false
	}
	if v.Undecoded {
		return true
	}
	if !i.on {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return !i.mu.off && !time.Now().Before(i.mu.pausedUntil)
}

// heed ends the halving for good where a refusal says that the rest was kept, unless
// the user asked for it: this backend would get that rest twice.
func (i *isolation) heed(v settle.Verdict) {
	if !v.Kept || i.asked {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.off = true
}

func (i *isolation) pause() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.pausedUntil = time.Now().Add(isolationPause)
}

// search is the state of finding what is refused in one part of a batch; the
// pieces that it is halved into share it.
type search struct {
	saved    bool           // something of it was delivered
	first    settle.Verdict // of the whole part
	quarters int            // that were refused like it
}

// quarterDepth is how often a part is halved before it is clear whether all of it
// is bad.
const quarterDepth = 2

// hopeless notes the refusal of a piece that was halved that often, and says
// whether all four quarters have now failed alike and nothing was saved.
func (s *search) hopeless(v settle.Verdict, depth int) bool {
	if depth == quarterDepth && v.Alike(s.first) {
		s.quarters++
	}
	return !s.saved && s.quarters == 1<<quarterDepth
}
