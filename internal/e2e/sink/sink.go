// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package sink is an OTLP server for what a collector cannot show as a backend: it
// remembers the metadata of each request, and refuses requests on demand.
package sink

import (
	"context"
	"net"
	"slices"
	"sync"

	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // the default compression of otlp_grpc
	"google.golang.org/grpc/metadata"

	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
)

// Sink is a running server.
type Sink struct {
	listener net.Listener
	server   *grpc.Server

	mu struct {
		sync.Mutex
		tallies  map[otlpdata.Signal]*otlpdata.Tally
		refusals map[otlpdata.Signal]*otlpdata.Tally
		metadata []metadata.MD // of each request, the refused ones included
		refuse   int           // how many of the next requests to refuse
		refusal  error
		refuseIf func(*otlpdata.Tally) error // asked for each request; may be nil
		refused  int
	}
}

// Listen starts a sink on a free loopback port.
func Listen(options ...grpc.ServerOption) (*Sink, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Sink{listener: listener, server: grpc.NewServer(options...)}
	s.mu.tallies = map[otlpdata.Signal]*otlpdata.Tally{}
	s.mu.refusals = map[otlpdata.Signal]*otlpdata.Tally{}
	for _, signal := range otlpdata.Signals() {
		s.mu.tallies[signal], s.mu.refusals[signal] = &otlpdata.Tally{}, &otlpdata.Tally{}
	}
	ptraceotlp.RegisterGRPCServer(s.server, &tracesServer{sink: s})
	plogotlp.RegisterGRPCServer(s.server, &logsServer{sink: s})
	pmetricotlp.RegisterGRPCServer(s.server, &metricsServer{sink: s})
	go func() { _ = s.server.Serve(listener) }() // ends with Close
	return s, nil
}

// Address is where the sink listens.
func (s *Sink) Address() string { return s.listener.Addr().String() }

// Close stops the sink. What it received stays.
func (s *Sink) Close() { s.server.Stop() }

// Refuse makes the next n requests fail with the error.
func (s *Sink) Refuse(n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.refuse, s.mu.refusal = n, err
}

// RefuseIf has a function decide about each request, by what is in it: it fails
// with the error that the function returns. nil refuses nothing.
func (s *Sink) RefuseIf(decide func(request *otlpdata.Tally) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.refuseIf = decide
}

// Refused returns how many requests were refused.
func (s *Sink) Refused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.refused
}

// Metadata returns the metadata of each request so far.
func (s *Sink) Metadata() []metadata.MD {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.metadata)
}

// Tally returns what arrived of a signal. It may be read once the sink is closed.
func (s *Sink) Tally(signal otlpdata.Signal) *otlpdata.Tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.tallies[signal]
}

// Refusals returns what was refused of a signal. It may be read once the sink is
// closed.
func (s *Sink) Refusals(signal otlpdata.Signal) *otlpdata.Tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.refusals[signal]
}

// take decides on one request, and counts it if it is not refused.
func (s *Sink) take(ctx context.Context, signal otlpdata.Signal, add func(*otlpdata.Tally)) error {
	md, _ := metadata.FromIncomingContext(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.metadata = append(s.mu.metadata, md)
	if err := s.decideLocked(add); err != nil {
		s.mu.refused++
		add(s.mu.refusals[signal])
		return err
	}
	add(s.mu.tallies[signal])
	return nil
}

func (s *Sink) decideLocked(add func(*otlpdata.Tally)) error {
	if s.mu.refuse > 0 {
		s.mu.refuse--
		return s.mu.refusal
	}
	if s.mu.refuseIf == nil {
		return nil
	}
	request := &otlpdata.Tally{}
	add(request)
	return s.mu.refuseIf(request)
}

type tracesServer struct {
	ptraceotlp.UnimplementedGRPCServer
	sink *Sink
}

func (s *tracesServer) Export(ctx context.Context, r ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	add := func(t *otlpdata.Tally) { t.AddTraces(r.Traces()) }
	return ptraceotlp.NewExportResponse(), s.sink.take(ctx, otlpdata.Traces, add)
}

type logsServer struct {
	plogotlp.UnimplementedGRPCServer
	sink *Sink
}

func (s *logsServer) Export(ctx context.Context, r plogotlp.ExportRequest) (plogotlp.ExportResponse, error) {
	add := func(t *otlpdata.Tally) { t.AddLogs(r.Logs()) }
	return plogotlp.NewExportResponse(), s.sink.take(ctx, otlpdata.Logs, add)
}

type metricsServer struct {
	pmetricotlp.UnimplementedGRPCServer
	sink *Sink
}

func (s *metricsServer) Export(ctx context.Context, r pmetricotlp.ExportRequest) (pmetricotlp.ExportResponse, error) {
	add := func(t *otlpdata.Tally) { t.AddMetrics(r.Metrics()) }
	return pmetricotlp.NewExportResponse(), s.sink.take(ctx, otlpdata.Metrics, add)
}
