// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package settle

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/multierr"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// httpText is the error that otlp_http returns for an HTTP status: the status is
// in the text, and the gRPC code around it says something else.
func httpText(code codes.Code, text string) error {
	return status.Error(code, "error exporting items, request to http://backend:4318/v1/logs responded with "+text)
}

func TestOf(t *testing.T) {
	plain := errors.New("connection refused")
	permanent := consumererror.NewPermanent
	throttle := exporterhelper.NewThrottleRetry(plain, 3*time.Second)
	withInfo, err := status.New(codes.ResourceExhausted, "slow down").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(7 * time.Second)})
	require.NoError(t, err)
	for _, c := range []struct {
		name  string
		err   error
		class Class
		delay time.Duration
		limit int
	}{
		{"plain", plain, Retryable, 0, 0},
		{"grpc unavailable", status.Error(codes.Unavailable, "away"), Retryable, 0, 0},
		{"grpc invalid argument that nobody called permanent", status.Error(codes.InvalidArgument, "bad"), Retryable, 0, 0},
		{"typed http 503", consumererror.NewOTLPHTTPError(plain, 503), Retryable, 0, 0},
		{"typed retryable", consumererror.NewRetryableError(plain), Retryable, 0, 0},
		{"throttle", throttle, Throttled, 3 * time.Second, 0},
		{"wrapped throttle", fmt.Errorf("export: %w", throttle), Throttled, 3 * time.Second, 0},
		{"grpc retry info", withInfo.Err(), Throttled, 7 * time.Second, 0},
		{"permanent throttle", permanent(throttle), Permanent, 0, 0},

		{"otlp_http 413", permanent(httpText(codes.Unknown, "HTTP Status Code 413")), TooLarge, 0, 0},
		{"otlp_http 400, too large", permanent(httpText(codes.InvalidArgument, "HTTP Status Code 400, Message=http: request body too large, Details=[]")), TooLarge, 0, 0},
		{"remote write 413", permanent(errors.New("remote write returned HTTP status 413 Request Entity Too Large")), TooLarge, 0, 0},
		{"typed http 413", consumererror.NewOTLPHTTPError(plain, 413), TooLarge, 0, 0},
		{"grpc receiver's limit", permanent(status.Error(codes.ResourceExhausted, "grpc: received message larger than max (5242880 vs. 4194304)")), TooLarge, 0, 4194304},
		{"grpc, after decompression", permanent(status.Error(codes.ResourceExhausted, "grpc: received message after decompression larger than max 4194304")), TooLarge, 0, 4194304},
		{"grpc sender's limit, not permanent", status.Error(codes.ResourceExhausted, "trying to send message larger than max (9 vs. 4)"), TooLarge, 0, 4},
		{"grpc, from a proxy", permanent(status.Error(codes.Unknown, "unexpected HTTP status code received from server: 413 (Request Entity Too Large)")), TooLarge, 0, 0},
		{"unavailable, with another's status in its text", status.Error(codes.Unavailable, "upstream said HTTP status 413"), Retryable, 0, 0},
		{"plain, with a status in its text", errors.New("proxy: HTTP status 413"), Retryable, 0, 0},
		{"refused, with another's status in its text", permanent(status.Error(codes.InvalidArgument, "schema registry returned HTTP status 404")), Refused, 0, 0},
		{"internal, with another's status in its text", permanent(status.Error(codes.Internal, "message too large; HTTP status 413")), Permanent, 0, 0},
		{"otlp_http 400, a field too large", permanent(httpText(codes.InvalidArgument, "HTTP Status Code 400, Message=log message too large for field body, Details=[]")), Refused, 0, 0},
		{"unknown exporter's text", permanent(errors.New("push failed: http status: 413")), TooLarge, 0, 0},
		{"typed grpc", consumererror.NewOTLPGRPCError(plain, status.New(codes.ResourceExhausted, "quota")), Permanent, 0, 0},
		{"typed grpc whose status has the text", consumererror.NewOTLPGRPCError(plain, status.New(codes.ResourceExhausted, "trying to send message larger than max (9 vs. 4)")), TooLarge, 0, 4},
		{"grpc quota", permanent(status.Error(codes.ResourceExhausted, "quota exceeded")), Permanent, 0, 0},

		{"grpc invalid argument", permanent(status.Error(codes.InvalidArgument, "bad record")), Refused, 0, 0},
		{"wrapped grpc invalid argument", permanent(fmt.Errorf("rpc: %w", status.Error(codes.InvalidArgument, "bad record"))), Refused, 0, 0},
		{"otlp_http 400", permanent(httpText(codes.InvalidArgument, "HTTP Status Code 400")), Refused, 0, 0},
		{"typed http 422", consumererror.NewOTLPHTTPError(plain, 422), Refused, 0, 0},

		{"grpc unauthenticated", permanent(status.Error(codes.Unauthenticated, "who?")), Destination, 0, 0},
		{"grpc permission denied", permanent(status.Error(codes.PermissionDenied, "no")), Destination, 0, 0},
		{"grpc unimplemented", permanent(status.Error(codes.Unimplemented, "unknown service")), Destination, 0, 0},
		{"otlp_http 401", permanent(httpText(codes.Unauthenticated, "HTTP Status Code 401")), Destination, 0, 0},
		{"otlp_http 404", permanent(httpText(codes.Unimplemented, "HTTP Status Code 404")), Destination, 0, 0},
		{"typed http 403", consumererror.NewOTLPHTTPError(plain, 403), Destination, 0, 0},
		{"grpc unknown authority", status.Error(codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority"`), Destination, 0, 0},
		{"unknown authority that nobody called permanent", fmt.Errorf("post: %w", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), Destination, 0, 0},
		{"unknown authority", permanent(fmt.Errorf("post: %w", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})), Destination, 0, 0},

		{"permanent", permanent(plain), Permanent, 0, 0},
		{"wrapped permanent", fmt.Errorf("export: %w", permanent(plain)), Permanent, 0, 0},
		{"otlp_http 500", permanent(httpText(codes.Internal, "HTTP Status Code 500")), Permanent, 0, 0},
		{"two causes, one permanent", fmt.Errorf("%w: %w", plain, permanent(plain)), Permanent, 0, 0},

		{"join of permanent and retryable", errors.Join(permanent(plain), plain), Retryable, 0, 0},
		{"join of throttles", errors.Join(plain, throttle, exporterhelper.NewThrottleRetry(plain, 5*time.Second)), Throttled, 5 * time.Second, 0},
		{"multierr of permanent and throttle", multierr.Combine(permanent(plain), throttle), Throttled, 3 * time.Second, 0},
		{"wrapped join", fmt.Errorf("export: %w", errors.Join(permanent(plain), plain)), Retryable, 0, 0},
		{"permanent around a join", permanent(errors.Join(plain, plain)), Permanent, 0, 0},
		{"join of permanents", errors.Join(permanent(plain), permanent(status.Error(codes.InvalidArgument, "bad"))), Refused, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := Of(c.err, false)
			assert.Equal(t, c.class, v.Class)
			assert.Equal(t, c.delay, v.Delay)
			assert.Equal(t, c.limit, v.Limit)
			own := Of(c.err, true)
			assert.Equal(t, Unknown, own.Class, "whatever it says, after our own cancellation")
			assert.True(t, own.Retry())
		})
	}
	assert.Equal(t, Unknown, Of(context.DeadlineExceeded, true).Class)
}

