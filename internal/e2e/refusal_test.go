// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pullbatch/batcherexporter/internal/e2e/client"
	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
	"github.com/pullbatch/batcherexporter/internal/e2e/selfmetrics"
	"github.com/pullbatch/batcherexporter/internal/e2e/sink"
)

const (
	consumers     = 10      // the default of `num_consumers`
	receiverLimit = 1 << 20 // in testdata/backend_limits.yaml
)

// TestReceiverWithLimit sends batches of 8 MiB to receivers that take 1 MiB. Both
// limit what arrives and again what it is uncompressed.
func TestReceiverWithLimit(t *testing.T) {
	for _, wrapped := range []string{"otlp_grpc", "otlp_http"} {
		for _, compression := range []string{"none", "gzip"} {
			t.Run(wrapped+"/"+compression, func(t *testing.T) { testReceiverWithLimit(t, wrapped, compression) })
		}
	}
}

func testReceiverWithLimit(t *testing.T, wrapped, compression string) {
	const bodyBytes = 16 << 10
	r := newRig(t)
	r.backend = r.start("backend", filepath.Join(configDir, "backend.yaml"), "testdata/backend_limits.yaml")
	r.startBatchingWith("testdata/batching.yaml", "testdata/wrap_"+wrapped+".yaml",
		// The default for otlp_grpc is meant to keep batches below the limits of receivers.
		"yaml:exporters::batcher::sending_queue::batch::max_bytes: 0",
		// A collector that is built to find races compresses so slowly that the default
		// is too short.
		fmt.Sprintf("yaml:exporters::batcher::exporter::%s: {compression: %s, timeout: %s}", wrapped, compression, patience))
	batches := 3
	if compression != "none" {
		batches = 1 // for the same reason
	}
	outcome := r.send(client.Load{
		Signal: otlpdata.Logs, Items: batches * maxItems, MaxItems: maxRequest, Workers: workers, BodyBytes: bodyBytes,
	})
	require.NoError(t, outcome.Err)
	settled := r.waitSettled(outcome.Items())
	advice := r.waitForLog(`"max_bytes": (\d+)`)
	last := r.stop()
	requireOnce(t, otlpdata.Logs, outcome, r.written(otlpdata.Logs))
	requireAccounts(t, last, otlpdata.Logs, outcome.Items(), 0)

	ceiling := settled.Value("otelcol_exporter_batcher_size_ceiling", nil)
	assert.LessOrEqual(t, ceiling, receiverLimit)
	assert.Greater(t, ceiling, receiverLimit/4)
	// The batches that were under way when the first was refused do not know yet:
	// each of them is cut at most four times until it passes. And a larger request is
	// tried now and then, less often each time.
	refusals := failedAttempts(last, otlpdata.Logs, "too_large")
	assert.Positive(t, refusals)
	assert.LessOrEqual(t, refusals, 4*batches+1+3)
	assert.Equal(t, refusals, last.Value("otelcol_exporter_batcher_failed_attempts", nil), "all were for size")
	maxBytes, err := strconv.Atoi(advice)
	require.NoError(t, err)
	assert.LessOrEqual(t, maxBytes, receiverLimit, "the advice of the log")
	t.Logf("ceiling %d, advice %d, refusals %d", ceiling, maxBytes, refusals)
}

// TestOneRefusedRecord has a backend refuse one record of a large batch: that one is
// lost, and no other.
func TestOneRefusedRecord(t *testing.T) {
	const (
		batch    = 8192
		log2     = 13
		poisoned = 1234 // an identity of the first worker
	)
	r := newRig(t)
	backend := withSink(t, r)
	backend.RefuseIf(func(request *otlpdata.Tally) error {
		if request.Has(poisoned) {
			return status.Error(codes.InvalidArgument, "invalid UTF-8")
		}
		return nil
	})
	r.startBatchingWith("testdata/batching.yaml", "testdata/wrap_otlp_grpc.yaml",
		fmt.Sprintf("yaml:exporters::batcher::sending_queue::batch: {min_size: %d, max_size: %d}", batch, batch))
	outcomes := r.sendAll(client.GRPC, batch)
	last := r.stop()
	backend.Close()
	for signal, outcome := range outcomes {
		require.NoError(t, outcome.Err, signal)
		tally := backend.Tally(signal)
		difference := tally.Compare(outcome.Accepted)
		assert.Equal(t, otlpdata.Difference{Missing: []uint64{poisoned}}, difference, signal)
		assert.Equal(t, batch-1, tally.Items(), signal)
		requireAccounts(t, last, signal, batch, 1)
		assert.Equal(t, 1, dropped(last, signal, "refused"), signal)
		refusals := backend.Refusals(signal).Requests()
		assert.LessOrEqual(t, tally.Requests()+refusals, 2*log2+2, "%s: calls", signal)
		assert.Equal(t, refusals, failedAttempts(last, signal, "refused"), signal)
	}
}

