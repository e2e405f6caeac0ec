// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/pullbatch/batcherexporter/internal/e2e/client"
	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
)

func listen(t *testing.T) (*Sink, client.Client) {
	s, err := Listen()
	require.NoError(t, err)
	t.Cleanup(s.Close)
	c, err := client.Dial(client.GRPC, s.Address())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return s, c
}

func TestSinkTakesWhatTheClientSends(t *testing.T) {
	for _, signal := range otlpdata.Signals() {
		t.Run(string(signal), func(t *testing.T) {
			s, c := listen(t)
			load := client.Load{Signal: signal, Items: 1001, MaxItems: 20, Workers: 3, Seed: 7}
			outcome := load.Run(t.Context(), c)
			require.NoError(t, outcome.Err)
			assert.Equal(t, 1001, outcome.Items())
			difference := s.Tally(signal).Compare(outcome.Accepted)
			assert.True(t, difference.Empty(), "%v", difference)
			assert.LessOrEqual(t, s.Tally(signal).Largest(), 20)
		})
	}
}

func TestSinkRefuses(t *testing.T) {
	s, c := listen(t)
	s.Refuse(2, status.Error(codes.Unavailable, "try again"))
	load := client.Load{Signal: otlpdata.Logs, Items: 100, MaxItems: 5, Workers: 1}
	outcome := load.Run(t.Context(), c)
	assert.ErrorContains(t, outcome.Err, "try again")
	assert.Len(t, outcome.Failed, 2)
	assert.Equal(t, 2, s.Refused())
	difference := s.Tally(otlpdata.Logs).Compare(outcome.Accepted)
	assert.True(t, difference.Empty(), "%v", difference)
}

func TestSinkRefusesByContent(t *testing.T) {
	s, c := listen(t)
	s.RefuseIf(func(request *otlpdata.Tally) error {
		if request.Has(7) {
			return status.Error(codes.InvalidArgument, "seven")
		}
		return nil
	})
	load := client.Load{Signal: otlpdata.Metrics, Items: 100, MaxItems: 5, Workers: 1}
	outcome := load.Run(t.Context(), c)
	assert.ErrorContains(t, outcome.Err, "seven")
	require.Len(t, outcome.Failed, 1)
	assert.Equal(t, 1, s.Refused())
	difference := s.Refusals(otlpdata.Metrics).Compare(outcome.Failed)
	assert.True(t, difference.Empty(), "%v", difference)
	assert.Equal(t, outcome.Failed[0].Items, s.Refusals(otlpdata.Metrics).Identities())
	difference = s.Tally(otlpdata.Metrics).Compare(outcome.Accepted)
	assert.True(t, difference.Empty(), "%v", difference)
}

func TestSinkEndlessLoadEndsWithAFailure(t *testing.T) {
	s, c := listen(t)
	s.Refuse(1, status.Error(codes.Unavailable, "try again"))
	load := client.Load{Signal: otlpdata.Logs, MaxItems: 5, Workers: 1}
	outcome := load.Run(t.Context(), c)
	assert.Len(t, outcome.Failed, 1)
	assert.Empty(t, outcome.Accepted)
}

func TestSinkRemembersMetadata(t *testing.T) {
	s, c := listen(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-id", "0123")
	require.NoError(t, c.Send(ctx, otlpdata.Traces, otlpdata.Range{First: 1, Items: 1}))
	require.Len(t, s.Metadata(), 1)
	assert.Equal(t, []string{"0123"}, s.Metadata()[0].Get("x-id"))
}

func TestSinkOverHTTP(t *testing.T) {
	for _, signal := range otlpdata.Signals() {
		t.Run(string(signal), func(t *testing.T) {
			s, _ := listen(t)
			server := httptest.NewServer(s)
			t.Cleanup(server.Close)
			c, err := client.Dial(client.HTTP, server.Listener.Addr().String())
			require.NoError(t, err)
			s.Refuse(2, status.Error(codes.PermissionDenied, "blocked"))
			outcome := client.Load{Signal: signal, Items: 1001, MaxItems: 20, Workers: 3}.Run(t.Context(), c)
			require.NoError(t, c.Close())
			assert.ErrorContains(t, outcome.Err, "403 Forbidden")
			assert.Len(t, outcome.Failed, 2)
			difference := s.Tally(signal).Compare(outcome.Accepted)
			assert.True(t, difference.Empty(), "%v", difference)
			assert.Equal(t, []string{"application/x-protobuf"}, s.Metadata()[0].Get("content-type"))
		})
	}
}