// What the exporter's own deadline or cancellation ended says nothing about the
// data, whatever the exporter calls it and wherever in the tree it is.
func TestOfEnded(t *testing.T) {
	permanent := consumererror.NewPermanent
	for name, err := range map[string]error{
		"deadline":            context.DeadlineExceeded,
		"permanent":           permanent(context.DeadlineExceeded),
		"url error":           permanent(&url.Error{Op: "Post", URL: "http://backend", Err: context.DeadlineExceeded}),
		"grpc":                permanent(status.Error(codes.DeadlineExceeded, "too slow")),
		"typed":               consumererror.NewOTLPGRPCError(errors.New("x"), status.New(codes.DeadlineExceeded, "y")),
		"cancelled":           permanent(status.Error(codes.Canceled, "gone")),
		"connection deadline": permanent(fmt.Errorf("read: %w", os.ErrDeadlineExceeded)),
		"text":                permanent(errors.New(`Post "http://backend": context deadline exceeded (Client.Timeout exceeded while awaiting headers)`)),
		"text of a gateway":   permanent(status.Error(codes.Internal, "rpc error: code = DeadlineExceeded desc = context deadline exceeded")),
		"beside too large":    errors.Join(consumererror.NewOTLPHTTPError(errors.New("x"), 413), context.DeadlineExceeded),
		"below NewLogs":       errors.Join(errors.New("shard 1"), permanent(consumererror.NewLogs(context.DeadlineExceeded, plog.NewLogs()))),
		"below several %w":    fmt.Errorf("%w: %w", errors.New("export"), permanent(context.DeadlineExceeded)),
	} {
		v := Of(err, false)
		assert.Equal(t, Unknown, v.Class, name)
		assert.True(t, v.Retry(), name)
	}
	quoted := Of(permanent(status.Error(codes.InvalidArgument, "schema check failed: context deadline exceeded")), false)
	assert.Equal(t, Refused, quoted.Class, "a refusal that quotes another's deadline")
}