// TestAllRefused has a backend refuse all: halving one batch has a budget, and the
// next batch is not halved. The budget is used up if the refusals differ; equal
// ones for all quarters say enough.
func TestAllRefused(t *testing.T) {
	var calls atomic.Int64
	for name, test := range map[string]struct {
		text   func() string
		budget int
	}{
		"for one cause":   {func() string { return "unknown tenant" }, 1 + 2 + 4},
		"for many causes": {func() string { return "cause " + letters(calls.Add(1)) }, 64}, // `max_attempts`
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			backend := withSink(t, r)
			backend.RefuseIf(func(*otlpdata.Tally) error { return status.Error(codes.InvalidArgument, test.text()) })
			r.startBatching("wrap_otlp_grpc.yaml")
			load := client.Load{Signal: otlpdata.Logs, Items: maxItems, MaxItems: maxRequest, Workers: 1}
			for n, budget := range []int{test.budget, test.budget + 1} {
				require.NoError(t, r.send(load).Err)
				r.waitSettled((n + 1) * maxItems)
				assert.LessOrEqual(t, backend.Refused(), budget)
			}
			first := backend.Refused() - 1
			assert.Greater(t, first, 1, "the first batch is halved")
			last := r.stop()
			backend.Close()
			requireAccounts(t, last, otlpdata.Logs, 2*maxItems, 2*maxItems)
			assert.Equal(t, 2*maxItems, dropped(last, otlpdata.Logs, "refused"))
			assert.Equal(t, 1, backend.Refusals(otlpdata.Logs).RequestsOf(maxItems)-1, "the second batch is sent once")
			assert.Zero(t, backend.Tally(otlpdata.Logs).Items())
			t.Logf("the first batch cost %d calls", first)
		})
	}
}

// letters writes a number such that texts differ in more than their digits.
func letters(n int64) string {
	text := []byte(strconv.FormatInt(n, 10))
	for i := range text {
		text[i] += 'a' - '0'
	}
	return string(text)
}

// TestKeyIsRotated has a backend refuse its client for some time: nothing is lost,
// and the batches ask again one at a time.
func TestKeyIsRotated(t *testing.T) {
	r := newRig(t)
	var o overlap
	backend, err := sink.Listen(grpc.UnaryInterceptor(o.intercept))
	require.NoError(t, err)
	t.Cleanup(backend.Close)
	r.addresses["BACKEND_GRPC"] = backend.Address()
	backend.RefuseIf(func(*otlpdata.Tally) error { return status.Error(codes.Unauthenticated, "the key has expired") })
	r.startBatching("wrap_otlp_grpc.yaml")
	outcome := r.send(client.Load{Signal: otlpdata.Logs, Items: 4 * consumers * maxItems, MaxItems: maxRequest, Workers: workers})
	require.NoError(t, outcome.Err)
	r.waitForLog(`(The destination refuses.*Unauthenticated)`)
	waitRefused := func(calls int) {
		r.waitFor(func(selfmetrics.Snapshot) bool { return backend.Refused() >= calls })
	}
	// What was under way at the first refusal is over by then.
	waitRefused(2 * consumers)
	o.reset()
	waitRefused(2*consumers + scaled(t, 10)) // ten times are two seconds
	most := o.most()
	backend.RefuseIf(nil)
	r.waitForLog(`(The destination accepts data again)`)
	last := r.stop()
	backend.Close()
	tally, refusals := backend.Tally(otlpdata.Logs), backend.Refusals(otlpdata.Logs)
	requireOnce(t, otlpdata.Logs, outcome, tally)
	requireTruthful(t, last, otlpdata.Logs, tally)
	// One that was refused before, and now and then one that was not.
	assert.LessOrEqual(t, most, 2, "calls at the same time")
	assert.Equal(t, refusals.Requests(), failedAttempts(last, otlpdata.Logs, "destination"))
	assert.Equal(t, refusals.Requests(), last.Value("otelcol_exporter_batcher_failed_attempts", nil))
	t.Logf("%d calls were refused, of %d batches, %d at the same time", refusals.Requests(), refusals.Identities()/maxItems, most)
}

// overlap counts the calls that a server works on at the same time.
type overlap struct {
	mu struct {
		sync.Mutex
		running, most int
	}
}

// intercept takes its time with refusals, so that calls overlap which do not wait
// for each other.
func (o *overlap) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	o.count(1)
	defer o.count(-1)
	answer, err := handle(ctx, request)
	if err != nil {
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return answer, err
}

