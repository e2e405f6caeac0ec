// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
)

type grpcClient struct {
	connection *grpc.ClientConn
	traces     ptraceotlp.GRPCClient
	logs       plogotlp.GRPCClient
	metrics    pmetricotlp.GRPCClient
}

func dialGRPC(address string) (*grpcClient, error) {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &grpcClient{
		connection: connection,
		traces:     ptraceotlp.NewGRPCClient(connection),
		logs:       plogotlp.NewGRPCClient(connection),
		metrics:    pmetricotlp.NewGRPCClient(connection),
	}, nil
}

func (c *grpcClient) Close() error { return c.connection.Close() }

func (c *grpcClient) Send(ctx context.Context, signal otlpdata.Signal, r otlpdata.Range) error {
	switch signal {
	case otlpdata.Traces:
		return c.sendTraces(ctx, r)
	case otlpdata.Logs:
		return c.sendLogs(ctx, r)
	default:
		return c.sendMetrics(ctx, r)
	}
}

func (c *grpcClient) sendTraces(ctx context.Context, r otlpdata.Range) error {
	answer, err := c.traces.Export(ctx, ptraceotlp.NewExportRequestFromTraces(otlpdata.NewTraces(r)))
	if err != nil {
		return err
	}
	return partlyRejected(answer.PartialSuccess().RejectedSpans(), answer.PartialSuccess().ErrorMessage())
}

func (c *grpcClient) sendLogs(ctx context.Context, r otlpdata.Range) error {
	answer, err := c.logs.Export(ctx, plogotlp.NewExportRequestFromLogs(otlpdata.NewLogs(r)))
	if err != nil {
		return err
	}
	return partlyRejected(answer.PartialSuccess().RejectedLogRecords(), answer.PartialSuccess().ErrorMessage())
}

func (c *grpcClient) sendMetrics(ctx context.Context, r otlpdata.Range) error {
	answer, err := c.metrics.Export(ctx, pmetricotlp.NewExportRequestFromMetrics(otlpdata.NewMetrics(r)))
	if err != nil {
		return err
	}
	return partlyRejected(answer.PartialSuccess().RejectedDataPoints(), answer.PartialSuccess().ErrorMessage())
}
