// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumererror/xconsumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"pgregory.net/rapid"

	"github.com/pullbatch/batcherexporter/internal/payload"
)

// plan is a random life of a batcher: its configuration, what it gets, how the
// wrapped exporter behaves, and when it stops. A run of it makes a history,
// which the properties then look at.
type plan struct {
	kind kind
	seed uint64 // of the data and of the behaviour

	queue struct {
		sizer       string
		size        int
		slots       int
		block, wait bool
	}
	batch struct {
		sizer    string
		min, max int
		maxBytes int
		linger   time.Duration
		drop     bool
		join     bool
	}
	retry      bool
	maxElapsed time.Duration
	timeout    time.Duration
	drain      time.Duration

	behaviour behaviour
	steps     []step
	settled   bool // the stop comes when nothing is left to do
	checkUsed bool // every caller waits, so it is known what is in the queue
}

// step is one thing that happens: data comes, a flush is asked for, time goes by.
type step struct {
	items    int           // above 0: a request
	patience time.Duration // of its caller; 0: endless
	flush    bool
	pause    time.Duration
}

// behaviour is how often, in percent, the wrapped exporter does what; in all
// other cases it takes the data at once. It misbehaves a limited number of times
// for each batch, so that every run ends.
type behaviour struct {
	retryable, throttled, permanent, partial, slow, hanging int
	mutates                                                 bool
}

const (
	mostFailures = 4 // of one batch, in a row
	slowness     = 300 * time.Millisecond
)

// kinds are the signals by their names, which say more in the log of a failure.
var kinds = map[string]kind{"traces": kindTraces, "metrics": kindMetrics, "logs": kindLogs, "profiles": kindProfiles}

// drawPlan draws a plan without misbehaviour; the properties add what they are
// about.
func drawPlan(t *rapid.T) plan {
	p := plan{
		kind:    kinds[rapid.SampledFrom([]string{"traces", "metrics", "logs", "profiles"}).Draw(t, "signal")],
		seed:    rapid.Uint64().Draw(t, "seed"),
		retry:   true,
		drain:   time.Hour,
		settled: true,
	}
	q, b := &p.queue, &p.batch
	q.sizer = rapid.SampledFrom([]string{"requests", "items", "bytes"}).Draw(t, "queue sizer")
	q.size = map[string]int{"requests": 1000, "items": 20_000, "bytes": 20_000_000}[q.sizer]
	q.slots = rapid.IntRange(1, 4).Draw(t, "num_consumers")
	b.sizer = rapid.SampledFrom([]string{"items", "bytes"}).Draw(t, "batch sizer")
	unit := map[string]int{"items": 1, "bytes": 200}[b.sizer]
	b.min = unit * rapid.IntRange(0, 30).Draw(t, "min_size")
	if rapid.Bool().Draw(t, "bounded") {
		b.max = b.min + unit*rapid.IntRange(1, 30).Draw(t, "max_size above")
	}
	if rapid.Bool().Draw(t, "bounded by bytes") {
		b.maxBytes = rapid.IntRange(400, 6000).Draw(t, "max_bytes")
		if b.sizer == "bytes" {
			b.maxBytes += b.min
		}
	}
	b.linger = time.Duration(rapid.IntRange(1, 1000).Draw(t, "flush_timeout, ms")) * time.Millisecond
	b.join = rapid.Bool().Draw(t, "merge_resources")
	p.behaviour.mutates = rapid.Bool().Draw(t, "mutates")
	p.steps = drawSteps(t)
	return p
}

func drawSteps(t *rapid.T) []step {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		switch n := rapid.IntRange(0, 9).Draw(t, "what"); {
		case n < 7:
			return step{items: rapid.IntRange(1, 40).Draw(t, "items")}
		case n < 9:
			return step{pause: time.Duration(rapid.IntRange(1, 700).Draw(t, "pause, ms")) * time.Millisecond}
		default:
			return step{flush: true}
		}
	}), 0, 40).Draw(t, "steps")
}

// scarce makes the queue small, so that requests are refused or wait.
func (p *plan) scarce(t *rapid.T) {
	q, b := &p.queue, &p.batch
	unit := map[string]int{"requests": 1, "items": 20, "bytes": 5000}[q.sizer]
	q.size = unit * rapid.IntRange(1, 10).Draw(t, "queue_size")
	if b.sizer == q.sizer {
		b.min = min(b.min, q.size)
	}
	q.block = rapid.Bool().Draw(t, "block_on_overflow")
	for i := range p.steps {
		p.steps[i].patience = time.Duration(rapid.IntRange(0, 900).Draw(t, "patience, ms")) * time.Millisecond
	}
}

