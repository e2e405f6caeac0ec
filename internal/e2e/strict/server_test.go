// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package strict

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/pullbatch/batcherexporter/internal/e2e/client"
	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
)

func TestServerIsStrict(t *testing.T) {
	s, err := Listen()
	require.NoError(t, err)
	defer s.Close()
	conn, err := grpc.NewClient(s.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	send := func(body string) error {
		data := plog.NewLogs()
		data.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Body().SetStr(body)
		_, err := plogotlp.NewGRPCClient(conn).Export(t.Context(), plogotlp.NewExportRequestFromLogs(data))
		return err
	}
	require.NoError(t, send("café"))
	err = send("caf\xe9")
	assert.Equal(t, codes.Internal, status.Code(err))
	require.ErrorContains(t, err, "UTF-8")
	assert.Equal(t, map[string]int{"café": 1}, s.Bodies())
}

func TestServerHasLogsOnly(t *testing.T) {
	s, err := Listen()
	require.NoError(t, err)
	defer s.Close()
	c, err := client.Dial(client.GRPC, s.Address())
	require.NoError(t, err)
	err = c.Send(t.Context(), otlpdata.Metrics, otlpdata.Range{First: 1, Items: 1})
	assert.Equal(t, codes.Unimplemented, status.Code(err))
	require.NoError(t, c.Close())
}
