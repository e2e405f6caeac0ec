// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"errors"
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
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"pgregory.net/rapid"
)

// restOf is an error that says that the items ids are left. Profiles have none.
func restOf(k kind, err error, ids []int64) error {
	switch k.name {
	case "traces":
		td := ptrace.NewTraces()
		for _, id := range ids {
			k.simple(1, id).(ptrace.Traces).ResourceSpans().MoveAndAppendTo(td.ResourceSpans())
		}
		return consumererror.NewTraces(err, td)
	case "metrics":
		md := pmetric.NewMetrics()
		for _, id := range ids {
			k.simple(1, id).(pmetric.Metrics).ResourceMetrics().MoveAndAppendTo(md.ResourceMetrics())
		}
		return consumererror.NewMetrics(err, md)
	}
	ld := plog.NewLogs()
	for _, id := range ids {
		k.simple(1, id).(plog.Logs).ResourceLogs().MoveAndAppendTo(ld.ResourceLogs())
	}
	return consumererror.NewLogs(err, ld)
}

// manyErrors is an exporter's own type for several errors.
type manyErrors []error

func (m manyErrors) Error() string   { return errors.Join(m...).Error() }
func (m manyErrors) Unwrap() []error { return m }

var errShard = errors.New("a shard is away")

// errorTrees are the ways to say that two parts failed.
var errorTrees = []struct {
	name  string
	final bool // the tree calls what is left of it permanent
	of    func(a, b error) error
}{
	{name: "Join", of: func(a, b error) error { return errors.Join(a, b) }},
	{name: "two %w", of: func(a, b error) error { return fmt.Errorf("shard 1: %w; shard 2: %w", a, b) }},
	{name: "own type", of: func(a, b error) error { return manyErrors{a, b} }},
	{name: "nested", of: func(a, b error) error {
		return fmt.Errorf("all: %w", errors.Join(fmt.Errorf("one: %w", a), manyErrors{b}))
	}},
	{name: "throttle", of: func(a, b error) error { return exporterhelper.NewThrottleRetry(errors.Join(a, b), time.Second) }},
	{name: "retryable", of: func(a, b error) error { return consumererror.NewRetryableError(errors.Join(a, b)) }},
	{name: "permanent", final: true, of: func(a, b error) error { return consumererror.NewPermanent(errors.Join(a, b)) }},
}

// afterFirst answers the first call as told, and takes all others.
func afterFirst(first func(ctx context.Context, c *call) error) func(context.Context, *call) error {
	var once sync.Once
	return func(ctx context.Context, c *call) (err error) {
		once.Do(func() { err = first(ctx, c) })
		return err
	}
}

// sendTen sends ten items, and gives the exporter a minute.
func (r *rig) sendTen() {
	r.t.Helper()
	for id := range int64(10) {
		r.mustSend(r.kind.simple(1, id))
	}
	time.Sleep(time.Minute)
	synctest.Wait()
}

const remainderYAML = `sending_queue: {batch: {flush_timeout: 1s}}`

// What several branches of any tree say that is left is sent again, and that only.
func TestRemainder_OfAllBranches(t *testing.T) {
	for _, tree := range errorTrees {
		for _, k := range []kind{kindTraces, kindMetrics, kindLogs} {
			inBubble(t, tree.name+", "+k.name, func(t *testing.T) {
				s := &sink{answer: afterFirst(func(_ context.Context, c *call) error {
					return tree.of(restOf(k, errShard, c.ids[:2]), restOf(k, errShard, c.ids[8:]))
				})}
				r := startRig(t, k, s, remainderYAML)
				r.sendTen()
				if tree.final {
					assert.Equal(t, account{accepted: 10, sent: 6, dropped: 4}, r.exporter.account())
					return
				}
				assert.Equal(t, account{accepted: 10, sent: 10}, r.exporter.account())
				assert.Equal(t, []int64{0, 1, 8, 9}, s.ids(), "the second call")
			})
		}
	}
}