// troubled makes the wrapped exporter fail in all ways.
func (p *plan) troubled(t *rapid.T) {
	percent := rapid.IntRange(0, 20)
	p.behaviour.retryable = percent.Draw(t, "retryable %")
	p.behaviour.throttled = percent.Draw(t, "throttled %")
	p.behaviour.permanent = percent.Draw(t, "permanent %")
	p.behaviour.partial = percent.Draw(t, "partial %")
	p.behaviour.slow = percent.Draw(t, "slow %")
	if rapid.Bool().Draw(t, "timeout") {
		p.timeout = slowness / 2
		p.behaviour.hanging = percent.Draw(t, "hanging %")
	}
	p.retry = rapid.IntRange(0, 3).Draw(t, "retries") > 0
	if rapid.Bool().Draw(t, "retries end") {
		p.maxElapsed = time.Duration(rapid.IntRange(0, 5).Draw(t, "max_elapsed_time, s")) * time.Second
	}
	p.batch.drop = rapid.Bool().Draw(t, "drop oversized")
}

// hurried makes the stop come at a random moment and with little time.
func (p *plan) hurried(t *rapid.T) {
	p.settled = rapid.Bool().Draw(t, "settled before the stop")
	p.drain = time.Duration(rapid.IntRange(0, 1000).Draw(t, "drain_timeout, ms")) * time.Millisecond
}

func (p *plan) yaml() string {
	q, b := &p.queue, &p.batch
	oversize := OversizeSend
	if b.drop {
		oversize = OversizeDrop
	}
	return fmt.Sprintf(`
timeout: %v
drain_timeout: %v
retry_on_failure: {enabled: %v, initial_interval: 100ms, max_interval: 1s, randomization_factor: 0, max_elapsed_time: %v}
sending_queue:
  {sizer: %s, queue_size: %d, num_consumers: %d, block_on_overflow: %v, wait_for_result: %v,
   batch: {sizer: %s, min_size: %d, max_size: %d, max_bytes: %d, flush_timeout: %v, oversize: %s, merge_resources: %v}}`,
		p.timeout, p.drain, p.retry, p.maxElapsed,
		q.sizer, q.size, q.slots, q.block, q.wait,
		b.sizer, b.min, b.max, b.maxBytes, b.linger, oversize, b.join)
}

// history is what happened in a run of a plan.
type history struct {
	plan
	rig       *rig
	requests  []*request
	batches   []*sent
	faults    []string // what was wrong on the way
	unflushed []error  // what flushes returned that did not cover delivered data only

	flushed  int // flushes that have returned
	shutdown error
	stopping time.Duration    // how long the stop took
	over     time.Time        // when the time to send was over
	idle     map[string]int64 // metrics when all was settled
	stopped  map[string]int64 // metrics after the stop
	account  account

	mu sync.Mutex // the calls come from many goroutines
	of map[int64]*sent
}

// request is one incoming call.
type request struct {
	ids          []int64
	lines        []string
	bytes        int
	patience     time.Duration
	began, ended time.Time
	err          error
}

// sent is a batch as the wrapped exporter saw it.
type sent struct {
	ids       []int64
	attempts  []*attempt
	delivered map[int64]int // how often each item was taken
}

type attempt struct {
	ids          []int64
	lines        []string
	bytes        int
	began, ended time.Time
	class        string // "" for success
	err          error
	took         int // items
}

func (s *sent) last() *attempt { return s.attempts[len(s.attempts)-1] }

// callError is the error of one call, to be recognised where it arrives.
type callError struct {
	number int
	class  string
}

func (e *callError) Error() string { return fmt.Sprintf("call %d: %s", e.number, e.class) }

// run runs a plan in fake time. Every goroutine has ended when it returns.
func (p plan) run(t *testing.T) *history {
	h := &history{plan: p, of: map[int64]*sent{}}
	synctest.Test(t, func(t *testing.T) {
		h.rig = startRig(t, p.kind, &sink{answer: h.answer, mutates: p.behaviour.mutates}, p.yaml())
		h.rig.stopped = true // by us
		next := int64(0)
		for _, s := range p.steps {
			next += h.step(t, s, next)
			synctest.Wait()
			h.balance()
		}
		if p.settled {
			runFor(time.Hour)
			h.balance()
			h.idle = h.metrics(t)
		}
		h.stop(t)
	})
	return h
}

// fault notes that something was wrong.
func (h *history) fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, fmt.Sprintf(format, args...))
}

