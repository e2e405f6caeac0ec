// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
)

// idleConnections is above the number of workers of any load, so that each keeps
// its connection.
const idleConnections = 64

type httpClient struct {
	address   string
	transport *http.Transport
}

func newHTTPClient(address string) *httpClient {
	return &httpClient{address: address, transport: &http.Transport{MaxIdleConnsPerHost: idleConnections}}
}

func (c *httpClient) Close() error {
	c.transport.CloseIdleConnections()
	return nil
}

func (c *httpClient) Send(ctx context.Context, signal otlpdata.Signal, r otlpdata.Range) error {
	body, err := marshal(signal, r)
	if err != nil {
		return err
	}
	url := fmt.Sprintf("http://%s/v1/%s", c.address, signal)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	answer, err := c.transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %q", answer.Status, content)
	}
	return checkAnswer(signal, content)
}

func marshal(signal otlpdata.Signal, r otlpdata.Range) ([]byte, error) {
	switch signal {
	case otlpdata.Traces:
		return ptraceotlp.NewExportRequestFromTraces(otlpdata.NewTraces(r)).MarshalProto()
	case otlpdata.Logs:
		return plogotlp.NewExportRequestFromLogs(otlpdata.NewLogs(r)).MarshalProto()
	default:
		return pmetricotlp.NewExportRequestFromMetrics(otlpdata.NewMetrics(r)).MarshalProto()
	}
}

func checkAnswer(signal otlpdata.Signal, content []byte) error {
	switch signal {
	case otlpdata.Traces:
		answer := ptraceotlp.NewExportResponse()
		if err := answer.UnmarshalProto(content); err != nil {
			return err
		}
		return partlyRejected(answer.PartialSuccess().RejectedSpans(), answer.PartialSuccess().ErrorMessage())
	case otlpdata.Logs:
		answer := plogotlp.NewExportResponse()
		if err := answer.UnmarshalProto(content); err != nil {
			return err
		}
		return partlyRejected(answer.PartialSuccess().RejectedLogRecords(), answer.PartialSuccess().ErrorMessage())
	default:
		answer := pmetricotlp.NewExportResponse()
		if err := answer.UnmarshalProto(content); err != nil {
			return err
		}
		return partlyRejected(answer.PartialSuccess().RejectedDataPoints(), answer.PartialSuccess().ErrorMessage())
	}
}
