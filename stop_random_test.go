// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
)

// randomStops is how many stops TestStop_AtRandomMoments makes.
const randomStops = 1000

// Stops at random moments, under random failures of every class: each time
// accepted = sent + dropped (which stop checks, in the account and in the
// metrics), what the backend took is what is counted as sent, and nothing came
// twice.
func TestStop_AtRandomMoments(t *testing.T) {
	all := []kind{kindTraces, kindMetrics, kindLogs, kindProfiles}
	for seed := range uint64(randomStops) {
		synctest.Test(t, func(t *testing.T) { stopAtRandom(t, all[seed%4], seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func stopAtRandom(t *testing.T, k kind, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 17))
	limit := 2 + rnd.IntN(20)
	r := startRig(t, k, &sink{answer: (&troubles{rnd: rand.New(rand.NewPCG(seed, 18))}).answer}, fmt.Sprintf(`
drain_timeout: %dms
refusals: {isolate: always, max_attempts: 20}
retry_on_failure: {initial_interval: 50ms, max_interval: 200ms, max_elapsed_time: %dms}
sending_queue:
  sizer: items
  queue_size: %d
  num_consumers: %d
  block_on_overflow: %v
  wait_for_result: %v
  batch: {min_size: %d, max_size: %d, flush_timeout: 20ms}
`, rnd.IntN(600), rnd.IntN(2)*500, 10*limit, 1+rnd.IntN(4), rnd.IntN(2) == 0, rnd.IntN(3) == 0, 1+rnd.IntN(limit), limit))
	ctx, cancel := context.WithCancel(t.Context())
	var producers sync.WaitGroup
	for n := range int64(3) {
		pause := time.Duration(1+rnd.IntN(9)) * time.Millisecond
		items := 1 + rnd.IntN(limit)
		producers.Go(func() {
			for i := int64(0); ctx.Err() == nil; i++ {
				_ = r.exporter.consume(ctx, k.simple(items, 1_000_000*n+100*i))
				time.Sleep(pause)
			}
		})
	}
	time.Sleep(time.Duration(rnd.IntN(400)) * time.Millisecond)
	_ = r.stop() // what is left is an error, and counted
	cancel()
	producers.Wait()
	ids := r.ids()
	assert.EqualValues(t, len(ids), r.exporter.account().sent)
	seen := map[int64]bool{}
	for _, id := range ids {
		require.False(t, seen[id], "item %d came twice", id)
		seen[id] = true
	}
}

// troubles is a backend that answers with every kind of failure.
type troubles struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func (b *troubles) answer(ctx context.Context, _ *call) error {
	b.mu.Lock()
	n, pause := b.rnd.IntN(12), time.Duration(b.rnd.IntN(30))*time.Millisecond
	b.mu.Unlock()
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		if n%2 == 0 {
			return consumererror.NewPermanent(ctx.Err())
		}
		return ctx.Err()
	}
	switch n {
	case 0, 1:
		return errAway
	case 2:
		return exporterhelper.NewThrottleRetry(errAway, 100*time.Millisecond)
	case 3:
		return consumererror.NewPermanent(errAway)
	case 4:
		return tooLarge["otlp_http"]
	case 5:
		return errContent
	case 6:
		return errLogin
	}
	return nil
}