// details are the fields of a verdict beside its class.
type details struct {
	class                               Class
	found, limit                        int
	ambiguous, address, undecoded, kept bool
}

func detailsOf(err error) details {
	v := Of(err, false)
	return details{v.Class, v.Found, v.Limit, v.Ambiguous, v.Address, v.Undecoded, v.Kept}
}

func TestOfDetails(t *testing.T) {
	permanent := consumererror.NewPermanent
	refusal := func(text string) error {
		return permanent(httpText(codes.InvalidArgument, "HTTP Status Code 400, Message="+text+", Details=[]"))
	}
	for _, c := range []struct {
		name string
		err  error
		want details
	}{
		{"rust, retryable code", status.Error(codes.OutOfRange, "Error, decoded message length too large: found 5242880 bytes, the limit is: 4194304 bytes"), details{class: TooLarge, found: 5242880, limit: 4194304}},
		{"rust, typed", consumererror.NewOTLPGRPCError(errors.New("x"), status.New(codes.OutOfRange, "message length too large: found 9 bytes, the limit is: 4 bytes")), details{class: TooLarge, found: 9, limit: 4}},
		{"out of range of something else", status.Error(codes.OutOfRange, "offset 9 is out of range"), details{class: Retryable}},
		{"java", permanent(status.Error(codes.ResourceExhausted, "gRPC message exceeds maximum size 4: 9")), details{class: TooLarge, found: 9, limit: 4}},
		{"dotnet", permanent(status.Error(codes.ResourceExhausted, "Received message exceeds the maximum configured message size.")), details{class: TooLarge}},
		{"of a gateway that was told so", permanent(status.Error(codes.Internal, "Permanent error: rpc error: code = ResourceExhausted desc = grpc: received message larger than max (9 vs. 4)")), details{class: TooLarge, found: 9, limit: 4}},
		{"of Loki, with 500", permanent(httpText(codes.Internal, "HTTP Status Code 500, Message=rpc error: code = ResourceExhausted desc = grpc: received message larger than max (9 vs. 4)")), details{class: TooLarge, found: 9, limit: 4}},
		{"kafka", permanent(errors.New("record size 2000000 exceeds max 1000000: MESSAGE_TOO_LARGE: The request included a message larger than the max message size the server will accept.")), details{class: TooLarge, found: 2000000, limit: 1000000}}, //nolint:revive // as it comes
		{"kafka, plain", errors.New("Attempt to produce message larger than configured Producer.MaxMessageBytes: 1132544 > 1000000"), details{class: TooLarge, found: 1132544, limit: 1000000}},
		{"splunk", permanent(errors.New(`HTTP 413 "Request Entity Too Large"`)), details{class: TooLarge}},
		{"splunk, plain", errors.New(`HTTP 413 "Request Entity Too Large"`), details{class: TooLarge}},
		{"elasticsearch", errors.New("flush failed (413): request entity too large"), details{class: TooLarge}},
		{"a count of items is no limit", permanent(status.Error(codes.InvalidArgument, "batch size 9000 exceeds the maximum of 8192 spans")), details{class: TooLarge, ambiguous: true}},
		{"a status that is left in a text", permanent(errors.New("export: rpc error: code = Unauthenticated desc = no token")), details{class: Destination}},
		{"number only", permanent(errors.New("server responded with 413")), details{class: TooLarge}},
		{"number that counts something", permanent(errors.New("server returned 413 records")), details{class: Permanent}},
		{"413 below a retryable wrapper", consumererror.NewRetryableError(consumererror.NewOTLPHTTPError(errors.New("x"), 413)), details{class: TooLarge}},
		{"413 below NewTraces", consumererror.NewTraces(consumererror.NewOTLPHTTPError(errors.New("x"), 413), ptrace.NewTraces()), details{class: TooLarge}},
		{"413 in a join below a permanent", permanent(errors.Join(errors.New("x"), consumererror.NewOTLPHTTPError(errors.New("x"), 413))), details{class: TooLarge}},
		{"413 with both numbers", permanent(httpText(codes.Unknown, "HTTP Status Code 413, Message=its message size of 100 bytes is larger than the allowed limit of 50 bytes")), details{class: TooLarge, found: 100, limit: 50}},
		{"a 400 about a body", refusal("body too large"), details{class: TooLarge, ambiguous: true}},
		{"a 400 about a request's body", refusal("http: request body too large"), details{class: TooLarge}},
		{"a 400 about a record's body", refusal("log record 4711: body too large"), details{class: Refused}},
		{"a 400 about a trace", refusal("TRACE_TOO_LARGE: max size of trace (5000000) exceeded while adding 60000 bytes to trace a1"), details{class: Refused, kept: true}},
		{"a 429 is no size", permanent(httpText(codes.ResourceExhausted, "HTTP Status Code 429, Message=request rate exceeds the limit of 100")), details{class: Permanent}},
		{"unavailable with such words", status.Error(codes.Unavailable, "upstream: request body too large"), details{class: Retryable}},

		{"undecoded", permanent(status.Error(codes.Internal, "grpc: error unmarshalling request: string field contains invalid UTF-8")), details{class: Refused, undecoded: true}},
		{"not encoded by the exporter", permanent(errors.New("failed to marshal: string field contains invalid UTF-8")), details{class: Refused, undecoded: true}},
		{"undecoded, http", refusal("proto: cannot parse invalid wire-format data"), details{class: Refused, undecoded: true}},
		{"undecoded at its end is no cut stream", permanent(status.Error(codes.Internal, "grpc: failed to unmarshal the received message: proto: unexpected EOF")), details{class: Refused, undecoded: true}},
		{"internal of no known words", permanent(status.Error(codes.Internal, "database is on fire")), details{class: Permanent}},
		{"kept", refusal("partial write of line protocol occurred"), details{class: Refused, kept: true}},
		{"kept, 409", permanent(errors.New("remote write returned HTTP status 409 Conflict: store locally: add 3 samples: out of bounds")), details{class: Permanent, kept: true}},
		{"too old without a word of the rest", refusal("record 17: timestamp too old"), details{class: Refused}},

		{"cut stream", permanent(status.Error(codes.Internal, "stream terminated by RST_STREAM with error code: INTERNAL_ERROR")), details{class: Retryable}},
		{"cut stream, typed", consumererror.NewOTLPGRPCError(errors.New("x"), status.New(codes.Internal, "h2 protocol error: error reading a body from connection")), details{class: Retryable}},
		{"request timeout", permanent(httpText(codes.Unknown, "HTTP Status Code 408")), details{class: Retryable}},

		{"address, 405", permanent(httpText(codes.Unknown, "HTTP Status Code 405")), details{class: Destination, address: true}},
		{"address, 308", permanent(httpText(codes.Unknown, "HTTP Status Code 308")), details{class: Destination, address: true}},
		{"address, typed 415", consumererror.NewOTLPHTTPError(errors.New("x"), 415), details{class: Destination, address: true}},
		{"address, service", permanent(status.Error(codes.Unimplemented, "unknown service")), details{class: Destination, address: true}},
		{"address, no gRPC", permanent(status.Error(codes.Unknown, `transport: received unexpected content-type "text/html"`)), details{class: Destination, address: true}},
		{"us, 401", permanent(errors.New("flush failed (401): security_exception")), details{class: Destination}},
		{"us, 407", permanent(httpText(codes.Unknown, "HTTP Status Code 407")), details{class: Destination}},
		{"us, below NewLogs", consumererror.NewLogs(permanent(status.Error(codes.Unauthenticated, "who?")), plog.NewLogs()), details{class: Destination}},
		{"us, an alert", errors.New(`Post "https://backend": remote error: tls: certificate required`), details{class: Destination}},
		{"us and the address", errors.Join(consumererror.NewOTLPHTTPError(errors.New("x"), 404), consumererror.NewOTLPHTTPError(errors.New("x"), 401)), details{class: Destination}},

		{"refused below NewMetrics", consumererror.NewMetrics(consumererror.NewOTLPHTTPError(errors.New("x"), 400), pmetric.NewMetrics()), details{class: Refused}},
		{"permanent below NewLogs", consumererror.NewLogs(permanent(errors.New("x")), plog.NewLogs()), details{class: Permanent}},
		{"permanent below a retryable wrapper", consumererror.NewRetryableError(permanent(errors.New("x"))), details{class: Retryable}},
		{"retryable below a permanent wrapper", permanent(consumererror.NewRetryableError(errors.New("x"))), details{class: Permanent}},
		{"permanent below a throttle", exporterhelper.NewThrottleRetry(permanent(errors.New("x")), time.Second), details{class: Throttled}},
		{"join of an own type", own{permanent(errors.New("x")), errors.New("y")}, details{class: Retryable}},
		{"two %w that both say something", fmt.Errorf("%w; %w", permanent(errors.New("x")), consumererror.NewRetryableError(errors.New("y"))), details{class: Retryable}},
		{"permanent around a part of unknown extent", permanent(errors.Join(errors.New("x"), left(errors.New("y"), 1))), details{class: Retryable}},
		{"permanent around parts that tell all", permanent(errors.Join(left(errors.New("x"), 1), left(errors.New("y"), 1))), details{class: Permanent}},
		{"the exporter's own words for a 413", errors.New("unexpected status code: 413"), details{class: TooLarge}},
		{"kept beside refused", errors.Join(refusal("bad"), refusal("out of order sample")), details{class: Refused, kept: true}},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, detailsOf(c.err)) })
	}
}

