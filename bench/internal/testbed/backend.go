// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"net"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // the default compression of otlp_grpc
)

// Backend is a server for OTLP over gRPC that counts the log records it gets, and
// knows from their stamps how long each was on its way.
type Backend struct {
	plogotlp.UnimplementedGRPCServer

	delay    time.Duration
	listener net.Listener
	server   *grpc.Server

	mu struct {
		sync.Mutex
		calls     int
		latencies []time.Duration // of each record
	}
}

// Listen starts a backend whose calls take the delay.
func Listen(delay time.Duration) (*Backend, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a loopback address is not resolved
	if err != nil {
		return nil, err
	}
	b := &Backend{delay: delay, listener: listener, server: grpc.NewServer()}
	plogotlp.RegisterGRPCServer(b.server, b)
	go func() { _ = b.server.Serve(listener) }() // ends with Close
	return b, nil
}

// Address is where the backend listens.
func (b *Backend) Address() string { return b.listener.Addr().String() }

// Close ends the backend and the calls in it.
func (b *Backend) Close() { b.server.Stop() }

// Export takes one request.
func (b *Backend) Export(ctx context.Context, request plogotlp.ExportRequest) (plogotlp.ExportResponse, error) {
	b.note(request.Logs(), time.Now())
	if b.delay == 0 {
		return plogotlp.NewExportResponse(), nil
	}
	wait := time.NewTimer(b.delay)
	defer wait.Stop()
	select {
	case <-wait.C:
		return plogotlp.NewExportResponse(), nil
	case <-ctx.Done():
		return plogotlp.NewExportResponse(), ctx.Err()
	}
}

func (b *Backend) note(data plog.Logs, arrived time.Time) {
	now := pcommon.NewTimestampFromTime(arrived)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.calls++
	for record := range records(data) {
		latency := time.Duration(now) - time.Duration(record.ObservedTimestamp()) //nolint:gosec // both are of this century
		b.mu.latencies = append(b.mu.latencies, latency)
	}
}

// Received is how many records have arrived so far.
func (b *Backend) Received() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.mu.latencies)
}

// Calls is how many requests have arrived so far.
func (b *Backend) Calls() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.calls
}

// Latencies are those of all records, from their stamp to their arrival. They may
// be read once the backend is closed.
func (b *Backend) Latencies() []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.latencies
}
