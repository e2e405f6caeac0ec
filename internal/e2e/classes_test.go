// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pullbatch/batcherexporter/internal/e2e/client"
	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
	"github.com/pullbatch/batcherexporter/internal/e2e/process"
	"github.com/pullbatch/batcherexporter/internal/e2e/selfmetrics"
	"github.com/pullbatch/batcherexporter/internal/e2e/sink"
)

// classesItems are the items of the only request: as few as can be halved.
const classesItems = 2

// TestClasses provokes the errors that the exporters of the distribution really
// return. Behind each batcher of one collector is a server that gives one kind of
// answer to the first call and takes all others. What the batcher took the answer
// for shows in a metric, and in the number of calls.
func TestClasses(t *testing.T) {
	r := newRig(t)
	rows := classRows()
	exporters := map[string]any{}
	for name, row := range rows {
		wrapped := row.start(t, &row.calls)
		exporters["batcher/"+name] = row.batcher(wrapped)
	}
	r.startBatchingWith(r.configure(otlpdata.Logs, exporters))
	request := otlpdata.Range{First: 1, Items: classesItems, BodyBytes: 8 << 10}
	require.NoError(t, r.dial(client.GRPC).Send(t.Context(), otlpdata.Logs, request))
	r.waitFor(func(s selfmetrics.Snapshot) bool {
		return s.Value("otelcol_exporter_sent_log_records", nil)+dropped(s, otlpdata.Logs, "*") == classesItems*len(rows)
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// The file exporter has something left that it cannot write.
	require.ErrorContains(t, r.batching.Stop(ctx), "exit status 1")
	last := r.watch.Latest()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) { row.check(t, last, selfmetrics.Match{"exporter": "batcher/" + name}) })
	}
}

// classRow is one answer of a backend and what it means.
type classRow struct {
	start   func(*testing.T, *calls) map[string]any // starts the server, returns the block of the wrapped exporter
	class   string
	unseen  int           // calls that end before the server can count them
	delay   time.Duration // at least, between the first call and the second
	timeout string        // of the batcher's attempts

	calls calls
}

// batcher returns the block of a batcher. Where the backend never takes anything
// one attempt must do.
func (row *classRow) batcher(wrapped map[string]any) map[string]any {
	block := map[string]any{
		"exporter":      wrapped,
		"sending_queue": map[string]any{"batch": map[string]any{"flush_timeout": "10ms"}},
		"retry_on_failure": map[string]any{
			"enabled": !row.calls.hopeless, "initial_interval": "50ms", "max_interval": "100ms",
		},
	}
	if row.timeout != "" {
		block["timeout"] = row.timeout
	}
	return block
}

// check compares what a batcher did with what follows from the class.
func (row *classRow) check(t *testing.T, last selfmetrics.Snapshot, ours selfmetrics.Match) {
	ofClass := maps.Clone(ours)
	ofClass["class"] = row.class
	failed := last.Value("otelcol_exporter_batcher_failed_attempts", ofClass)
	assert.Positive(t, failed, "failed attempts of class %s", row.class)
	assert.Equal(t, failed, last.Value("otelcol_exporter_batcher_failed_attempts", ours), "failed attempts of any class")
	lost, ofReason := 0, maps.Clone(ours)
	if reason := row.lostFor(); reason != "" {
		lost, ofReason["reason"] = classesItems, reason
	}
	assert.Equal(t, lost, last.Value("otelcol_exporter_batcher_dropped_items", ofReason), "dropped items")
	assert.Equal(t, classesItems-lost, last.Value("otelcol_exporter_sent_log_records", ours), "sent items")
	if row.timeout != "" {
		return // on a busy machine other attempts run out of time as well
	}
	assert.Equal(t, 1, failed, "failed attempts")
	if row.calls.hopeless {
		return // nothing counts its calls
	}
	times := row.calls.all()
	require.Len(t, times, 1+callsAfter[row.class]-row.unseen, "calls")
	if row.delay > 0 {
		assert.GreaterOrEqual(t, times[1].Sub(times[0]), row.delay, "delay")
	}
}

// lostFor is the reason for which the items are dropped, empty if they are not.
func (row *classRow) lostFor() string {
	switch {
	case row.class == "permanent":
		return "permanent"
	case row.calls.hopeless:
		return "retries_exhausted"
	}
	return ""
}

// callsAfter is how many calls follow the one that failed: the same again, both
// halves, or none.
var callsAfter = map[string]int{
	"retryable": 1, "throttled": 1, "unknown": 1, "destination": 1,
	"too_large": 2, "refused": 2, "permanent": 0,
}

