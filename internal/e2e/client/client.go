// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package client sends OTLP whose items have an identity, and remembers what the
// server accepted.
package client

import (
	"context"
	"fmt"

	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
)

// Client sends requests to one server. Several goroutines may use it at a time.
type Client interface {
	// Send sends one request. The server has accepted all of it if the error is nil.
	Send(ctx context.Context, signal otlpdata.Signal, r otlpdata.Range) error
	Close() error
}

// Transport is a way to reach an OTLP receiver.
type Transport string

// The transports of OTLP, with the names that the receiver's configuration has.
const (
	GRPC Transport = "grpc"
	HTTP Transport = "http"
)

// Transports returns every transport.
func Transports() []Transport { return []Transport{GRPC, HTTP} }

// Dial returns a client of the receiver at the address. It does not connect yet.
func Dial(transport Transport, address string) (Client, error) {
	if transport == GRPC {
		return dialGRPC(address)
	}
	return newHTTPClient(address), nil
}

// partlyRejected is the error for an answer that accepts a request but for some of
// its items, which the receivers used here never give.
func partlyRejected(items int64, message string) error {
	if items == 0 && message == "" {
		return nil
	}
	return fmt.Errorf("%d items were rejected: %s", items, message)
}