// step does one step and returns the number of items that it brought.
func (h *history) step(t *testing.T, s step, first int64) int64 {
	switch {
	case s.items > 0:
		data := h.kind.random(rand.New(rand.NewPCG(h.seed, uint64(first))), s.items, first)
		r := &request{ids: h.kind.ids(data), lines: h.kind.flatten(data), bytes: h.kind.bytes(data), patience: s.patience, began: time.Now()}
		h.requests = append(h.requests, r)
		go h.ask(t.Context(), r, data)
	case s.flush:
		go func() {
			err := h.rig.exporter.consumer.Flush(context.WithoutCancel(t.Context()))
			h.mu.Lock()
			defer h.mu.Unlock()
			h.flushed++
			if err != nil {
				h.unflushed = append(h.unflushed, err)
			}
		}()
	default:
		time.Sleep(s.pause)
	}
	return int64(s.items)
}

// ask is a caller: it waits as long as its patience lasts.
func (h *history) ask(ctx context.Context, r *request, data any) {
	ctx = context.WithoutCancel(ctx)
	if r.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.patience)
		defer cancel()
	}
	err := h.rig.exporter.consume(ctx, data)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !r.ended.IsZero() {
		h.faults = append(h.faults, "a call ended twice")
	}
	r.err, r.ended = err, time.Now()
}

// balance checks what must hold whenever the lock is free.
func (h *history) balance() {
	a := h.rig.exporter.account()
	if a.accepted != a.sent+a.dropped+a.pending {
		h.fault("accepted %d, but sent %d, dropped %d and pending %d", a.accepted, a.sent, a.dropped, a.pending)
	}
	if a.used < 0 || a.used > int64(h.queue.size) || a.pending < 0 {
		h.fault("%d of %d %s are taken by %d items", a.used, h.queue.size, h.queue.sizer, a.pending)
	}
	if (a.used == 0) != (a.pending == 0) {
		h.fault("%d %s are taken by %d items", a.used, h.queue.sizer, a.pending)
	}
	if want := h.unsettled(); h.checkUsed && a.used != want {
		h.fault("%d %s are taken by requests of %d", a.used, h.queue.sizer, want)
	}
}

// unsettled is the size of the requests that have no outcome.
func (h *history) unsettled() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	size := 0
	for _, r := range h.requests {
		if r.ended.IsZero() {
			size += map[string]int{"requests": 1, "items": len(r.ids), "bytes": r.bytes}[h.queue.sizer]
		}
	}
	return int64(size)
}

// stop stops the batcher and checks that nobody is left waiting.
func (h *history) stop(t *testing.T) {
	began := time.Now()
	h.over = began.Add(h.drain)
	h.shutdown = h.rig.exporter.Shutdown(context.WithoutCancel(t.Context()))
	h.stopping = time.Since(began)
	synctest.Wait()
	h.balance()
	h.account, h.stopped = h.rig.exporter.account(), h.metrics(t)
	for _, err := range h.unflushed {
		if h.account.dropped == 0 {
			h.fault("flush, although nothing was lost: %v", err)
		}
	}
	flushes := 0
	for _, s := range h.steps {
		if s.flush {
			flushes++
		}
	}
	if h.flushed != flushes {
		h.fault("%d of %d flushes returned", h.flushed, flushes)
	}
	for i, r := range h.requests {
		if r.ended.IsZero() {
			h.fault("the caller of request %d still waits", i)
		}
	}
}

// metrics are the sums and gauges, by name and, for those that have an attribute
// of their own, by name and value as well.
func (h *history) metrics(t *testing.T) map[string]int64 {
	m := map[string]int64{}
	var rm metricdata.ResourceMetrics
	require.NoError(t, h.rig.telemetry.Reader.Collect(context.WithoutCancel(t.Context()), &rm))
	for _, sm := range rm.ScopeMetrics {
		for _, metric := range sm.Metrics {
			name := strings.TrimSuffix(strings.TrimPrefix(metric.Name, "otelcol_exporter_"), h.kind.items)
			m[name] = sumOf(metric.Data, nil)
			for key, values := range ownAttributes {
				for _, v := range values {
					m[name+" "+key+" "+v] = sumOf(metric.Data, []attribute.KeyValue{attribute.String(key, v)})
				}
			}
		}
	}
	return m
}

// ownAttributes are those that few metrics have, with their values.
var ownAttributes = map[string][]string{
	"class":  {"retryable", "throttled", "unknown", "permanent"},
	"reason": {"too_large", "retries_exhausted", "shutdown", "permanent"},
}

