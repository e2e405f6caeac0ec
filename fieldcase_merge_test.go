// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata/entity"
)

// What the open batch holds counts: 7, 8 and 5 leave as 10 and 10, by bytes with
// whole items below the bound.
func TestFieldCase17_OpenBatchCounts(t *testing.T) {
	t.Run("items", func(t *testing.T) {
		eachKind(t, func(t *testing.T, k kind) {
			r := startRig(t, k, &sink{}, "sending_queue: {num_consumers: 1, queue_size: 2000, batch: {min_size: 10, max_size: 10}}")
			for _, data := range []any{k.simple(7, 0), k.simple(8, 7), k.simple(5, 15)} {
				r.mustSend(data)
			}
			synctest.Wait()
			assert.Equal(t, []int{10, 10}, r.sizes())
			for i := range int64(1000) {
				r.mustSend(k.simple(1, 20+i))
			}
			synctest.Wait()
			assert.Equal(t, slices.Repeat([]int{10}, 102), r.sizes())
			assert.Equal(t, sequence(0, 1020), r.ids())
			assert.Zero(t, r.exporter.account().used)
		})
	})
	t.Run("bytes", func(t *testing.T) {
		eachKind(t, func(t *testing.T, k kind) {
			limit := k.bytes(k.simple(10, 1_000_000))
			r := startRig(t, k, &sink{}, fmt.Sprintf("sending_queue: {num_consumers: 1, queue_size: 2000, batch: {sizer: bytes, min_size: %d, max_size: %[1]d}}", limit))
			for _, data := range []any{k.simple(7, 0), k.simple(8, 7), k.simple(5, 15)} {
				r.mustSend(data)
			}
			for i := range int64(1000) {
				r.mustSend(k.simple(1, 20+i))
			}
			time.Sleep(time.Second)
			synctest.Wait()
			for _, c := range r.taken() {
				assert.LessOrEqual(t, c.bytes, limit)
			}
			assert.Equal(t, sequence(0, 1020), r.ids())
		})
	})
}

// oneSpan is a request of one span. Every other one has the attributes of its
// resource and scope in another order.
func oneSpan(id int64) ptrace.Traces {
	data := kindTraces.simple(1, id).(ptrace.Traces)
	r := data.ResourceSpans().At(0)
	for _, attrs := range []pcommon.Map{r.Resource().Attributes(), r.ScopeSpans().At(0).Scope().Attributes()} {
		keys := []string{"a", "b", "c"}
		if id%2 == 1 {
			slices.Reverse(keys)
		}
		attrs.Clear()
		for _, key := range keys {
			attrs.PutStr(key, "value of "+key)
		}
	}
	return data
}

// Requests of equal resource and scope share one header, in whatever order their
// attributes are, and the size that is reported is that of what is sent.
func TestFieldCase21_EqualResourcesShareOneHeader(t *testing.T) {
	for merge, want := range map[bool]int{true: 2, false: 1001} {
		inBubble(t, fmt.Sprintf("merge_resources=%v", merge), func(t *testing.T) {
			resources, scopes := 0, 0
			s := &sink{keep: true, answer: func(_ context.Context, c *call) error {
				for _, r := range c.data.(ptrace.Traces).ResourceSpans().All() {
					resources++
					scopes += r.ScopeSpans().Len()
				}
				return nil
			}}
			r := startRig(t, kindTraces, s, fmt.Sprintf("sending_queue: {queue_size: 2000, batch: {min_size: 1001, merge_resources: %v}}", merge))
			var lines []string
			for id := range int64(1001) {
				data := oneSpan(id)
				if id == 500 {
					data.ResourceSpans().At(0).SetSchemaUrl("https://example.com/1")
				}
				lines = append(lines, kindTraces.flatten(data)...)
				r.mustSend(data)
			}
			synctest.Wait()
			require.Equal(t, []int{1001}, r.sizes())
			assert.Equal(t, want, resources)
			assert.Equal(t, want, scopes)
			assert.Equal(t, sorted(lines), r.lines())
			assert.Equal(t, summary{1, float64(r.taken()[0].bytes)}, histogram[int64](t, r.telemetry, "otelcol_exporter_queue_batch_send_size_bytes"))
		})
	}
}

// What differs in any field is not joined.
func TestFieldCase21_DifferentResourcesDoNot(t *testing.T) {
	for name, change := range map[string]func(ptrace.ResourceSpans){
		"resource schema URL": func(r ptrace.ResourceSpans) { r.SetSchemaUrl("https://example.com/1") },
		"resource dropped":    func(r ptrace.ResourceSpans) { r.Resource().SetDroppedAttributesCount(1) },
		"entity reference":    func(r ptrace.ResourceSpans) { entity.ResourceEntityRefs(r.Resource()).AppendEmpty().SetType("host") },
		"scope schema URL":    func(r ptrace.ResourceSpans) { r.ScopeSpans().At(0).SetSchemaUrl("https://example.com/1") },
		"scope dropped":       func(r ptrace.ResourceSpans) { r.ScopeSpans().At(0).Scope().SetDroppedAttributesCount(1) },
		"scope version":       func(r ptrace.ResourceSpans) { r.ScopeSpans().At(0).Scope().SetVersion("2") },
	} {
		inBubble(t, name, func(t *testing.T) {
			groups := 0
			s := &sink{keep: true, answer: func(_ context.Context, c *call) error {
				for _, r := range c.data.(ptrace.Traces).ResourceSpans().All() {
					groups += r.ScopeSpans().Len()
				}
				return nil
			}}
			r := startRig(t, kindTraces, s, "sending_queue: {batch: {min_size: 3}}")
			var lines []string
			for id := range int64(3) {
				data := oneSpan(id)
				if id == 1 {
					change(data.ResourceSpans().At(0))
				}
				lines = append(lines, kindTraces.flatten(data)...)
				r.mustSend(data)
			}
			synctest.Wait()
			require.Equal(t, []int{3}, r.sizes())
			assert.Equal(t, 2, groups)
			assert.Equal(t, sorted(lines), r.lines())
		})
	}
}

// Data that a fan-out shares with others is not changed. The exporter declares
// that it changes data when it makes batches; without, it gets shared data, and
// gives a wrapped exporter that changes data a copy: whether it does is not known
// yet when the collector asks.
func TestFieldCase102_SharedDataIsNotChanged(t *testing.T) {
	for _, batches := range []bool{true, false} {
		for _, mutates := range []bool{true, false} {
			t.Run(fmt.Sprintf("batches=%v mutates=%v", batches, mutates), func(t *testing.T) {
				eachKind(t, func(t *testing.T, k kind) {
					r := startRig(t, k, &sink{mutates: mutates, keep: true}, fmt.Sprintf("sending_queue: {batch: {enabled: %v, min_size: 3, max_size: 3}}", batches))
					assert.Equal(t, batches, r.exporter.consumer.Capabilities().MutatesData)
					shared := k.simple(10, 0)
					want := k.flatten(shared)
					data := shared
					if batches {
						data = k.clone(shared)
					}
					shared.(interface{ MarkReadOnly() }).MarkReadOnly()
					r.mustSend(data)
					r.flush()
					assert.Equal(t, want, k.flatten(shared))
					assert.Equal(t, sorted(want), r.lines())
				})
			})
		}
	}
}
