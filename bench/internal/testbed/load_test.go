// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func listen(t *testing.T, delay time.Duration) *Backend {
	t.Helper()
	b, err := Listen(delay)
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

func send(t *testing.T, l Load, b *Backend) Sent {
	t.Helper()
	sending, err := l.Send(t.Context(), b.Address())
	require.NoError(t, err)
	came, err := sending.Wait()
	require.NoError(t, err)
	return came
}

func TestLoadArrives(t *testing.T) {
	b := listen(t, 0)
	began := time.Now()
	came := send(t, Load{Items: 10, Every: time.Millisecond, For: 100 * time.Millisecond}, b)
	took := time.Since(began)
	b.Close()
	assert.Equal(t, 1000, came.Records)
	assert.Zero(t, came.Refused)
	require.NoError(t, came.Err)
	assert.Len(t, came.Latencies, 100)
	assert.Equal(t, 1000, b.Received())
	assert.Equal(t, 100, b.Calls())
	assert.GreaterOrEqual(t, took, 99*time.Millisecond)
	for _, latency := range b.Latencies() {
		assert.Positive(t, latency)
		assert.Less(t, latency, took)
	}
}

// TestSlowRepliesDoNotLowerTheRate sends more in the delay of one call than could
// be sent one after the other.
func TestSlowRepliesDoNotLowerTheRate(t *testing.T) {
	const delay = 50 * time.Millisecond
	b := listen(t, delay)
	came := send(t, Load{Items: 1, Every: time.Millisecond, For: 100 * time.Millisecond}, b)
	assert.Equal(t, 100, came.Records)
	for _, latency := range came.Latencies {
		assert.GreaterOrEqual(t, latency, delay)
	}
}

// TestInFlightIsBounded has a backend that replies to nothing while the load lasts.
func TestInFlightIsBounded(t *testing.T) {
	b := listen(t, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Ten times as many as the bound are due at once.
	l := Load{Items: 1, Every: time.Microsecond, For: 10 * maxInFlight * time.Microsecond}
	sending, err := l.Send(ctx, b.Address())
	require.NoError(t, err)
	cancel()
	came, err := sending.Wait()
	require.NoError(t, err)
	assert.Equal(t, maxInFlight, came.Records)
	assert.Equal(t, maxInFlight, came.Refused)
	assert.Equal(t, codes.Canceled, status.Code(came.Err))
}

func TestLoadEndsWithTheContext(t *testing.T) {
	b := listen(t, 0)
	ctx, cancel := context.WithCancelCause(t.Context())
	died := errors.New("the collector ended")
	time.AfterFunc(20*time.Millisecond, func() { cancel(died) })
	_, err := Load{Items: 1, Every: time.Millisecond, For: time.Hour}.Send(ctx, b.Address())
	require.ErrorIs(t, err, died)
}

func TestLoadNeedsAConnection(t *testing.T) {
	b := listen(t, 0)
	address := b.Address()
	b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := Load{Items: 1, Every: time.Millisecond, For: time.Second}.Send(ctx, address)
	require.ErrorContains(t, err, "no connection to "+address)
}

// TestBackendEndsItsCalls checks that a delay does not hold up a caller that gives
// up.
func TestBackendEndsItsCalls(t *testing.T) {
	b := listen(t, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Export(ctx, plogotlp.NewExportRequest())
	require.ErrorIs(t, err, context.Canceled)
}

// TestBodiesAreJSON is what the heavy chain of processors relies on.
func TestBodiesAreJSON(t *testing.T) {
	templates := Load{Items: 10}.templates()
	assert.Len(t, templates, variety)
	seen := map[string]bool{}
	for _, request := range templates {
		assert.Equal(t, 10, request.LogRecordCount())
		for record := range records(request) {
			text := record.Body().Str()
			assert.True(t, json.Valid([]byte(text)), text)
			seen[text] = true
		}
	}
	assert.Len(t, seen, 10*variety)
}