// answer is the wrapped exporter: it notes the attempt and behaves.
func (h *history) answer(ctx context.Context, c *call) error {
	a := &attempt{ids: c.ids, lines: h.kind.flatten(c.data), bytes: c.bytes, began: c.began}
	s, number := h.begin(a)
	var left []int64
	left, a.err = h.behave(ctx, c, a, number, len(s.attempts))
	h.mu.Lock()
	defer h.mu.Unlock()
	a.ended = time.Now()
	for _, id := range a.ids {
		if a.err == nil || a.class == "partial" && !slices.Contains(left, id) {
			s.delivered[id]++
			a.took++
		}
	}
	return a.err
}

// begin finds the batch of an attempt by the items in it.
func (h *history) begin(a *attempt) (*sent, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(a.ids) == 0 {
		h.faults = append(h.faults, "a call without items")
		return &sent{delivered: map[int64]int{}}, 0
	}
	s := h.of[a.ids[0]]
	if s == nil {
		s = &sent{ids: a.ids, delivered: map[int64]int{}}
		h.batches = append(h.batches, s)
	}
	for _, id := range a.ids {
		if of := h.of[id]; of != nil && of != s || of == nil && len(s.attempts) > 0 {
			h.faults = append(h.faults, fmt.Sprintf("item %d is in two batches", id))
		}
		h.of[id] = s
	}
	s.attempts = append(s.attempts, a)
	number := 0
	for _, s := range h.batches {
		number += len(s.attempts)
	}
	return s, number
}

// behave answers one call. The random numbers depend on the batch and on how
// often it was tried, and not on the order of calls, which is up to the scheduler.
func (h *history) behave(ctx context.Context, c *call, a *attempt, number, try int) (left []int64, err error) {
	if try > mostFailures || len(c.ids) == 0 {
		return nil, nil
	}
	rnd := rand.New(rand.NewPCG(h.seed^uint64(c.ids[0]), uint64(try)))
	a.class = h.behaviour.pick(rnd.IntN(100))
	e := &callError{number: number, class: a.class}
	switch a.class {
	case "retryable":
		return nil, e
	case "throttled":
		return nil, exporterhelper.NewThrottleRetry(e, time.Duration(rnd.IntN(2000)+1)*time.Millisecond)
	case "permanent":
		return nil, consumererror.NewPermanent(e)
	case "partial":
		rest := remainder(c.data, rnd.IntN(len(c.ids)))
		return h.kind.ids(rest), partially(e, rest)
	case "hanging":
		<-ctx.Done()
		a.class = "unknown"
		return nil, consumererror.NewPermanent(e)
	case "slow":
		if pause(ctx, time.Duration(rnd.Int64N(int64(slowness)))) {
			a.class = ""
			return nil, nil
		}
		a.class = "unknown"
		return nil, e
	}
	return nil, nil
}

// pick says how the wrapped exporter behaves, of a number below 100.
func (b *behaviour) pick(x int) string {
	for _, way := range []struct {
		percent int
		class   string
	}{
		{b.retryable, "retryable"},
		{b.throttled, "throttled"},
		{b.permanent, "permanent"},
		{b.partial, "partial"},
		{b.slow, "slow"},
		{b.hanging, "hanging"},
	} {
		if x -= way.percent; x < 0 {
			return way.class
		}
	}
	return ""
}

// pause takes its time. It reports false if ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// remainder is a copy of the items from `from` on.
func remainder(data any, from int) any {
	switch d := data.(type) {
	case ptrace.Traces:
		return cutCopy(payload.Traces(), d, from)
	case pmetric.Metrics:
		return cutCopy(payload.Metrics(), d, from)
	case plog.Logs:
		return cutCopy(payload.Logs(), d, from)
	case pprofile.Profiles:
		return cutCopy(payload.Profiles(), d, from)
	}
	panic("no such signal")
}

func cutCopy[T any](sig payload.Signal[T], data T, from int) T {
	data = sig.Clone(data)
	return sig.Cut(data, sig.Index(data, false, 0), from, sig.Items(data))
}

// partially is the error of an exporter that says what is left.
func partially(err error, left any) error {
	switch d := left.(type) {
	case ptrace.Traces:
		return consumererror.NewTraces(err, d)
	case pmetric.Metrics:
		return consumererror.NewMetrics(err, d)
	case plog.Logs:
		return consumererror.NewLogs(err, d)
	case pprofile.Profiles:
		return xconsumererror.NewProfiles(err, d)
	}
	panic("no such signal")
}

// late is the number of items that were taken when the time to send was over: the
// stop may have counted them as lost by then.
func (h *history) late() int64 {
	n := 0
	for _, s := range h.batches {
		for _, a := range s.attempts {
			if !a.ended.Before(h.over) {
				n += a.took
			}
		}
	}
	return int64(n)
}

// mustBeSound reports what went wrong on the way of a run.
func (h *history) mustBeSound(t *rapid.T) {
	require.Empty(t, h.faults, h.yaml())
}