// Where the tree does not say for all of the data what is left, or cannot be true,
// all of it is sent again, and nothing of it is final.
func TestRemainder_NotKnown(t *testing.T) {
	lies := map[string]func(k kind, ids []int64) (a, b error){
		"a leaf says nothing":   func(k kind, ids []int64) (error, error) { return errShard, restOf(k, errShard, ids[8:]) },
		"the last says nothing": func(k kind, ids []int64) (error, error) { return restOf(k, errShard, ids[:2]), errShard },
		"the same rest twice": func(k kind, ids []int64) (error, error) {
			return restOf(k, errShard, ids[6:]), restOf(k, errShard, ids[6:])
		},
		"rests overlap": func(k kind, ids []int64) (error, error) {
			return restOf(k, errShard, ids[:4]), restOf(k, errShard, ids[3:6])
		},
		"more than was sent": func(k kind, ids []int64) (error, error) {
			return restOf(k, errShard, ids), restOf(k, errShard, ids[:1])
		},
		"items that were not in it": func(k kind, _ []int64) (error, error) {
			return restOf(k, errShard, []int64{100}), restOf(k, errShard, []int64{101})
		},
	}
	for name, lie := range lies {
		for _, tree := range errorTrees {
			for _, k := range []kind{kindTraces, kindMetrics, kindLogs} {
				inBubble(t, name+", "+tree.name+", "+k.name, func(t *testing.T) {
					s := &sink{answer: afterFirst(func(_ context.Context, c *call) error { return tree.of(lie(k, c.ids)) })}
					r := startRig(t, k, s, remainderYAML)
					r.sendTen()
					assert.Equal(t, account{accepted: 10, sent: 10}, r.exporter.account())
					assert.Equal(t, sequence(0, 10), s.ids())
				})
			}
		}
	}
}

// Where a branch says that nothing is left, although the whole is an error, nobody
// knows what is, whatever the tree calls it.
func TestRemainder_NothingLeft(t *testing.T) {
	for _, tree := range errorTrees {
		for _, left := range []int{0, 2} {
			inBubble(t, fmt.Sprint(tree.name, ", left of the other: ", left), func(t *testing.T) {
				s := &sink{answer: afterFirst(func(_ context.Context, c *call) error {
					return tree.of(restOf(kindLogs, errShard, c.ids[:left]), restOf(kindLogs, errShard, nil))
				})}
				r := startRig(t, kindLogs, s, remainderYAML)
				r.sendTen()
				assert.Equal(t, account{accepted: 10, sent: 10}, r.exporter.account())
			})
		}
	}
}

// Nothing is final in an attempt that our timeout ended, nor in one that ended by
// the exporter's own deadline.
func TestRemainder_Cancelled(t *testing.T) {
	tests := map[string]func(ctx context.Context, c *call) error{
		"ours": func(ctx context.Context, c *call) error {
			<-ctx.Done()
			return errors.Join(restOf(kindLogs, errShard, c.ids[:5]), consumererror.NewPermanent(restOf(kindLogs, ctx.Err(), c.ids[5:])))
		},
		"ours, all permanent": func(ctx context.Context, c *call) error {
			<-ctx.Done()
			return errors.Join(consumererror.NewPermanent(restOf(kindLogs, ctx.Err(), c.ids[:2])), consumererror.NewPermanent(restOf(kindLogs, ctx.Err(), c.ids[5:])))
		},
		"ours, no rest": func(ctx context.Context, _ *call) error {
			<-ctx.Done()
			return consumererror.NewPermanent(ctx.Err())
		},
		"its own": func(context.Context, *call) error {
			return consumererror.NewPermanent(fmt.Errorf("request: %w", context.DeadlineExceeded))
		},
	}
	for name, answer := range tests {
		inBubble(t, name, func(t *testing.T) {
			r := startRig(t, kindLogs, &sink{answer: afterFirst(answer)}, remainderYAML+"\ntimeout: 1s")
			r.sendTen()
			assert.Equal(t, account{accepted: 10, sent: 10}, r.exporter.account())
		})
	}
}

