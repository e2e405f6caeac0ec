// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package strict is a log backend that decodes with the protobuf library of everybody
// else: unlike a collector, it refuses texts that are not UTF-8, before any code of the
// backend sees the request. It has no service for other signals.
package strict

import (
	"context"
	"net"
	"sync"

	logsservice "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // the default compression of otlp_grpc
)

// Server is a running server.
type Server struct {
	logsservice.UnimplementedLogsServiceServer

	listener net.Listener
	server   *grpc.Server

	mu struct {
		sync.Mutex
		bodies map[string]int
	}
}

// Listen starts a server on a free loopback port.
func Listen() (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{listener: listener, server: grpc.NewServer()}
	s.mu.bodies = map[string]int{}
	logsservice.RegisterLogsServiceServer(s.server, s)
	go func() { _ = s.server.Serve(listener) }() // ends with Close
	return s, nil
}

// Address is where the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Close stops the server. What it received stays.
func (s *Server) Close() { s.server.Stop() }

// Export implements the service.
func (s *Server) Export(_ context.Context, r *logsservice.ExportLogsServiceRequest) (*logsservice.ExportLogsServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range r.GetResourceLogs() {
		for _, scope := range resource.GetScopeLogs() {
			for _, record := range scope.GetLogRecords() {
				s.mu.bodies[record.GetBody().GetStringValue()]++
			}
		}
	}
	return &logsservice.ExportLogsServiceResponse{}, nil
}

// Bodies returns how often each body has arrived. It may be read once the server is
// closed.
func (s *Server) Bodies() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.bodies
}
