// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"google.golang.org/grpc"

	"github.com/pullbatch/batcherexporter/bench/internal/measure"
)

// The names of chains with which the stand-in misbehaves at its third request.
const (
	lossy = "lossy" // loses it
	dying = "dying" // ends
)

// TestMain makes this program stand in for a collector where it is started as one.
func TestMain(m *testing.M) {
	config, isCollector := os.LookupEnv(configVariable)
	if !isCollector {
		os.Exit(m.Run())
	}
	if err := forward(config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// forwarder sends each request on as it came.
type forwarder struct {
	plogotlp.UnimplementedGRPCServer

	next  plogotlp.GRPCClient
	calls atomic.Int64
	third func() // nil: forward it too
}

func (f *forwarder) Export(ctx context.Context, request plogotlp.ExportRequest) (plogotlp.ExportResponse, error) {
	if f.calls.Add(1) == 3 && f.third != nil {
		f.third()
		return plogotlp.NewExportResponse(), nil
	}
	return f.next.Export(ctx, request)
}

// forward does what a collector does: until it gets SIGTERM, it sends what it
// receives to the endpoint of its exporter.
func forward(config string) error {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	endpoint := regexp.MustCompile(`otlp_grpc: {endpoint: "([^"]+)"`).FindStringSubmatch(config)[1]
	conn, err := connect(context.Background(), endpoint)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	plogotlp.RegisterGRPCServer(server, &forwarder{next: plogotlp.NewGRPCClient(conn), third: misbehaviour(config)})
	go func() { _ = server.Serve(listener) }()
	fmt.Fprintf(os.Stderr, "Starting GRPC server\t{\"endpoint\": %q}\nEverything is ready. Begin running.\n", listener.Addr())
	<-terminated
	server.GracefulStop()
	return conn.Close()
}

func misbehaviour(config string) func() {
	switch {
	case strings.Contains(config, lossy):
		return func() {}
	case strings.Contains(config, dying):
		return func() {
			fmt.Fprintln(os.Stderr, "out of memory")
			os.Exit(2)
		}
	}
	return nil
}

func newBed(t *testing.T) Bed {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return Bed{Collector: self, Load: Load{Items: 10, Every: time.Millisecond, For: 100 * time.Millisecond}}
}

func TestRun(t *testing.T) {
	r, err := newBed(t).Run(t.Context(), Cell{Subject: None, Chain: NoProcessors})
	require.NoError(t, err)
	assert.Equal(t, 1000, r.Items)
	assert.Equal(t, 100, r.Batches)
	for metric, want := range map[string]float64{sent: 1000, received: 1000, refused: 0} {
		assert.InDelta(t, want, measure.Value(metric)(r), 0, metric)
	}
	assert.InDelta(t, 1000, InTime(r)+Backlog(r), 0)
	assert.Positive(t, r.Wall)
	assert.Positive(t, RSSMax(r))
	assert.Positive(t, r.P50)
	assert.GreaterOrEqual(t, RequestP99(r), RequestP50(r))
	assert.Greater(t, RequestP50(r), r.P50, "a reply comes after the arrival")
}

func TestRunFindsWhatIsLost(t *testing.T) {
	_, err := newBed(t).Run(t.Context(), Cell{Subject: None, Chain: Chain{Name: lossy, rest: []string{lossy}}})
	require.ErrorContains(t, err, "990 of 1000 accepted records arrived, and 0 were refused")
}

func TestRunReportsACollectorThatDies(t *testing.T) {
	bed := newBed(t)
	bed.Load.For = time.Minute
	_, err := bed.Run(t.Context(), Cell{Subject: None, Chain: Chain{Name: dying, rest: []string{dying}}})
	require.ErrorIs(t, err, errEnded)
	require.ErrorContains(t, err, "exit status 2")
	require.ErrorContains(t, err, "out of memory")
}
