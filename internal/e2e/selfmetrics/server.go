// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package selfmetrics

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

// readTimeout bounds one upload, for a collector that hangs. One that is slow, on a
// busy machine, is not cut off: what it sends at its end is not sent again.
const readTimeout = time.Minute

// Server takes the metrics of one collector, sent by a periodic reader as OTLP over
// HTTP. It holds the newest.
type Server struct {
	listener net.Listener
	server   *http.Server

	mu struct {
		sync.Mutex
		latest Snapshot
		update chan struct{} // closed and replaced when latest changes
	}
}

// Listen starts a server on a free loopback port.
func Listen() (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{listener: listener}
	s.mu.update = make(chan struct{})
	s.server = &http.Server{Handler: http.HandlerFunc(s.receive), ReadTimeout: readTimeout}
	go func() { _ = s.server.Serve(listener) }() // ends with Close, with an error that says just that
	return s, nil
}

// URL is the endpoint for the collector's periodic reader.
func (s *Server) URL() string { return fmt.Sprintf("http://%s/v1/metrics", s.listener.Addr()) }

// Close stops the server. The latest snapshot stays.
func (s *Server) Close() error { return s.server.Close() }

// Latest returns the newest snapshot.
func (s *Server) Latest() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.latest
}

// Wait returns the first snapshot, from the latest on, that satisfies the
// condition; or the latest and an error when the context ends first.
func (s *Server) Wait(ctx context.Context, condition func(Snapshot) bool) (Snapshot, error) {
	for {
		latest, update := s.watch()
		if condition(latest) {
			return latest, nil
		}
		select {
		case <-update:
		case <-ctx.Done():
			return latest, fmt.Errorf("no such metrics from the collector: %w", ctx.Err())
		}
	}
}

func (s *Server) watch() (Snapshot, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.latest, s.mu.update
}

func (s *Server) receive(w http.ResponseWriter, r *http.Request) {
	request, err := read(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.set(newSnapshot(request.Metrics()))
	answer, err := pmetricotlp.NewExportResponse().MarshalProto()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(answer) // the collector may have gone; there is nobody else to tell
}

// set makes the snapshot the latest, unless it is older: a collector that stops gives
// up the upload that is under way and makes a last one, and the first may be read
// after the second.
func (s *Server) set(latest Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if latest.collected < s.mu.latest.collected {
		return
	}
	s.mu.latest = latest
	close(s.mu.update)
	s.mu.update = make(chan struct{})
}

func read(r *http.Request) (pmetricotlp.ExportRequest, error) {
	request := pmetricotlp.NewExportRequest()
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(body)
		if err != nil {
			return request, err
		}
		body = unzipped
	}
	content, err := io.ReadAll(body)
	if err != nil {
		return request, err
	}
	return request, request.UnmarshalProto(content)
}