// calls are the calls that a server got.
type calls struct {
	hopeless bool // there is no server, or nobody talks to it

	mu    sync.Mutex
	times []time.Time
}

// add notes a call, and reports whether it is the first.
func (c *calls) add() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times = append(c.times, time.Now())
	return len(c.times) == 1
}

func (c *calls) all() []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.times
}

func classRows() map[string]*classRow {
	tooLarge := statusBody(codes.InvalidArgument, "http: request body too large")
	retryAfter := http.Header{"Retry-After": {"1"}}
	throttled := withRetryDelay(codes.ResourceExhausted, time.Second)
	return map[string]*classRow{
		"http_400":                {start: httpAnswer(400, nil, statusBody(codes.InvalidArgument, "no such field")), class: "refused"},
		"http_400_text":           {start: httpAnswer(400, nil, []byte("no such field")), class: "refused"},
		"http_400_too_large":      {start: httpAnswer(400, nil, tooLarge), class: "too_large"},
		"http_401":                {start: httpAnswer(401, nil, nil), class: "destination"},
		"http_403":                {start: httpAnswer(403, nil, nil), class: "destination"},
		"http_404":                {start: httpAnswer(404, nil, []byte("404 page not found")), class: "destination"},
		"http_413":                {start: httpAnswer(413, nil, nil), class: "too_large"},
		"http_422":                {start: httpAnswer(422, nil, nil), class: "refused"},
		"http_429":                {start: httpAnswer(429, nil, nil), class: "retryable"},
		"http_429_retry_after":    {start: httpAnswer(429, retryAfter, nil), class: "throttled", delay: time.Second},
		"http_500":                {start: httpAnswer(500, nil, nil), class: "permanent"},
		"http_501":                {start: httpAnswer(501, nil, nil), class: "destination"},
		"http_502":                {start: httpAnswer(502, nil, []byte("<html>Bad Gateway</html>")), class: "retryable"},
		"http_503":                {start: httpAnswer(503, nil, nil), class: "retryable"},
		"http_503_retry_after":    {start: httpAnswer(503, retryAfter, nil), class: "throttled", delay: time.Second},
		"http_hangs":              {start: httpHangs, class: "unknown", timeout: "500ms"},
		"http_breaks_off":         {start: httpBreaksOff, class: "retryable"},
		"http_connection_refused": {start: nobody("otlp_http"), class: "retryable", calls: calls{hopeless: true}},
		"http_unknown_authority":  {start: httpUnknownAuthority, class: "destination", calls: calls{hopeless: true}},

		"grpc_unavailable":                   {start: grpcAnswer(status.Error(codes.Unavailable, "starting")), class: "retryable"},
		"grpc_deadline_exceeded":             {start: grpcAnswer(status.Error(codes.DeadlineExceeded, "slow")), class: "unknown"},
		"grpc_resource_exhausted":            {start: grpcAnswer(status.Error(codes.ResourceExhausted, "quota")), class: "permanent"},
		"grpc_resource_exhausted_retry_info": {start: grpcAnswer(throttled), class: "throttled", delay: time.Second},
		"grpc_unavailable_retry_info":        {start: grpcAnswer(withRetryDelay(codes.Unavailable, time.Second)), class: "throttled", delay: time.Second},
		"grpc_message_size":                  {start: grpcSmallMessages, class: "too_large", unseen: 1},
		"grpc_invalid_argument":              {start: grpcAnswer(status.Error(codes.InvalidArgument, "no such field")), class: "refused"},
		"grpc_failed_precondition":           {start: grpcAnswer(status.Error(codes.FailedPrecondition, "too old")), class: "refused"},
		"grpc_unauthenticated":               {start: grpcAnswer(status.Error(codes.Unauthenticated, "who?")), class: "destination"},
		"grpc_permission_denied":             {start: grpcAnswer(status.Error(codes.PermissionDenied, "not you")), class: "destination"},
		"grpc_unimplemented":                 {start: grpcAnswer(status.Error(codes.Unimplemented, "unknown service")), class: "destination"},
		"grpc_internal":                      {start: grpcAnswer(status.Error(codes.Internal, "bug")), class: "permanent"},
		"grpc_hangs":                         {start: grpcHangs, class: "unknown", timeout: "500ms"},
		"grpc_connection_refused":            {start: nobody("otlp_grpc"), class: "retryable", calls: calls{hopeless: true}},
		"grpc_unknown_authority":             {start: grpcUnknownAuthority, class: "destination", calls: calls{hopeless: true}},

		"file_full": {start: fullFile, class: "retryable", calls: calls{hopeless: true}},
	}
}

