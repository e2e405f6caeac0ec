// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
)

// child is a part of a configuration that has a queue, a level further down.
type child struct {
	Name  string                              `mapstructure:"name"`
	Queue configoptional.Optional[theirQueue] `mapstructure:"sending_queue"`
}

type base struct {
	Spool configoptional.Optional[theirQueue] `mapstructure:"spool"`
}

type names []names

// deepConfig has a queue wherever a configuration can have one.
type deepConfig struct {
	Queue      configoptional.Optional[theirQueue] `mapstructure:"sending_queue"`
	Direct     theirQueue                          `mapstructure:"direct"`
	Nested     child                               `mapstructure:"nested"`
	Pointer    *child                              `mapstructure:"pointer"`
	List       []child                             `mapstructure:"list"`
	Pointers   []*child                            `mapstructure:"pointers"`
	Array      [2]child                            `mapstructure:"array"`
	ByName     map[string]child                    `mapstructure:"by_name"`
	ByID       map[component.ID]*child             `mapstructure:"by_id"`
	ByPointer  map[string][]*theirQueue            `mapstructure:"by_pointer"`
	Optional   configoptional.Optional[child]      `mapstructure:"optional"`
	Off        configoptional.Optional[child]      `mapstructure:"off"`
	Any        any                                 `mapstructure:"any"`
	AnyPointer any                                 `mapstructure:"any_pointer"`
	base       `mapstructure:",squash"`
	Names      names `mapstructure:"names"`
	Untagged   child // no key, set by the factory
	unexported child
}

func on() configoptional.Optional[theirQueue] {
	return configoptional.Some(exporterhelper.NewDefaultQueueConfig())
}

func newDeepConfig() *deepConfig {
	return &deepConfig{
		Queue:      on(),
		Direct:     exporterhelper.NewDefaultQueueConfig(),
		Nested:     child{"", on()},
		Pointer:    &child{"", on()},
		List:       []child{{"", on()}},
		Pointers:   []*child{nil, {"", on()}},
		Array:      [2]child{{"", on()}, {"", on()}},
		ByName:     map[string]child{"a": {"", on()}},
		ByID:       map[component.ID]*child{component.MustNewID("a"): {"", on()}},
		ByPointer:  map[string][]*theirQueue{"a": {nil, new(exporterhelper.NewDefaultQueueConfig())}},
		Optional:   configoptional.Some(child{"", on()}),
		Off:        configoptional.Default(child{"", on()}),
		Any:        child{"", on()},
		AnyPointer: &child{"", on()},
		base:       base{on()},
		Names:      names{nil, {nil}},
		Untagged:   child{"", on()},
		unexported: child{"", on()},
	}
}

func deepFactory() exporter.Factory {
	return factoryOf("deep", func() component.Config { return newDeepConfig() })
}

// queuesOn returns the queues of a configuration that are on, by key.
func queuesOn(c *deepConfig) map[string]bool {
	any1, _ := c.Any.(child)
	all := map[string]configoptional.Optional[theirQueue]{
		"sending_queue": c.Queue, "nested": c.Nested.Queue, "pointer": c.Pointer.Queue, "list": c.List[0].Queue,
		"pointers": c.Pointers[1].Queue, "array": c.Array[1].Queue, "by_name": c.ByName["a"].Queue,
		"by_id": c.ByID[component.MustNewID("a")].Queue, "optional": c.Optional.Get().Queue, "any": any1.Queue,
		"any_pointer": c.AnyPointer.(*child).Queue, "spool": c.Spool, "untagged": c.Untagged.Queue,
	}
	found := map[string]bool{}
	for key, q := range all {
		if q.HasValue() {
			found[key] = true
		}
	}
	return found
}

func TestHidden_QueuesAreFoundAtAnyDepth(t *testing.T) {
	require.Len(t, queuesOn(newDeepConfig()), 13)
	r := mustResolve(t, "exporter: {deep: }\nsending_queue: {num_consumers: 77}", deepFactory())
	c := r.wrapped.config.(*deepConfig)
	assert.Empty(t, queuesOn(c))
	assert.Empty(t, r.warnings)
	// A queue that has no way to be off hides nothing.
	for _, q := range []theirQueue{c.Direct, *c.ByPointer["a"][1]} {
		assert.True(t, q.WaitForResult)
		assert.True(t, q.BlockOnOverflow)
		assert.False(t, q.Batch.HasValue())
		assert.Equal(t, 77, q.NumConsumers)
		assert.NoError(t, q.Validate())
	}
}

