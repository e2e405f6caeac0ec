// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/featuregate"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata/pref"
)

// With the feature gate pdata.useProtoPooling the collector takes the data back
// when Consume returns, and makes the next request of it.

func withPooling(t *testing.T) {
	t.Helper()
	before := pref.UseProtoPooling.IsEnabled()
	require.NoError(t, featuregate.GlobalRegistry().Set(pref.UseProtoPooling.ID(), true))
	t.Cleanup(func() { require.NoError(t, featuregate.GlobalRegistry().Set(pref.UseProtoPooling.ID(), before)) })
}

// pooled is data as a receiver makes it: out of bytes, and of what the pool has.
func pooled(t *testing.T, data any) any {
	t.Helper()
	var buf []byte
	var made any
	var errs [2]error
	switch d := data.(type) {
	case ptrace.Traces:
		buf, errs[0] = (&ptrace.ProtoMarshaler{}).MarshalTraces(d)
		made, errs[1] = (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(buf)
	case pmetric.Metrics:
		buf, errs[0] = (&pmetric.ProtoMarshaler{}).MarshalMetrics(d)
		made, errs[1] = (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(buf)
	case plog.Logs:
		buf, errs[0] = (&plog.ProtoMarshaler{}).MarshalLogs(d)
		made, errs[1] = (&plog.ProtoUnmarshaler{}).UnmarshalLogs(buf)
	case pprofile.Profiles:
		buf, errs[0] = (&pprofile.ProtoMarshaler{}).MarshalProfiles(d)
		made, errs[1] = (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles(buf)
	}
	require.Equal(t, [2]error{}, errs)
	return made
}

// takeBack is what the collector does after Consume.
func takeBack(data any) {
	switch d := data.(type) {
	case ptrace.Traces:
		pref.UnrefTraces(d)
	case pmetric.Metrics:
		pref.UnrefMetrics(d)
	case plog.Logs:
		pref.UnrefLogs(d)
	case pprofile.Profiles:
		pref.UnrefProfiles(d)
	}
}

// What is queued, merged, cut and tried again stays intact, however much the pool
// is used meanwhile.
func TestPooling_QueuedDataStaysIntact(t *testing.T) {
	withPooling(t)
	for name, yaml := range map[string]string{
		"whole":       "sending_queue: {batch: {enabled: false}}",
		"merged":      "sending_queue: {batch: {min_size: 1000, flush_timeout: 1s, merge_resources: false}}",
		"joined":      "sending_queue: {batch: {min_size: 1000, flush_timeout: 1s}}",
		"cut":         "sending_queue: {batch: {min_size: 5, max_size: 5, flush_timeout: 1s, merge_resources: false}}",
		"cut by size": "sending_queue: {batch: {min_size: 5, max_bytes: 1500, flush_timeout: 1s}}",
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				r := startRig(t, k, &sink{keep: true, answer: awayFor(3)}, yaml+"\nretry_on_failure: {initial_interval: 1s, max_interval: 1s}")
				r.hold()
				var want []string
				for i := range int64(10) {
					data := pooled(t, k.simple(7, 7*i))
					want = append(want, k.flatten(data)...)
					r.mustSend(data)
					takeBack(data)
					takeBack(pooled(t, k.simple(9, 1000))) // somebody else's
				}
				runFor(2 * time.Second)
				takeBack(pooled(t, k.simple(90, 2000)))
				r.release()
				runFor(time.Minute)
				assert.Equal(t, sorted(want), r.lines())
			})
		})
	}
}

// refSignal counts the references to each request.
type refSignal struct {
	fakeSignal
	mu   *sync.Mutex
	refs map[*load]int
}

func (s refSignal) Ref(l *load) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refs[l]++
}

func (s refSignal) Unref(l *load) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refs[l]--; s.refs[l] < 0 {
		panic("let go of twice")
	}
}

func (s refSignal) held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, refs := range s.refs {
		n += refs
	}
	return n
}

// Every reference that was taken is given back, once: when the request is settled,
// or when all of it has moved to a batch, or when it was not admitted.
func TestPooling_ReferencesAreGivenBack(t *testing.T) {
	withPooling(t)
	for name, set := range map[string]batchSettings{
		"whole":  {unit: unitItems},
		"merged": {unit: unitItems, minSize: 28, flushTimeout: time.Second},
		"cut":    {unit: unitItems, minSize: 5, maxItems: 5, flushTimeout: time.Second},
		"both":   {unit: unitItems, minSize: 17, maxItems: 17, flushTimeout: time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			p := &pushes{answer: func(_ context.Context, call int, _ []int) error {
				if call%3 == 0 {
					return errAway
				}
				return nil
			}}
			s := fakeSender(queueSettings{unit: unitItems, slots: 2, batch: set}, doubling, p)
			defer s.stop()
			sig := refSignal{mu: &sync.Mutex{}, refs: map[*load]int{}}
			s.q.signal = sig
			for i := range 50 {
				offer(t, s, 7*i, 7)
			}
			runFor(time.Hour)
			assert.Len(t, sig.refs, 50)
			assert.Len(t, p.ids(), 7*50)
			assert.Zero(t, sig.held(), "references to settled requests")
			s.q.stop()
			_, err := s.q.offer(t.Context(), numbers(0, 7))
			require.ErrorIs(t, err, errStopping)
			assert.Zero(t, sig.held(), "references to what was refused")
		})
	}
}
