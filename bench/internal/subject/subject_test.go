// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package subject_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/pullbatch/batcherexporter/bench/internal/input"
	"github.com/pullbatch/batcherexporter/bench/internal/subject"
)

var all = []subject.Maker{
	subject.Passthrough, subject.Floor, subject.Batcher, subject.Helper, subject.HelperQueue,
	subject.Processor, subject.ProcessorQueue, subject.ProcessorBare,
}

// allProfiles leaves out the batch processor, which has none.
var allProfiles = []subject.Maker{subject.Passthrough, subject.Floor, subject.Batcher, subject.Helper, subject.HelperQueue}

// batching are those that make batches of exactly the size they are told.
var batching = []subject.Maker{subject.Batcher, subject.Helper, subject.Processor, subject.ProcessorQueue, subject.ProcessorBare}

const (
	total = 1000
	limit = 64
)

func spec(signal input.Signal, items int) input.Spec {
	return input.Spec{Signal: signal, Items: items, Total: total, Resources: 3}
}

// collected are the batches of a subject.
type collected struct {
	mu    sync.Mutex
	data  []any
	items []int
	bytes []int
}

func run(t *testing.T, m subject.Maker, set subject.Setup, requests []any) *collected {
	t.Helper()
	c := &collected{}
	set.Sink = &subject.Sink{Each: func(data any) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.data = append(c.data, data)
		c.items = append(c.items, input.Items(data))
		c.bytes = append(c.bytes, input.Bytes(data))
		return nil
	}}
	set.Flush, set.QueueSize = time.Minute, subject.Unlimited
	s, err := m.Open(t.Context(), set)
	require.NoError(t, err)
	for _, data := range requests {
		require.NoError(t, s.Consume(t.Context(), data))
	}
	require.NoError(t, s.Shutdown(t.Context()))
	assert.Equal(t, sum(c.items), set.Sink.Items())
	assert.Len(t, c.items, set.Sink.Batches())
	return c
}

func sum(all []int) int {
	n := 0
	for _, v := range all {
		n += v
	}
	return n
}

// TestDelivers checks that no subject skips the work: every item arrives, whatever
// the signal and the size of requests.
func TestDelivers(t *testing.T) {
	for _, signal := range []input.Signal{input.Logs, input.Traces, input.Metrics} {
		for _, m := range all {
			delivers(t, m, signal)
		}
	}
	for _, m := range allProfiles {
		delivers(t, m, input.Profiles)
	}
}

func delivers(t *testing.T, m subject.Maker, signal input.Signal) {
	t.Helper()
	for _, items := range []int{1, 7, 100, total} {
		t.Run(fmt.Sprintf("%s/%s/%d", m.Name, signal, items), func(t *testing.T) {
			c := run(t, m, subject.Setup{Signal: signal, Max: limit}, spec(signal, items).Requests())
			assert.Equal(t, total, sum(c.items))
		})
	}
}

// TestNoProfiles checks that a subject without profiles does not take them for
// something else.
func TestNoProfiles(t *testing.T) {
	for _, m := range []subject.Maker{subject.Processor, subject.ProcessorQueue, subject.ProcessorBare} {
		_, err := m.Open(t.Context(), subject.Setup{Signal: input.Profiles, Sink: &subject.Sink{}, Max: limit, Flush: time.Minute})
		assert.ErrorContains(t, err, "no profiles", m.Name)
	}
}

// TestDictionaries checks that samples keep their stacks wherever dictionaries are
// merged or cut.
func TestDictionaries(t *testing.T) {
	for _, m := range allProfiles {
		for _, items := range []int{1, 7, total} {
			t.Run(fmt.Sprintf("%s/%d", m.Name, items), func(t *testing.T) {
				set := subject.Setup{Signal: input.Profiles, Max: limit}
				want, got := leaves(spec(input.Profiles, items).Requests()), leaves(run(t, m, set, spec(input.Profiles, items).Requests()).data)
				assert.ElementsMatch(t, want, got)
			})
		}
	}
}

// leaves are the innermost function of each sample, and when that was running.
func leaves(all []any) []string {
	var found []string
	for _, data := range all {
		d := data.(pprofile.Profiles).Dictionary()
		for _, rp := range data.(pprofile.Profiles).ResourceProfiles().All() {
			for _, x := range rp.ScopeProfiles().At(0).Profiles().At(0).Samples().All() {
				stack := d.StackTable().At(int(x.StackIndex())).LocationIndices()
				line := d.LocationTable().At(int(stack.At(0))).Lines().At(0)
				name := d.FunctionTable().At(int(line.FunctionIndex())).NameStrindex()
				found = append(found, fmt.Sprintf("%d %s", x.TimestampsUnixNano().At(0), d.StringTable().At(int(name))))
			}
		}
	}
	return found
}

// TestBatches checks that those that are compared make the same batches.
func TestBatches(t *testing.T) {
	for _, m := range batching {
		for _, items := range []int{1, 7, 100, total} {
			t.Run(fmt.Sprintf("%s/%d", m.Name, items), func(t *testing.T) {
				c := run(t, m, subject.Setup{Signal: input.Logs, Max: limit}, spec(input.Logs, items).Requests())
				assert.Len(t, c.items, (total+limit-1)/limit)
				for _, n := range c.items {
					assert.LessOrEqual(t, n, limit)
				}
			})
		}
	}
}

// TestBatchesByBytes checks the same by bytes, where no batch can be filled
// exactly.
func TestBatchesByBytes(t *testing.T) {
	const limitBytes = 16 << 10
	for _, m := range []subject.Maker{subject.Batcher, subject.Helper} {
		t.Run(m.Name, func(t *testing.T) {
			c := run(t, m, subject.Setup{Signal: input.Logs, Max: limitBytes, InBytes: true}, spec(input.Logs, 7).Requests())
			assert.Equal(t, total, sum(c.items))
			for _, n := range c.bytes {
				assert.LessOrEqual(t, n, limitBytes)
			}
		})
	}
}

// TestMerges checks that `merge_resources` reaches the batcher.
func TestMerges(t *testing.T) {
	set := subject.Setup{Signal: input.Logs, Max: total}
	apart := run(t, subject.Batcher, set, spec(input.Logs, 1).Requests())
	set.Merge = true
	merged := run(t, subject.Batcher, set, spec(input.Logs, 1).Requests())
	assert.Less(t, 2*sum(merged.bytes), sum(apart.bytes))
}