func (o *overlap) count(change int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.running += change
	o.mu.most = max(o.mu.most, o.mu.running)
}

func (o *overlap) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.most = o.mu.running
}

func (o *overlap) most() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.most
}

// TestKeyIsRotatedHTTP is the same with a proxy that answers 401 in front of a real
// receiver.
func TestKeyIsRotatedHTTP(t *testing.T) {
	r := newRig(t)
	r.startBackend()
	gate := newGate(t, r.addresses["BACKEND_HTTP"])
	r.addresses["BACKEND_HTTP"] = gate.address
	r.startBatching("wrap_otlp_http.yaml")
	outcomes := r.sendAll(client.GRPC, 2*maxItems)
	r.waitForLog(`(The destination refuses.*HTTP Status Code 401)`)
	asked := int64(scaled(t, 30))
	r.waitFor(func(selfmetrics.Snapshot) bool { return gate.refused.Load() >= asked })
	gate.open.Store(true)
	last := r.stop()
	for signal, outcome := range outcomes {
		require.NoError(t, outcome.Err, signal)
		tally := r.written(signal)
		requireOnce(t, signal, outcome, tally)
		requireTruthful(t, last, signal, tally)
	}
	destination := selfmetrics.Match{"class": "destination"}
	assert.Equal(t, int(gate.refused.Load()), last.Value("otelcol_exporter_batcher_failed_attempts", destination))
}

// gate is a proxy that answers 401 until it is open.
type gate struct {
	address string
	open    atomic.Bool
	refused atomic.Int64
}

func newGate(t *testing.T, behind string) *gate {
	g := &gate{}
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.Out.URL.Scheme, p.Out.URL.Host = "http", behind
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if g.open.Load() {
			proxy.ServeHTTP(w, request)
			return
		}
		g.refused.Add(1)
		http.Error(w, "the key has expired", http.StatusUnauthorized)
	}))
	t.Cleanup(server.Close)
	g.address = server.Listener.Addr().String()
	return g
}

// send sends one load over gRPC.
func (r *rig) send(load client.Load) *client.Outcome {
	r.t.Helper()
	return load.Run(r.t.Context(), r.dial(client.GRPC))
}

// waitForLog waits until the batching collector has printed what matches, and
// returns the first group of it.
func (r *rig) waitForLog(expression string) string {
	r.t.Helper()
	want := regexp.MustCompile(expression)
	var match []string
	require.Eventually(r.t, func() bool {
		match = want.FindStringSubmatch(r.batching.Output())
		return match != nil
	}, patience, 10*time.Millisecond, expression)
	return match[1]
}

// waitSettled waits until so many items were accepted and each is sent or dropped.
func (r *rig) waitSettled(items int) (settled selfmetrics.Snapshot) {
	r.t.Helper()
	ours := selfmetrics.Match{"exporter": "batcher", "data_type": string(otlpdata.Logs)}
	r.waitFor(func(s selfmetrics.Snapshot) bool {
		settled = s
		return s.Value("otelcol_exporter_batcher_accepted_items", ours) == items &&
			s.Value("otelcol_exporter_sent_"+itemNames[otlpdata.Logs], nil)+dropped(s, otlpdata.Logs, "*") == items
	})
	return settled
}

// requireAccounts checks that each accepted item was sent or dropped, by the metrics
// of a collector that has stopped.
func requireAccounts(t *testing.T, last selfmetrics.Snapshot, signal otlpdata.Signal, accepted, lost int) {
	t.Helper()
	ours := selfmetrics.Match{"exporter": "batcher", "data_type": string(signal)}
	items := itemNames[signal]
	require.Equal(t, accepted, last.Value("otelcol_receiver_accepted_"+items, nil), "%s: accepted", signal)
	require.Equal(t, accepted-lost, last.Value("otelcol_exporter_sent_"+items, nil), "%s: sent", signal)
	require.Equal(t, lost, last.Value("otelcol_exporter_batcher_dropped_items", ours), "%s: dropped", signal)
	require.Equal(t, lost, last.Value("otelcol_exporter_send_failed_"+items, nil), "%s: failed", signal)
}

func failedAttempts(s selfmetrics.Snapshot, signal otlpdata.Signal, class string) int {
	return s.Value("otelcol_exporter_batcher_failed_attempts", selfmetrics.Match{"data_type": string(signal), "class": class})
}

func dropped(s selfmetrics.Snapshot, signal otlpdata.Signal, reason string) int {
	return s.Value("otelcol_exporter_batcher_dropped_items", selfmetrics.Match{"data_type": string(signal), "reason": reason})
}
