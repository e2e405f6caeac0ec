// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"path"
	"strings"

	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
)

// httpStatus is how proxies and servers say over HTTP what a refusal says over gRPC.
// What is not in it is 503.
var httpStatus = map[codes.Code]int{
	codes.InvalidArgument:  http.StatusBadRequest,
	codes.PermissionDenied: http.StatusForbidden,
}

// ServeHTTP takes OTLP over HTTP, for any server that a test puts around it.
func (s *Sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := s.takeHTTP(r, body)
	if err != nil {
		code, ok := httpStatus[status.Code(err)]
		if !ok {
			code = http.StatusServiceUnavailable
		}
		http.Error(w, err.Error(), code)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(answer) // the client may have gone; there is nobody else to tell
}

func readBody(r *http.Request) ([]byte, error) {
	if r.Header.Get("Content-Encoding") != "gzip" {
		return io.ReadAll(r.Body)
	}
	unzipped, err := gzip.NewReader(r.Body)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(unzipped)
}

// takeHTTP takes a request and returns the answer.
func (s *Sink) takeHTTP(r *http.Request, body []byte) ([]byte, error) {
	md := metadata.MD{}
	for key, values := range r.Header {
		md[strings.ToLower(key)] = values
	}
	ctx := metadata.NewIncomingContext(r.Context(), md)
	switch otlpdata.Signal(path.Base(r.URL.Path)) {
	case otlpdata.Traces:
		return s.takeTraces(ctx, body)
	case otlpdata.Logs:
		return s.takeLogs(ctx, body)
	case otlpdata.Metrics:
		return s.takeMetrics(ctx, body)
	default:
		return nil, status.Error(codes.InvalidArgument, "no such signal: "+r.URL.Path)
	}
}

func (s *Sink) takeTraces(ctx context.Context, body []byte) ([]byte, error) {
	request := ptraceotlp.NewExportRequest()
	if err := request.UnmarshalProto(body); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	answer, err := (&tracesServer{sink: s}).Export(ctx, request)
	if err != nil {
		return nil, err
	}
	return answer.MarshalProto()
}

func (s *Sink) takeLogs(ctx context.Context, body []byte) ([]byte, error) {
	request := plogotlp.NewExportRequest()
	if err := request.UnmarshalProto(body); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	answer, err := (&logsServer{sink: s}).Export(ctx, request)
	if err != nil {
		return nil, err
	}
	return answer.MarshalProto()
}

func (s *Sink) takeMetrics(ctx context.Context, body []byte) ([]byte, error) {
	request := pmetricotlp.NewExportRequest()
	if err := request.UnmarshalProto(body); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	answer, err := (&metricsServer{sink: s}).Export(ctx, request)
	if err != nil {
		return nil, err
	}
	return answer.MarshalProto()
}