// shards is a backend that takes a part of each call, and tells what is left in a
// random tree of errors that is not always true.
type shards struct {
	rnd *rand.Rand

	mu    sync.Mutex
	calls int
	took  map[int64]bool
	final bool // something was called permanent
}

func (s *shards) answer(ctx context.Context, c *call) error {
	s.mu.Lock()
	s.calls++
	ends := s.calls > 20
	waits := !ends && s.rnd.IntN(4) == 0
	var left []int64
	for _, id := range c.ids {
		if !ends && s.rnd.IntN(3) == 0 {
			left = append(left, id)
		} else {
			s.took[id] = true
		}
	}
	err := s.tree(left)
	s.mu.Unlock()
	if waits {
		<-ctx.Done()
	}
	return err
}

// tree tells of the items that are left.
func (s *shards) tree(left []int64) error {
	if len(left) == 0 {
		return nil
	}
	var leaves []error
	for len(left) > 0 {
		n := 1 + s.rnd.IntN(len(left))
		leaves = append(leaves, s.wrap(s.leaf(left[:n])))
		left = left[n:]
	}
	if s.rnd.IntN(5) == 0 {
		leaves = append(leaves, leaves[s.rnd.IntN(len(leaves))]) // the same once more
	}
	for len(leaves) > 1 {
		i := s.rnd.IntN(len(leaves) - 1)
		tree := errorTrees[s.rnd.IntN(len(errorTrees))]
		s.final = s.final || tree.final
		leaves = append(leaves[:i:i], append([]error{tree.of(leaves[i], leaves[i+1])}, leaves[i+2:]...)...)
	}
	return s.wrap(leaves[0])
}

func (s *shards) leaf(ids []int64) error {
	if s.rnd.IntN(6) == 0 {
		return errShard
	}
	return restOf(kindLogs, errShard, ids)
}

func (s *shards) wrap(err error) error {
	switch s.rnd.IntN(8) {
	case 0:
		s.final = true
		return consumererror.NewPermanent(err)
	case 1:
		return fmt.Errorf("wrapped: %w", err)
	case 2:
		return exporterhelper.NewThrottleRetry(err, time.Second)
	case 3:
		return consumererror.NewRetryableError(err)
	}
	return err
}

// Whatever tree of errors over whatever remainders comes back, and whatever is
// cancelled: accepted is sent and dropped and pending, at least as many items were
// taken as count as sent, and nothing is lost that nobody called permanent.
func TestRemainder_AnyTree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		items := rapid.IntRange(1, 30).Draw(rt, "items")
		requests := rapid.IntRange(1, 4).Draw(rt, "requests")
		slots := rapid.IntRange(1, 4).Draw(rt, "slots")
		synctest.Test(t, func(t *testing.T) {
			b := &shards{rnd: rand.New(rand.NewPCG(seed, 0)), took: map[int64]bool{}}
			r := startRig(t, kindLogs, &sink{answer: b.answer}, fmt.Sprintf(`
sending_queue: {num_consumers: %d, batch: {flush_timeout: 1s, max_size: 20, min_size: 20}}
retry_on_failure: {max_elapsed_time: 0s}
timeout: 1s`, slots))
			for i := range requests {
				r.mustSend(kindLogs.simple(items, int64(i*items)))
			}
			for range 200 {
				time.Sleep(time.Second)
				synctest.Wait()
				a := r.exporter.account()
				require.Equal(rt, a.accepted, a.sent+a.dropped+a.pending)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			a := r.exporter.account()
			b.mu.Lock()
			defer b.mu.Unlock()
			require.Zero(rt, a.pending)
			require.LessOrEqual(rt, a.sent, int64(len(b.took)), "items that count as sent, and that were taken: %+v", a)
			if !b.final {
				require.Zero(rt, a.dropped, "nobody called anything permanent")
				require.Len(rt, b.took, items*requests)
			}
		})
	})
}
