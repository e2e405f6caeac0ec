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
	"go.opentelemetry.io/collector/consumer/consumererror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var err413 = consumererror.NewPermanent(status.Error(codes.Unknown, "request to http://b:4318/v1/logs responded with HTTP Status Code 413"))

// Single items that are too large take no neighbours along, wherever and however
// many they are.
func TestTooLarge_SingleItems(t *testing.T) {
	for _, n := range []int64{10, 70, 300} {
		for place, step := range map[string]int64{"at the head": 1, "spread": 27} {
			inBubble(t, fmt.Sprint(n, " ", place), func(t *testing.T) {
				large := func(id int64) bool { return id%step == 0 && id/step < n }
				s := &sink{answer: func(_ context.Context, c *call) error {
					if slices.ContainsFunc(c.ids, large) {
						return err413
					}
					return nil
				}}
				r := startRig(t, kindLogs, s, "sending_queue: {batch: {flush_timeout: 1s}}")
				r.mustSend(kindLogs.simple(8192, 0))
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Equal(t, account{accepted: 8192, sent: 8192 - n, dropped: n}, r.exporter.account())
				assert.Equal(t, n, r.metric("batcher_dropped_items", reasonIs(dropTooLarge)))
			})
		}
	}
}

// A backend that refuses everything costs a bounded number of calls.
func TestTooLarge_Everything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{answer: func(context.Context, *call) error { return err413 }}
		r := startRig(t, kindLogs, s, "sending_queue: {batch: {flush_timeout: 1s}}")
		r.mustSend(kindLogs.simple(8192, 0))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.EqualValues(t, 8192, r.metric("batcher_dropped_items", reasonIs(dropTooLarge)))
		assert.Less(t, len(s.calls()), 200)
	})
}

// A limit of compressed bytes refuses one batch of a size at which others pass: all
// of it arrives, and the batches that follow are whole.
func TestTooLarge_CompressedLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{answer: func(_ context.Context, c *call) error {
			if c.ids[0] >= 10_000 && c.ids[0] < 11_000 && len(c.ids) > 600 {
				return err413
			}
			return nil
		}}
		r := startRig(t, kindLogs, s, "sending_queue: {num_consumers: 1, batch: {min_size: 1000, max_size: 1000, flush_timeout: 1s}}")
		for i := range int64(20) {
			r.mustSend(kindLogs.simple(1000, 1000*i))
			time.Sleep(10 * time.Second)
		}
		synctest.Wait()
		assert.Equal(t, sequence(0, 20_000), s.ids())
		assert.Less(t, len(s.calls()), 40)
		last := s.sizes()
		assert.Equal(t, 1000, last[len(last)-1])
	})
}

// refusalOf is a 400 with that text, as otlp_http reports it.
func refusalOf(text string) error {
	return consumererror.NewPermanent(status.Error(codes.InvalidArgument,
		"request to http://b:4318/v1/logs responded with HTTP Status Code 400, Message="+text+", Details=[]"))
}

// isolating is a sender of batches of n items in front of an exporter of that type.
func isolating(n int, mode Isolate, typ string, p *pushes) *sender[*load] {
	s := fakeSender(unheard(n), steadyRetry, p)
	s.isolation = newIsolation(RefusalsConfig{Isolate: mode, MaxAttempts: 64}, typ)
	return s
}

// refusesItems refuses every call with an item for which bad is true.
func refusesItems(err error, bad func(id int) bool) func(context.Context, int, []int) error {
	return func(_ context.Context, _ int, ids []int) error {
		if slices.ContainsFunc(ids, bad) {
			return err
		}
		return nil
	}
}

// A record whose own body is too large is refused for its content: it is found, and
// teaches no size.
func TestTooLarge_OneRecordsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pushes{answer: refusesItems(refusalOf("log record 4711: body too large"), func(id int) bool { return id == 4711 })}
		s := isolating(8192, IsolateAuto, "otlp_http", p)
		defer s.stop()
		offer(t, s, 0, 8192)
		runFor(time.Minute)
		assert.Equal(t, account{accepted: 8192, sent: 8191, dropped: 1}, s.q.account())
		assert.Less(t, p.calls(), 100)
		assert.False(t, s.ceiling.learns())
	})
}