// own is a join of another's making.
type own []error

func (o own) Error() string   { return fmt.Sprint([]error(o)) }
func (o own) Unwrap() []error { return o }

func TestRetry(t *testing.T) {
	for _, c := range Classes {
		want := c == Retryable || c == Throttled || c == Unknown || c == Destination
		assert.Equal(t, want, Verdict{Class: c}.Retry(), c)
	}
}

func TestAlike(t *testing.T) {
	refusal := func(text string) Verdict {
		return Of(consumererror.NewPermanent(status.Error(codes.InvalidArgument, text)), false)
	}
	assert.True(t, refusal("record 17 is bad").Alike(refusal("record 4 is bad")), "numbers do not count")
	assert.False(t, refusal("record 17 is bad").Alike(refusal("record 17 is old")))
	assert.False(t, refusal("bad").Alike(Of(consumererror.NewPermanent(errors.New("bad")), false)))
}

// The types and fields are not exported: if they are renamed, delays would
// silently be ignored, and every wrapper would hide the status below it.
func TestUnexportedIsRecognised(t *testing.T) {
	assert.Equal(t, time.Minute, delayOf(exporterhelper.NewThrottleRetry(errors.New("slow down"), time.Minute)))
	assert.Zero(t, delayOf(errors.New("slow down")))
	http, grpc := ownStatus(consumererror.NewOTLPHTTPError(errors.New("x"), 413).(*consumererror.Error)) //nolint:errorlint // made here
	assert.Equal(t, 413, http)
	assert.Nil(t, grpc)
	http, grpc = ownStatus(consumererror.NewOTLPGRPCError(errors.New("x"), status.New(codes.Internal, "y")).(*consumererror.Error)) //nolint:errorlint // made here
	assert.Zero(t, http)
	assert.Equal(t, codes.Internal, grpc.Code())
	assert.False(t, hasStatus(consumererror.NewRetryableError(errors.New("x"))))
	assert.False(t, hasStatus(consumererror.NewOTLPGRPCError(errors.New("x"), nil)))
}

