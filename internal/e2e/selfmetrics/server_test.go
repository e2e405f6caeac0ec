// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package selfmetrics

import (
	"bytes"
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

func listen(t *testing.T) *Server {
	server, err := Listen()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Close()) })
	return server
}

// sums returns a sum with one series for each trigger, as collected at a time.
func sums(at pcommon.Timestamp, values map[string]int64) pmetric.Metrics {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("batches")
	points := m.SetEmptySum().DataPoints()
	for trigger, value := range values {
		p := points.AppendEmpty()
		p.SetIntValue(value)
		p.SetTimestamp(at)
		p.Attributes().PutStr("trigger", trigger)
	}
	return md
}

func post(t *testing.T, server *Server, body []byte) int {
	answer, err := http.Post(server.URL(), "application/x-protobuf", bytes.NewReader(body))
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer.StatusCode
}

func TestServerHoldsTheLatest(t *testing.T) {
	server := listen(t)
	assert.False(t, server.Latest().Has("batches"))
	// The last arrives late: it is older than the one before.
	for _, one := range []struct {
		at   pcommon.Timestamp
		size int64
	}{{1, 1}, {3, 5}, {2, 4}} {
		request := pmetricotlp.NewExportRequestFromMetrics(sums(one.at, map[string]int64{"size": one.size, "timeout": 2}))
		body, err := request.MarshalProto()
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, post(t, server, body))
	}
	latest := server.Latest()
	assert.Equal(t, 7, latest.Value("batches", nil))
	assert.Equal(t, 5, latest.Value("batches", Match{"trigger": "size"}))
	assert.Equal(t, 2, latest.Value("batches", Match{"trigger": "time*"}))
	assert.Equal(t, 2, latest.Value("batches", Match{"trigger": "*out"}))
	assert.Zero(t, latest.Value("batches", Match{"trigger": "flush"}))
	assert.Zero(t, latest.Value("other", nil))
}

func TestServerRefusesWhatIsNotOTLP(t *testing.T) {
	server := listen(t)
	assert.Equal(t, http.StatusBadRequest, post(t, server, []byte("not protobuf")))
	assert.True(t, server.Latest().At.IsZero())
}

func TestServerWait(t *testing.T) {
	server := listen(t)
	atLeastTwo := func(s Snapshot) bool { return s.Value("batches", nil) >= 2 }
	found := make(chan Snapshot)
	go func() {
		snapshot, err := server.Wait(t.Context(), atLeastTwo)
		assert.NoError(t, err)
		found <- snapshot
	}()
	server.set(newSnapshot(sums(1, map[string]int64{"size": 1})))
	server.set(newSnapshot(sums(2, map[string]int64{"size": 2})))
	assert.Equal(t, 2, (<-found).Value("batches", nil))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := server.Wait(ended, func(Snapshot) bool { return false })
	assert.ErrorContains(t, err, "no such metrics from the collector: context canceled")
}

func TestSnapshotOfHistogram(t *testing.T) {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("duration")
	p := m.SetEmptyHistogram().DataPoints().AppendEmpty()
	p.SetCount(3)
	p.SetSum(12)
	snapshot := newSnapshot(md)
	assert.Equal(t, 3, snapshot.Count("duration", nil))
	assert.Equal(t, 12, snapshot.Value("duration", nil))
}