// A refusal which says that the rest was kept costs one call. From then on nothing is
// halved that this backend refuses, unless the user asks for it.
func TestRefused_RestWasKept(t *testing.T) {
	for _, text := range []string{
		"partial write: field type conflict: input field on measurement is type integer dropped=1",
		"user 'fake', total ignored: 1 out of 100 for stream: {job=\\\"x\\\"}",
		"2 of 100 records rejected, 98 accepted",
	} {
		for mode, halved := range map[Isolate]bool{IsolateAuto: false, IsolateAlways: true} {
			inBubble(t, fmt.Sprint(mode, " ", text), func(t *testing.T) {
				p := &pushes{}
				p.answer = func(_ context.Context, call int, ids []int) error {
					switch {
					case call == 1:
						return refusalOf(text)
					case slices.Contains(ids, 150):
						return errContent
					}
					return nil
				}
				s := isolating(100, mode, "otlp_http", p)
				defer s.stop()
				offer(t, s, 0, 100)
				runFor(time.Second)
				assert.Equal(t, 1, p.calls())
				assert.Equal(t, account{accepted: 100, dropped: 100}, s.q.account())
				offer(t, s, 100, 100)
				runFor(time.Second)
				if halved {
					assert.EqualValues(t, 99, s.q.account().sent)
				} else {
					assert.Equal(t, 2, p.calls())
				}
			})
		}
	}
}

// What a decoder refuses was not kept, whatever the protocol: the records that it
// cannot read are found.
func TestRefused_Undecoded(t *testing.T) {
	undecodable := consumererror.NewPermanent(status.Error(codes.Internal, "grpc: error unmarshalling request: string field contains invalid UTF-8"))
	for _, typ := range []string{"otlp_grpc", "other"} {
		for _, n := range []int{1, 10} {
			for place, step := range map[string]int{"side by side": 1, "spread": 97} {
				inBubble(t, fmt.Sprint(typ, ", ", n, " ", place), func(t *testing.T) {
					p := &pushes{answer: refusesItems(undecodable, func(id int) bool { return id%step == 0 && id/step < n })}
					s := isolating(1000, IsolateAuto, typ, p)
					defer s.stop()
					offer(t, s, 0, 1000)
					runFor(time.Minute)
					assert.Equal(t, account{accepted: 1000, sent: int64(1000 - n), dropped: int64(n)}, s.q.account())
				})
			}
		}
	}
	inBubble(t, "never", func(t *testing.T) {
		p := &pushes{answer: refusesItems(undecodable, func(id int) bool { return id == 0 })}
		s := isolating(1000, IsolateNever, "otlp_grpc", p)
		defer s.stop()
		offer(t, s, 0, 1000)
		runFor(time.Minute)
		assert.Equal(t, account{accepted: 1000, dropped: 1000}, s.q.account())
		assert.Equal(t, 1, p.calls())
	})
}

// Words that may be about a request or about one item mean the request, unless one of
// that size has passed lately.
func TestTooLarge_WordsAndEvidence(t *testing.T) {
	ambiguous := refusalOf("body too large")
	inBubble(t, "a request", func(t *testing.T) {
		p := &pushes{answer: func(_ context.Context, _ int, ids []int) error {
			if len(ids) > 30 {
				return ambiguous
			}
			return nil
		}}
		s := isolating(100, IsolateNever, "otlp_http", p)
		defer s.stop()
		offer(t, s, 0, 100)
		runFor(time.Second)
		assert.Equal(t, account{accepted: 100, sent: 100}, s.q.account())
		assert.True(t, s.ceiling.learns())
	})
	inBubble(t, "an item", func(t *testing.T) {
		p := &pushes{answer: refusesItems(ambiguous, func(id int) bool { return id == 150 })}
		s := isolating(100, IsolateAuto, "otlp_http", p)
		defer s.stop()
		offer(t, s, 0, 100)
		runFor(time.Second)
		offer(t, s, 100, 100)
		runFor(time.Second)
		assert.Equal(t, account{accepted: 200, sent: 199, dropped: 1}, s.q.account())
		assert.False(t, s.ceiling.learns())
	})
}

// Items that are sent again after a refusal, which a backend may have kept, are
// counted each time.
func TestRefused_ResentItemsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t, kindLogs, &sink{answer: func(_ context.Context, c *call) error {
			if slices.Contains(c.ids, 0) {
				return errContent
			}
			return nil
		}}, "refusals: {isolate: always}\nsending_queue: {batch: {min_size: 4}}")
		r.mustSend(logsOf(4, 0))
		synctest.Wait()
		assert.Equal(t, account{accepted: 4, sent: 3, dropped: 1}, r.exporter.account())
		assert.EqualValues(t, 4+2, r.metric("batcher_resent_items"))
	})
}