// A queue that the block asks for stays on, with a warning, and is refused where
// the batcher promises more than it keeps.
func TestHidden_QueuesThatTheBlockAsksFor(t *testing.T) {
	f := func(block string, kept ...string) {
		t.Helper()
		r := mustResolve(t, "exporter: {deep: "+block+"}", deepFactory())
		assert.Len(t, r.warnings, len(kept), "%v", r.warnings)
		for _, key := range kept {
			assert.Contains(t, strings.Join(r.warnings, "\n"), "`exporter::deep::"+key+"`")
		}
		_, err := resolveWith(t, "exporter: {deep: "+block+"}\nsending_queue: {wait_for_result: true}", deepFactory())
		if len(kept) == 0 {
			assert.NoError(t, err, block)
			return
		}
		wantError(t, err, "`exporter::deep::"+kept[0]+"`", "`sending_queue::wait_for_result`")
	}
	f("{}")
	f("{nested: {name: x}}")
	f("{nested: {sending_queue: }}")
	f("{nested: {sending_queue: {enabled: false}}}")
	f("{nested: {sending_queue: {queue_size: 5}}}", "nested::sending_queue")
	f("{pointer: {sending_queue: {}}}", "pointer::sending_queue")
	f("{list: [{name: a}, {sending_queue: {queue_size: 5, num_consumers: 1}}]}", "list::1::sending_queue")
	f("{by_name: {a: {sending_queue: {queue_size: 5, num_consumers: 1}}, b: {name: x}}}", "by_name::a::sending_queue")
	f("{by_id: {a: {sending_queue: {queue_size: 5, num_consumers: 1}}}}", "by_id::a::sending_queue")
	f("{optional: {sending_queue: {}}}", "optional::sending_queue")
	f("{spool: {num_consumers: 5}}", "spool")
	f("{direct: {num_consumers: 5}, spool: {}}", "direct", "spool")
}

// Storage is refused as a key for now, so this asks below that.
func TestHidden_QueuesAndStorage(t *testing.T) {
	c := createDefaultConfig().(*Config)
	id := component.MustNewID("file_storage")
	c.SendingQueue.Get().StorageID = &id
	r := &resolved{effective: *c}
	wantError(t, r.reportKept([]string{"spool"}, path("").under("exporter").under("deep")), "`exporter::deep::spool`", "`sending_queue::storage`")
	assert.NoError(t, r.reportKept(nil, ""))
}

// remoteWriteConfig has the keys of prometheusremotewrite's queues.
type remoteWriteConfig struct {
	Queue struct {
		Enabled      bool `mapstructure:"enabled"`
		QueueSize    int  `mapstructure:"queue_size"`
		NumConsumers int  `mapstructure:"num_consumers"`
	} `mapstructure:"remote_write_queue"`
	WAL configoptional.Optional[walConfig] `mapstructure:"wal"`
}

type walConfig struct {
	Directory string `mapstructure:"directory"`
}