func TestSizeIn(t *testing.T) {
	f := func(text string, found, limit int) {
		t.Helper()
		v, _ := sizeIn(text)
		assert.Equal(t, found, v.Found, text)
		assert.Equal(t, limit, v.Limit, text)
	}
	f("received message larger than max (5242880 vs. 4194304)", 5242880, 4194304)
	f("received message after decompression larger than max 4194304", 0, 4194304)
	f("received message larger than max (99999999999999999999 vs. 99999999999999999999)", 0, 0)
	f("received message larger than max (4 vs. 9)", 0, 0)
	f("http: request body too large", 0, 0)
	f("gRPC message exceeds maximum size 4194304: 5242880", 5242880, 4194304)
	f("decoded message length too large: found 5242880 bytes, the limit is: 4194304 bytes", 5242880, 4194304)
	f("request size 5,242,880 is larger than the limit of 1 MiB", 5242880, 1<<20)
	f("payload of 5242880 bytes exceeds the maximum of 1000 kB", 5242880, 1000000)
}

func TestExcerptOfALongText(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	assert.Equal(t, TooLarge, Of(consumererror.NewPermanent(errors.New("HTTP status 413: "+long)), false).Class)
	assert.Equal(t, TooLarge, Of(errors.New(long+" received message larger than max (9 vs. 4)"), false).Class)
	assert.Less(t, len(excerpt(long)), 6000)
}

// What a connection failed with is not the data's fault, also if it is called so.
func TestOfNetwork(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	assert.Equal(t, Retryable, Of(consumererror.NewPermanent(fmt.Errorf("post: %w", refused)), false).Class)
	assert.Equal(t, Destination, Of(consumererror.NewPermanent(&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}), false).Class)
}

func TestNotPermanent(t *testing.T) {
	for name, err := range map[string]error{
		"plain":     context.Canceled,
		"permanent": consumererror.NewPermanent(context.Canceled),
		"typed":     consumererror.NewOTLPHTTPError(context.Canceled, 400),
	} {
		assert.Equal(t, name != "plain", IsPermanent(err), name)
		hidden := NotPermanent(err)
		assert.False(t, IsPermanent(hidden), name)
		assert.ErrorIs(t, hidden, context.Canceled, name)
		assert.Equal(t, err.Error(), hidden.Error(), name)
	}
}
