// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"io"
	"net"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pullbatch/batcherexporter/internal/e2e/process"
	"github.com/pullbatch/batcherexporter/internal/e2e/sink"
)

// wire is what connects a collector with a server, and can be cut: in one way, whoever
// connects is refused, in the other, nothing ever comes back.
type wire struct {
	t       *testing.T
	address string // for the collector
	behind  string // of the server

	mu struct {
		sync.Mutex
		listener net.Listener // nil: connections are refused
		silent   bool
		open     map[net.Conn]bool
	}
}

// The ways in which a wire is cut.
var cuts = map[string]func(*wire){"refusing": (*wire).refuse, "black-holed": (*wire).silence}

// newWire connects to the server at an address.
func newWire(t *testing.T, behind string) *wire {
	address, err := process.FreeAddress()
	require.NoError(t, err)
	w := &wire{t: t, address: address, behind: behind}
	w.mu.open = map[net.Conn]bool{}
	t.Cleanup(w.refuse)
	w.connect()
	return w
}

// withWire puts a sink behind a wire, for an exporter of that type, and returns the
// block of the exporter.
func withWire(t *testing.T, wrapped string) (*sink.Sink, *wire, map[string]any) {
	t.Helper()
	backend, err := sink.Listen()
	require.NoError(t, err)
	t.Cleanup(backend.Close)
	if wrapped == "otlp_grpc" {
		w := newWire(t, backend.Address())
		return backend, w, map[string]any{"endpoint": w.address, "tls": insecure}
	}
	server := httptest.NewServer(backend)
	t.Cleanup(server.Close)
	w := newWire(t, server.Listener.Addr().String())
	return backend, w, map[string]any{"endpoint": "http://" + w.address}
}

// connect lets data through.
func (w *wire) connect() { w.set(true, false) }

// refuse closes all connections, and refuses new ones.
func (w *wire) refuse() { w.set(false, false) }

// silence closes all connections, and accepts new ones on which nothing is read or
// answered.
func (w *wire) silence() { w.set(true, true) }

func (w *wire) set(listening, silent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.mu.open {
		_ = c.Close()
	}
	clear(w.mu.open)
	w.mu.silent = silent
	switch {
	case !listening && w.mu.listener != nil:
		_ = w.mu.listener.Close()
		w.mu.listener = nil
	case listening && w.mu.listener == nil:
		listener, err := net.Listen("tcp", w.address)
		require.NoError(w.t, err)
		w.mu.listener = listener
		go w.accept(listener)
	}
}

// accept ends when the listener is closed.
func (w *wire) accept(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		if !w.hold(c) {
			go w.forward(c)
		}
	}
}

// hold keeps a connection, and reports whether that is all that happens to it.
func (w *wire) hold(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.listener == nil {
		_ = c.Close()
		return true
	}
	w.mu.open[c] = true
	return w.mu.silent
}

// forward copies in both directions until one side closes.
func (w *wire) forward(c net.Conn) {
	server, err := net.Dial("tcp", w.behind)
	if err != nil {
		_ = c.Close()
		return
	}
	if w.hold(server) {
		_, _ = c.Close(), server.Close()
		return
	}
	var directions sync.WaitGroup
	for _, pair := range [][2]net.Conn{{c, server}, {server, c}} {
		directions.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_, _ = c.Close(), server.Close()
		})
	}
	directions.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.open, c)
	delete(w.mu.open, server)
}

// outages are long, as they are in the field, with an E2E_SCALE of 8 and more, and
// short otherwise. Then backoffs and timeouts are short too, for the same to happen.
type outages struct {
	full   bool
	length time.Duration
}

func newOutages(t *testing.T, short, long time.Duration) outages {
	t.Helper()
	text := os.Getenv("E2E_SCALE")
	if text == "" {
		return outages{length: short}
	}
	scale, err := strconv.Atoi(text)
	require.NoError(t, err, "E2E_SCALE")
	if scale < 8 {
		return outages{length: short}
	}
	return outages{full: true, length: long}
}

// batcher returns a block that wraps an exporter. Where the outage is short, it has
// such intervals; where it is long, the defaults.
func (o outages) batcher(wrapped string, block, queue map[string]any) map[string]any {
	batcher := map[string]any{"exporter": map[string]any{wrapped: block}, "sending_queue": queue}
	if !o.full {
		block["timeout"] = "1s"
		batcher["retry_on_failure"] = map[string]any{"initial_interval": "100ms", "max_interval": "1s"}
	}
	return batcher
}

// wait waits until the outage is to end.
func (o outages) wait() { <-time.After(o.length) }

// busyMachine is what to add to a bound that must hold on a machine which does nothing
// else: on one that is busy a second of work takes as long as the start took.
func (r *rig) busyMachine() time.Duration { return time.Second + r.took }
