// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"fmt"
	"testing"

	"go.opentelemetry.io/collector/pdata/plog"
)

// Linear means that ns/item hardly depends on the size: of the request for
// BenchmarkSplit, of the batch for BenchmarkMerge.

func perItem(b *testing.B, items int) {
	b.Helper()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(items), "ns/item")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSplit cuts a request into pieces of 512, its index included.
func BenchmarkSplit(b *testing.B) {
	for _, items := range []int{10_000, 1_000_000} {
		for _, bytes := range []bool{false, true} {
			b.Run(fmt.Sprintf("items=%d/bytes=%v", items, bytes), func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					b.StopTimer()
					data := logsSubject().simple(items, 0)
					b.StartTimer()
					split(data, bytes)
				}
				perItem(b, items)
			})
		}
	}
}

func split(data plog.Logs, bytes bool) {
	s := Logs()
	ix := s.Index(data, bytes, 0)
	room := 0
	if bytes {
		room = ix.Cost(0, 512)
	}
	for from := 0; from < ix.Items(); {
		to := min(from+512, ix.Items())
		if bytes {
			to = ix.Fit(from, room)
		}
		s.Cut(data, ix, from, to)
		from = to
	}
}

// BenchmarkMerge makes batches of requests of 10, whose resources take turns. In
// batches of 51 requests of fifty resources hardly any is equal to another, so
// the sampler switches joining off.
func BenchmarkMerge(b *testing.B) {
	for _, join := range []bool{false, true} {
		for _, resources := range []int{1, 50} {
			for _, items := range []int{512, 131_072} {
				b.Run(fmt.Sprintf("join=%v/resources=%d/batch=%d", join, resources, items), func(b *testing.B) {
					benchmarkMerge(b, join, resources, items/10)
				})
			}
		}
	}
}

func benchmarkMerge(b *testing.B, join bool, resources, requests int) {
	b.Helper()
	const perRequest = 10
	b.ReportAllocs()
	merger := Logs().NewMerger(join)
	all := make([]plog.Logs, requests)
	for range b.N {
		b.StopTimer()
		for i := range all {
			all[i] = logsSubject().simple(perRequest, 0)
			all[i].ResourceLogs().At(0).Resource().Attributes().PutInt("number", int64(i%resources))
		}
		b.StartTimer()
		batch := merger.Begin(false)
		for _, data := range all {
			batch.Add(data)
		}
		batch.Data()
	}
	perItem(b, perRequest*requests)
}

// BenchmarkIndex is what an index with bytes costs, and of that the sizes alone.
func BenchmarkIndex(b *testing.B) {
	b.Run("logs", func(b *testing.B) { benchmarkIndex(b, logsSubject()) })
	b.Run("traces", func(b *testing.B) { benchmarkIndex(b, tracesSubject()) })
	b.Run("metrics", func(b *testing.B) { benchmarkIndex(b, metricsSubject()) })
}

func benchmarkIndex[T any](b *testing.B, s subject[T]) {
	b.Helper()
	const items = 1000
	for name, data := range map[string]T{"simple": s.simple(items, 0), "random": s.random(newRand(1), items, 0)} {
		b.Run(name+"/index", func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				s.Index(data, true, 0)
			}
			perItem(b, items)
		})
		b.Run(name+"/size", func(b *testing.B) {
			for range b.N {
				s.Bytes(data)
			}
			perItem(b, items)
		})
	}
}

func BenchmarkFit(b *testing.B) {
	s := logsSubject()
	ix := s.Index(s.simple(1_000_000, 0), true, 0)
	room := ix.Cost(0, 512)
	b.ResetTimer()
	for i := range b.N {
		ix.Fit((i*512)%900_000, room)
	}
}
