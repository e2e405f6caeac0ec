// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pullbatch/batcherexporter/bench/internal/input"
	"github.com/pullbatch/batcherexporter/bench/internal/measure"
	"github.com/pullbatch/batcherexporter/bench/internal/report"
	"github.com/pullbatch/batcherexporter/bench/internal/subject"
)

const (
	oversizeRequests = 20
	oversizeItems    = 100
	oversizeLimit    = 64 << 10
	largeItemBytes   = 100 << 10
)

// oversized is what came of a load with one item that is larger than the limit.
type oversized struct{ small, large, shared int64 }

// oversizeTable is T13: one item that no batch can hold.
func oversizeTable(ctx context.Context, s Settings) (report.Section, error) {
	sec := report.Section{Title: "An item above the limit", Note: "20 requests of 100 items, one of which has 100 KiB, and a limit of 64 KiB: " +
		"as the bound of a batch, or as the destination's own, while batches are of 1000 items. `shared` are calls above the limit that had small items in them."}
	t := &report.Table{Head: []string{"signal", "limit", "subject", "small items of 1999", "large item", "shared"}}
	for _, signal := range []input.Signal{input.Logs, input.Traces, input.Metrics} {
		for _, refuses := range []bool{false, true} {
			for _, m := range oversizeMakers(refuses) {
				o, err := oversize(ctx, m, signal, refuses)
				if err != nil {
					return sec, err
				}
				limit := "batch"
				if refuses {
					limit = "destination"
				}
				t.Add(string(signal), limit, m.Name, strconv.FormatInt(o.small, 10), strconv.FormatInt(o.large, 10), strconv.FormatInt(o.shared, 10))
				if m.Name == batcher {
					lost := oversizeRequests*oversizeItems - 1 - o.small
					sec.Judge("T13", string(signal)+", limit of the "+limit+", small items lost", 0, measure.Exact(float64(lost)))
				}
			}
		}
	}
	s.Log("oversize: done")
	sec.Tables = []*report.Table{t}
	return sec, nil
}

func oversizeMakers(refuses bool) []subject.Maker {
	makers := []subject.Maker{subject.Helper, subject.Batcher}
	if refuses {
		makers = append(makers, subject.Processor)
	}
	return makers
}

// oversize puts the load through a subject. That items are lost is an outcome, not
// an error.
func oversize(ctx context.Context, m subject.Maker, signal input.Signal, refuses bool) (oversized, error) {
	var small, large, shared atomic.Int64
	sink := &subject.Sink{Each: func(data any) error {
		size, items := input.Bytes(data), int64(input.Items(data))
		if size <= oversizeLimit {
			small.Add(items)
			return nil
		}
		if refuses {
			return consumererror.NewPermanent(status.Errorf(codes.ResourceExhausted,
				"grpc: received message larger than max (%d vs. %d)", size, oversizeLimit))
		}
		small.Add(items - 1)
		large.Add(1)
		if items > 1 {
			shared.Add(1)
		}
		return nil
	}}
	c := cell{input: input.Spec{Signal: signal, Items: oversizeItems, Total: oversizeRequests * oversizeItems, Resources: 1}, max: 1000}
	if !refuses {
		c.max, c.inBytes = oversizeLimit, true
	}
	set := c.setup()
	set.Sink = sink
	requests := c.input.Requests()
	input.Grow(requests[7], oversizeItems/2, largeItemBytes)
	err := putThrough(ctx, m, set, requests)
	return oversized{small.Load(), large.Load(), shared.Load()}, err
}

func putThrough(ctx context.Context, m subject.Maker, set subject.Setup, requests []any) error {
	sub, err := m.Open(ctx, set)
	if err != nil {
		return err
	}
	for _, data := range requests {
		err = errors.Join(err, sub.Consume(ctx, data))
	}
	return errors.Join(err, sub.Shutdown(ctx))
}