func TestHidden_QueuesMadeInCode(t *testing.T) {
	factory := factoryOf("prometheusremotewrite", func() component.Config {
		c := &remoteWriteConfig{}
		c.Queue.Enabled, c.Queue.QueueSize, c.Queue.NumConsumers = true, 10000, 5
		return c
	})
	f := func(block string, queue, wal bool, kept ...string) {
		t.Helper()
		r := mustResolve(t, "exporter: {prometheusremotewrite: "+block+"}", factory)
		c := r.wrapped.config.(*remoteWriteConfig)
		assert.Equal(t, queue, c.Queue.Enabled, block)
		assert.Equal(t, wal, c.WAL.HasValue(), block)
		assert.Equal(t, 5, c.Queue.NumConsumers, block)
		assert.Len(t, r.warnings, len(kept), block)
		for i, key := range kept {
			assert.Contains(t, r.warnings[i], "`exporter::prometheusremotewrite::"+key+"`")
		}
		_, err := resolveWith(t, "exporter: {prometheusremotewrite: "+block+"}\nsending_queue: {wait_for_result: true}", factory)
		assert.Equal(t, len(kept) > 0, err != nil, "%s: %v", block, err)
	}
	f("", false, false)
	f("{}", false, false)
	f("{remote_write_queue: {queue_size: 7}}", false, false)
	f("{remote_write_queue: {enabled: false}}", false, false)
	f("{remote_write_queue: {enabled: true}}", true, false, "remote_write_queue")
	f("{wal: }", false, false)
	f("{wal: {directory: x}}", false, true, "wal")
	f("{wal: {enabled: false, directory: x}}", false, false)
	f("{wal: {}, remote_write_queue: {enabled: true}}", true, true, "remote_write_queue", "wal")

	// The same keys in another exporter are its own.
	other := factoryOf("other", func() component.Config { return &remoteWriteConfig{} })
	r := mustResolve(t, "exporter: {other: {remote_write_queue: {enabled: true}}}", other)
	assert.Empty(t, r.warnings)
}

// What cannot be changed, or holds no queue, is left alone.
func TestHidden_OddConfigurations(t *testing.T) {
	var missing *deepConfig
	for _, config := range []component.Config{nil, missing, struct{}{}, child{Queue: on()}, 5, &map[string]child{"a": {"", on()}}} {
		assert.Zero(t, silence(config, nil, 1))
	}
	type mixed struct {
		Fixed    map[string]string
		Pointers map[string]*string
		Text     configoptional.Optional[string]
		Off      configoptional.Optional[child]
		private
	}
	assert.Zero(t, silence(&mixed{Text: configoptional.Some("x")}, nil, 1))
	assert.Zero(t, silence(mixed{Off: configoptional.Some(child{"", on()})}, nil, 1))
}

// private is an embedded interface, which nothing can be set in.
type private interface{ f() }

// balancer is a configuration with exporters inside, and their retries.
type balancer struct {
	Protocol struct {
		OTLP struct {
			Retry configretry.BackOffConfig `mapstructure:"retry_on_failure"`
		} `mapstructure:"otlp"`
	} `mapstructure:"protocol"`
	Pointer *configretry.BackOffConfig           `mapstructure:"pointer"`
	List    []configretry.BackOffConfig          `mapstructure:"list"`
	ByName  map[string]configretry.BackOffConfig `mapstructure:"by_name"`
}

func (b *balancer) retriesOn() []bool {
	return []bool{b.Protocol.OTLP.Retry.Enabled, b.Pointer.Enabled, b.List[0].Enabled, b.ByName["a"].Enabled}
}

func newBalancer() component.Config {
	b := &balancer{}
	on := configretry.NewDefaultBackOffConfig()
	b.Protocol.OTLP.Retry = on
	b.Pointer = &on
	b.List = []configretry.BackOffConfig{on}
	b.ByName = map[string]configretry.BackOffConfig{"a": on}
	return b
}

// Retries further down are off like queues, unless the block asks for them.
func TestHidden_Retries(t *testing.T) {
	f := func(block string, on []bool, key string) {
		t.Helper()
		r := mustResolve(t, "exporter: {balancer: "+block+"}", factoryOf("balancer", newBalancer))
		assert.Equal(t, on, r.wrapped.config.(*balancer).retriesOn(), block)
		if key == "" {
			assert.Empty(t, r.warnings, block)
			return
		}
		require.Len(t, r.warnings, 1, block)
		assert.Contains(t, r.warnings[0], "`exporter::balancer::"+key+"` are retries inside the wrapped exporter")
	}
	off := make([]bool, 4)
	f("", off, "")
	f("{protocol: {otlp: {retry_on_failure: {max_elapsed_time: 1m}}}}", off, "")
	f("{protocol: {otlp: {retry_on_failure: {enabled: false}}}}", off, "")
	f("{protocol: {otlp: {retry_on_failure: {enabled: true}}}}", []bool{true, false, false, false}, "protocol::otlp::retry_on_failure")
	f("{pointer: {multiplier: 2}}", off, "")
	f("{by_name: {a: {enabled: true}}}", []bool{false, false, false, true}, "by_name::a")
}