// httpServer answers the first call with answer, and takes all others.
func httpServer(t *testing.T, c *calls, answer http.HandlerFunc) *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if c.add() {
			answer(w, request)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func otlpHTTP(endpoint string) map[string]any {
	return map[string]any{"otlp_http": map[string]any{"endpoint": endpoint, "timeout": patience.String()}}
}

func httpAnswer(code int, header http.Header, body []byte) func(*testing.T, *calls) map[string]any {
	return func(t *testing.T, c *calls) map[string]any {
		server := httpServer(t, c, func(w http.ResponseWriter, _ *http.Request) {
			maps.Copy(w.Header(), header)
			w.Header().Set("Content-Type", "application/x-protobuf")
			w.WriteHeader(code)
			_, _ = w.Write(body)
		})
		server.Start()
		return otlpHTTP(server.URL)
	}
}

// statusBody is how OTLP servers tell an error.
func statusBody(code codes.Code, text string) []byte {
	body, err := proto.Marshal(status.New(code, text).Proto())
	if err != nil {
		return []byte(err.Error())
	}
	return body
}

// httpHangs does not answer while its client waits.
func httpHangs(t *testing.T, c *calls) map[string]any {
	server := httpServer(t, c, func(_ http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body) // or it does not see that the client goes
		<-request.Context().Done()
	})
	server.Start()
	return otlpHTTP(server.URL)
}

// httpBreaksOff closes the connection instead of an answer.
func httpBreaksOff(t *testing.T, c *calls) map[string]any {
	server := httpServer(t, c, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	server.Start()
	return otlpHTTP(server.URL)
}

// httpUnknownAuthority has a certificate that nobody vouches for.
func httpUnknownAuthority(t *testing.T, c *calls) map[string]any {
	server := httpServer(t, c, nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // each handshake that fails
	server.StartTLS()
	return otlpHTTP(server.URL)
}

func otlpGRPC(endpoint string, tls map[string]any) map[string]any {
	return map[string]any{"otlp_grpc": map[string]any{"endpoint": endpoint, "tls": tls, "timeout": patience.String()}}
}

// insecure is for servers without TLS.
var insecure = map[string]any{"insecure": true}

// grpcServer has answer decide about the first call, and takes all others.
func grpcServer(t *testing.T, c *calls, answer func(context.Context) error, options ...grpc.ServerOption) string {
	options = append(options, grpc.UnaryInterceptor(
		func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if c.add() && answer != nil {
				return nil, answer(ctx)
			}
			return handle(ctx, request)
		}))
	server, err := sink.Listen(options...)
	require.NoError(t, err)
	t.Cleanup(server.Close)
	return server.Address()
}

func grpcAnswer(err error) func(*testing.T, *calls) map[string]any {
	return func(t *testing.T, c *calls) map[string]any {
		return otlpGRPC(grpcServer(t, c, func(context.Context) error { return err }), insecure)
	}
}

func withRetryDelay(code codes.Code, delay time.Duration) error {
	detailed, err := status.New(code, "busy").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
	if err != nil {
		return err
	}
	return detailed.Err()
}

// grpcSmallMessages takes one item of the request, and not two.
func grpcSmallMessages(t *testing.T, c *calls) map[string]any {
	return otlpGRPC(grpcServer(t, c, nil, grpc.MaxRecvMsgSize(10<<10)), insecure)
}

func grpcHangs(t *testing.T, c *calls) map[string]any {
	return otlpGRPC(grpcServer(t, c, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}), insecure)
}

func grpcUnknownAuthority(t *testing.T, c *calls) map[string]any {
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	t.Cleanup(certified.Close)
	config := &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}}
	return otlpGRPC(grpcServer(t, c, nil, grpc.Creds(credentials.NewTLS(config))), nil)
}

// nobody is an address where nothing listens.
func nobody(wrapped string) func(*testing.T, *calls) map[string]any {
	return func(t *testing.T, _ *calls) map[string]any {
		address, err := process.FreeAddress()
		require.NoError(t, err)
		if wrapped == "otlp_http" {
			return otlpHTTP("http://" + address)
		}
		return otlpGRPC(address, insecure)
	}
}

// fullFile is a file on a device that is always full.
func fullFile(*testing.T, *calls) map[string]any {
	return map[string]any{"file": map[string]any{"path": "/dev/full"}}
}
