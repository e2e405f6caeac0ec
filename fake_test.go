// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"slices"
	"sync"

	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"

	"github.com/pullbatch/batcherexporter/internal/metadata"
	"github.com/pullbatch/batcherexporter/internal/payload"
)

// load is the data of the fake signal: items that are numbers.
type load struct {
	ids      []int
	readOnly bool
}

// Sizes of the fake signal: an item takes itemBytes, and a request or piece
// headerBytes, which merging saves.
const (
	itemBytes   = 10
	headerBytes = 4
)

// fakeSignal is a signal whose items are numbers, so that tests of the queue see
// at once what came out where. Its byte index is not implemented: cuts by bytes
// are tested with real data.
type fakeSignal struct{ payload.Signal[*load] }

func (fakeSignal) Items(l *load) int                     { return len(l.ids) }
func (fakeSignal) Bytes(l *load) int                     { return headerBytes + itemBytes*len(l.ids) }
func (s fakeSignal) Cost(l *load, _ int) int             { return s.Bytes(l) }
func (fakeSignal) ExactCost() bool                       { return true }
func (fakeSignal) Index(*load, bool, int) *payload.Index { return &payload.Index{} }
func (fakeSignal) IsReadOnly(l *load) bool               { return l.readOnly }
func (fakeSignal) Clone(l *load) *load                   { return &load{ids: slices.Clone(l.ids)} }
func (fakeSignal) NewMerger(bool) payload.Merger[*load]  { return fakeMerger{} }

func (fakeSignal) Cut(l *load, _ *payload.Index, from, to int) *load {
	return &load{ids: slices.Clone(l.ids[from:to])}
}

func (fakeSignal) Remainder(err error) (*load, bool) {
	p, ok := err.(partialError) //nolint:errorlint // the node alone
	return &load{ids: p.left}, ok
}

// partialError is how a fake exporter says which items it did not take.
type partialError struct{ left []int }

func (partialError) Error() string { return "partial failure" }

type fakeMerger struct{}

func (fakeMerger) Begin(bool) payload.Batch[*load] { return &fakeBatch{} }

type fakeBatch struct {
	load  load
	saved int
	order []payload.Run
}

func (b *fakeBatch) Add(l *load) {
	b.order = append(b.order, payload.Run{Source: len(b.order), Items: len(l.ids)})
	if b.load.ids != nil {
		b.saved += headerBytes
	}
	b.load.ids = append(b.load.ids, l.ids...)
}
func (b *fakeBatch) Saved() int  { return b.saved }
func (b *fakeBatch) Data() *load { return &b.load }

func (b *fakeBatch) Order() []payload.Run { return b.order }

// numbers is a request with the items [first, first+n).
func numbers(first, n int) *load {
	l := &load{}
	for i := range n {
		l.ids = append(l.ids, first+i)
	}
	return l
}

// pushes is a scripted wrapped exporter for the fake signal: it records every
// call and answers with what answer says.
type pushes struct {
	answer func(ctx context.Context, call int, ids []int) error // nil: success

	mu struct {
		sync.Mutex
		calls   int
		taken   [][]int // of the calls that succeeded
		running int
		most    int
	}
}

func (p *pushes) push(ctx context.Context, l *load) error {
	p.mu.Lock()
	p.mu.calls++
	call := p.mu.calls
	p.mu.running++
	p.mu.most = max(p.mu.most, p.mu.running)
	p.mu.Unlock()
	ids := slices.Clone(l.ids)
	var err error
	if p.answer != nil {
		err = p.answer(ctx, call, ids)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.running--
	if err == nil {
		p.mu.taken = append(p.mu.taken, ids)
	}
	return err
}

// sizes are the items per successful call.
func (p *pushes) sizes() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	sizes := make([]int, 0, len(p.mu.taken))
	for _, ids := range p.mu.taken {
		sizes = append(sizes, len(ids))
	}
	return sizes
}

func (p *pushes) ids() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Concat(p.mu.taken...)
}

func (p *pushes) calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.calls
}

// fakeSender is a queue of the fake signal with its sender, in front of p.
func fakeSender(set queueSettings, retry configretry.BackOffConfig, p *pushes) *sender[*load] {
	if set.capacity == 0 {
		set.capacity = 1 << 40
	}
	if set.slots == 0 {
		set.slots = 1
	}
	set.patience = longestBackoff(retry)
	es := exportertest.NewNopSettings(metadata.Type)
	s := &sender[*load]{
		set:       senderSettings[*load]{push: p.push, retry: retry},
		tracer:    noop.NewTracerProvider().Tracer(""),
		logger:    zap.NewNop(),
		ceiling:   &ceiling{},
		isolation: &isolation{},
		oversized: &occasional{interval: logInterval},
		advised:   &occasional{interval: logInterval},
	}
	s.q = newQueue(set, payload.Signal[*load](fakeSignal{}), payload.Merger[*load](fakeMerger{}), s.work)
	s.q.giveUp = s.giveUp
	t, err := newTelemetry(es, pipeline.SignalLogs, s.stats)
	if err != nil {
		panic(err)
	}
	s.telemetry = t
	s.report = newReport(reportSettings{logger: s.logger, status: func(error) {}, stats: s.stats, patience: max(retry.MaxInterval, logInterval)})
	return s
}

// close abandons the queue and waits for its workers.
func (s *sender[T]) stop() {
	s.q.abandon()
	<-s.q.ended
	s.telemetry.close()
}
