// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
)

// tunedFactory is an exporter whose authors chose other values than the usual.
func tunedFactory() exporter.Factory {
	return queuedFactory(func(c *queuedConfig) {
		q := exporterhelper.NewDefaultQueueConfig()
		q.Sizer, q.QueueSize, q.NumConsumers, q.BlockOnOverflow = exporterhelper.RequestSizerTypeItems, 50000, 3, true
		b := exporterhelper.NewDefaultBatchConfig()
		b.MinSize, b.MaxSize, b.FlushTimeout = 500, 600, 5*time.Second
		q.Batch = configoptional.Default(b)
		c.Queue = configoptional.Some(q)
		c.Retry.InitialInterval = 50 * time.Millisecond
	})
}

// offFactory is an exporter whose queue and retries are there and off.
func offFactory() exporter.Factory {
	return queuedFactory(func(c *queuedConfig) {
		q := exporterhelper.NewDefaultQueueConfig()
		q.NumConsumers = 3
		c.Queue = configoptional.Default(q)
		c.Retry.Enabled = false
		c.Retry.InitialInterval = 50 * time.Millisecond
	})
}

// bareFactory is an exporter that has the keys, without values.
func bareFactory() exporter.Factory {
	return queuedFactory(func(c *queuedConfig) {
		c.Queue, c.Retry = configoptional.None[theirQueue](), configretry.BackOffConfig{}
	})
}

// What the wrapped block says becomes ours, and inside it is off.
func TestHoist_InnerBlockBecomesOurs(t *testing.T) {
	r := mustResolve(t, `
exporter:
  queued:
    endpoint: x
    timeout: 3s
    sending_queue: {sizer: items, queue_size: 7000, num_consumers: 4, batch: {max_size: 100, max_bytes: 4000, oversize: drop}}
    retry_on_failure: {initial_interval: 2s}
timeout: 9s
`, queuedFactory())
	inner := r.wrapped.config.(*queuedConfig)
	assert.False(t, inner.Queue.HasValue())
	assert.False(t, inner.Retry.Enabled)
	assert.Equal(t, "x", inner.Endpoint)
	assert.Equal(t, 3*time.Second, inner.Timeout.Timeout, "its own timeout stays its own")

	assert.Equal(t, 9*time.Second, r.effective.Timeout)
	assert.Equal(t, 2*time.Second, r.effective.Retry.InitialInterval)
	assert.Equal(t, 30*time.Second, r.effective.Retry.MaxInterval)
	q := r.effective.SendingQueue.Get()
	require.NotNil(t, q)
	assert.EqualValues(t, 7000, q.QueueSize)
	assert.Equal(t, 4, q.NumConsumers)
	b := q.Batch.Get()
	require.NotNil(t, b)
	assert.EqualValues(t, 100, b.MaxSize)
	assert.EqualValues(t, 100, b.MinSize, "lowered")
	assert.EqualValues(t, 4000, b.MaxBytes, "keys of ours work there too")
	assert.Equal(t, OversizeDrop, b.Oversize)
}

// hoisted is what matters of a result, to compare whole rows.
type hoisted struct {
	queueSize, minSize int64
	consumers          int
	flush, interval    time.Duration
}

func hoistedOf(r *resolved) hoisted {
	var h hoisted
	if q := r.effective.SendingQueue.Get(); q != nil {
		h.queueSize, h.consumers = q.QueueSize, q.NumConsumers
		if b := q.Batch.Get(); b != nil {
			h.minSize, h.flush = b.MinSize, b.FlushTimeout
		}
	}
	if r.effective.Retry.Enabled {
		h.interval = r.effective.Retry.InitialInterval
	}
	return h
}

const ms = time.Millisecond

// Gaps are filled with what the authors of the wrapped exporter chose, wherever
// the block stands. What is off or absent there by default is no choice.
func TestHoist_GapsAreFilled(t *testing.T) {
	usual := hoisted{1000, 8192, 10, 200 * ms, 5000 * ms}
	f := func(factory func() exporter.Factory, yaml string, want hoisted) {
		t.Helper()
		r := mustResolve(t, yaml, factory(), plainFactory())
		assert.Equal(t, want, hoistedOf(r), yaml)
		if inner, ok := r.wrapped.config.(*queuedConfig); ok {
			assert.False(t, inner.Queue.HasValue(), yaml)
			assert.False(t, inner.Retry.Enabled, yaml)
		}
	}
	usualFactory := func() exporter.Factory { return queuedFactory() }
	f(usualFactory, "exporter: {queued: }", usual)
	f(usualFactory, "exporter: {plain: }", usual)
	f(bareFactory, "exporter: {queued: }", usual)
	f(bareFactory, "exporter: {queued: {sending_queue: {num_consumers: 2}, retry_on_failure: {max_interval: 10s}}}", hoisted{1000, 8192, 2, 200 * ms, 5000 * ms})
	f(offFactory, "exporter: {queued: }", usual)
	f(offFactory, "exporter: {queued: {sending_queue: , retry_on_failure: }}", usual)
	f(offFactory, "exporter: {queued: {sending_queue: {queue_size: 7}, retry_on_failure: {max_interval: 10s}}}", hoisted{7, 8192, 3, 200 * ms, 50 * ms})

	tuned := hoisted{50000, 500, 3, 5000 * ms, 50 * ms}
	f(tunedFactory, "exporter: {queued: }", tuned)
	f(tunedFactory, "exporter: {queued: }\nsending_queue:\nretry_on_failure:", tuned)
	f(tunedFactory, "exporter: {queued: {sending_queue: {}, retry_on_failure: {}}}", tuned)
	f(tunedFactory, "exporter: {queued: {sending_queue: {queue_size: 7}}}", hoisted{7, 7, 3, 5000 * ms, 50 * ms})
	f(tunedFactory, "exporter: {queued: }\nsending_queue: {queue_size: 7}", hoisted{7, 7, 3, 5000 * ms, 50 * ms})
	f(tunedFactory, "exporter: {queued: }\nsending_queue: {batch: {flush_timeout: 1s}}", hoisted{50000, 500, 3, 1000 * ms, 50 * ms})
	f(tunedFactory, "exporter: {queued: }\nsending_queue: {batch: {max_size: 0, min_size: 900}}", hoisted{50000, 900, 3, 5000 * ms, 50 * ms})
	f(tunedFactory, "exporter: {queued: }\nsending_queue: {batch: {enabled: false}}", hoisted{50000, 0, 3, 0, 50 * ms})
	f(tunedFactory, "exporter: {queued: }\nretry_on_failure: {max_interval: 10s}", tuned)
	f(tunedFactory, "exporter: {queued: {retry_on_failure: {initial_interval: 1s}}}", hoisted{50000, 500, 3, 5000 * ms, 1000 * ms})

	off := hoisted{0, 0, 0, 0, 0}
	f(tunedFactory, "exporter: {queued: {sending_queue: {enabled: false}, retry_on_failure: {enabled: false}}}", off)
	f(tunedFactory, "exporter: {queued: }\nsending_queue: {enabled: false}\nretry_on_failure: {enabled: false}", off)
}

// A block decodes as it did in the wrapped exporter itself, sizers included.
func TestHoist_DecodesAsInTheWrappedExporter(t *testing.T) {
	for _, factory := range []exporter.Factory{queuedFactory(), tunedFactory(), offFactory()} {
		for _, yaml := range []string{
			"{enabled: true}", "{sizer: bytes}", "{sizer: bytes, batch: {min_size: 5}}", "{sizer: bytes, batch: {sizer: items}}",
			"{batch: {sizer: bytes, min_size: 5}}", "{queue_size: 9000, batch: {min_size: 5, partition: {cache_size: 7}}}",
			"{block_on_overflow: true, wait_for_result: true}", "{enabled: false}",
		} {
			theirs := factory.CreateDefaultConfig().(*queuedConfig)
			require.NoError(t, confOf(t, "sending_queue: "+yaml).Unmarshal(theirs))
			r := mustResolve(t, "exporter: {queued: {sending_queue: "+yaml+"}}", factory)
			if q := theirs.Queue.Get(); q != nil && q.Batch.HasValue() && q.Batch.Get().MinSize == 8192 {
				continue // nobody wrote it, so it may have been lowered
			}
			sameQueue(t, theirs.Queue, r.effective.SendingQueue, yaml)
		}
	}
}

func TestHoist_Errors(t *testing.T) {
	f := func(yaml string, words ...string) {
		t.Helper()
		_, err := resolveWith(t, yaml, queuedFactory())
		require.Error(t, err, yaml)
		wantError(t, err, words...)
	}
	// In both places.
	f("exporter: {queued: {sending_queue: {queue_size: 7}}}\nsending_queue: {queue_size: 7}", "`sending_queue`", "`exporter::queued::sending_queue`")
	f("exporter: {queued/a: {sending_queue: {enabled: true}}}\nsending_queue: {batch: {}}", "`sending_queue`", "`exporter::queued/a::sending_queue`")
	f("exporter: {queued: {retry_on_failure: {enabled: true}}}\nretry_on_failure: {enabled: false}", "`retry_on_failure`", "`exporter::queued::retry_on_failure`")
	f("exporter: {queued: {retry_on_failure: {}, sending_queue: {}}}\nretry_on_failure: {}\nsending_queue: {}", "`exporter::queued::sending_queue`", "`exporter::queued::retry_on_failure`")
	// Invalid, with the path where it was written.
	f("exporter: {queued: {sending_queue: {queue_size: 0}}}", "`exporter::queued::sending_queue::queue_size` is 0")
	f("exporter: {queued: {sending_queue: {queue_sise: 5}}}", "`exporter::queued::sending_queue::queue_sise` (5) is not a key", "queue_size")
	f("exporter: {queued: {sending_queue: {batch: {flush_timeout: 200}}}}", "`exporter::queued::sending_queue::batch::flush_timeout` is 200 without a unit")
	f("exporter: {queued: {sending_queue: {batch: {min_size: 5, max_size: 4}}}}", "`exporter::queued::sending_queue::batch::min_size` is 5", "`exporter::queued::sending_queue::batch::max_size`, which is 4")
	f("exporter: {queued: {sending_queue: {storage: file_storage}}}", "`exporter::queued::sending_queue::storage` is not yet supported")
	f("exporter: {queued: {sending_queue: {queue_size: many}}}", "`exporter::queued::sending_queue::queue_size` is \"many\"")
	f("exporter: {queued: {sending_queue: 5}}", "`exporter::queued::sending_queue`", "block")
	f("exporter: {queued: {retry_on_failure: true}}", "`exporter::queued::retry_on_failure`", "block")
	f("exporter: {queued: {retry_on_failure: {initial: 5s}}}", "`exporter::queued::retry_on_failure::initial` is not a key")
	f("exporter: {queued: {retry_on_failure: {max_elapsed_time: 300}}}", "`exporter::queued::retry_on_failure::max_elapsed_time` is 300 without a unit")
	f("exporter: {queued: {retry_on_failure: {multiplier: -1}}}", "`exporter::queued::retry_on_failure`", "multiplier")
	f("exporter: {queued: {retry_on_failure: {multiplier: many}}}", "`exporter::queued::retry_on_failure::multiplier` is \"many\"")
}

// A queue that code put into the configuration is as it is, and was said.
func TestHoist_ConfigByCode(t *testing.T) {
	c := loadConfig(t, "exporter: {queued: }\nsending_queue: {queue_size: 7}")
	c.SendingQueue.Get().NumConsumers = 2
	c.Retry.InitialInterval = time.Second
	r, err := c.resolve(lookupFrom(hostOf(tunedFactory()), nil))
	require.NoError(t, err)
	assert.Equal(t, hoisted{7, 8192, 2, 200 * ms, 1000 * ms}, hoistedOf(r))

	c = loadConfig(t, "exporter: {queued: {sending_queue: {queue_size: 7}, retry_on_failure: {}}}")
	c.SendingQueue.Get().NumConsumers = 2
	c.Retry.InitialInterval = time.Second
	_, err = c.resolve(lookupFrom(hostOf(tunedFactory()), nil))
	wantError(t, err, "`exporter::queued::sending_queue`", "`exporter::queued::retry_on_failure`")
}

// Off inside is no contradiction to a block outside, which holds. Alone, it means
// what it says, and is told.
func TestHoist_OffInside(t *testing.T) {
	const inside = "exporter: {queued: {sending_queue: {enabled: false}, retry_on_failure: {enabled: false}}}\n"
	f := func(yaml string, want hoisted) {
		t.Helper()
		r := mustResolve(t, yaml, queuedFactory())
		assert.Equal(t, want, hoistedOf(r), yaml)
		assert.False(t, r.wrapped.config.(*queuedConfig).Queue.HasValue(), yaml)
		assert.False(t, r.wrapped.config.(*queuedConfig).Retry.Enabled, yaml)
		assert.Empty(t, r.warnings, yaml)
	}
	f(inside+"sending_queue: {queue_size: 77}\nretry_on_failure: {initial_interval: 1s}", hoisted{77, 8192, 10, 200 * ms, 1000 * ms})
	f(inside+"sending_queue: {}\nretry_on_failure: {}", hoisted{1000, 8192, 10, 200 * ms, 5000 * ms})
	f(inside+"sending_queue: {enabled: false}\nretry_on_failure: {enabled: false}", hoisted{})
	r := mustResolve(t, inside, queuedFactory())
	assert.Equal(t, hoisted{}, hoistedOf(r))
	require.Len(t, r.warnings, 1)
	assert.Contains(t, r.warnings[0], "`exporter::queued::sending_queue::enabled` is false: nothing is queued or batched")
}

// What authors chose for a sizer stays with it; for another one it means nothing.
func TestHoist_QueueSizeBySizer(t *testing.T) {
	f := func(yaml string, factory exporter.Factory, want int64) {
		t.Helper()
		assert.Equal(t, want, mustResolve(t, yaml, factory).effective.SendingQueue.Get().QueueSize, yaml)
	}
	f("exporter: {queued: {sending_queue: {sizer: items}}}", queuedFactory(), 100_000)
	f("exporter: {queued: {sending_queue: {sizer: bytes}}}", queuedFactory(), 128<<20)
	f("exporter: {queued: {sending_queue: {sizer: items}}}", tunedFactory(), 50_000)
	f("exporter: {queued: }\nsending_queue: {sizer: items}", tunedFactory(), 50_000)
	f("exporter: {queued: {sending_queue: {sizer: bytes}}}", tunedFactory(), 128<<20)
	f("exporter: {queued: {sending_queue: {sizer: requests}}}", tunedFactory(), 1000)
}

// Waiting for the result is only what somebody wrote.
func TestHoist_WaitForResultIsWritten(t *testing.T) {
	waits := queuedFactory(func(c *queuedConfig) { c.Queue.Get().WaitForResult = true })
	assert.False(t, mustResolve(t, "exporter: {queued: {sending_queue: {queue_size: 7}}}", waits).effective.SendingQueue.Get().WaitForResult)
	assert.True(t, mustResolve(t, "exporter: {queued: {sending_queue: {wait_for_result: true}}}", waits).effective.SendingQueue.Get().WaitForResult)
}

// Where nobody wrote it, batches stay below what receivers of the protocol take.
func TestHoist_MaxBytesByType(t *testing.T) {
	f := func(typ, queue string, want int64) {
		t.Helper()
		factory := factoryOf(typ, func() component.Config { return newQueuedConfig() })
		for _, yaml := range []string{"exporter: {" + typ + ": }\nsending_queue: " + queue, "exporter: {" + typ + "/a: {sending_queue: " + queue + "}}"} {
			q := mustResolve(t, yaml, factory).effective.SendingQueue.Get()
			assert.Equal(t, want, q.Batch.Get().MaxBytes, yaml)
		}
	}
	f("otlp_grpc", "{}", 4_000_000)
	f("otlp", "{}", 4_000_000)
	f("kafka", "{batch: {max_size: 10}}", 900_000)
	f("other", "{}", 0)
	f("otlp_grpc", "{batch: {max_bytes: 0}}", 0)
	f("otlp_grpc", "{batch: {max_bytes: 5000000}}", 5_000_000)
	f("otlp_grpc", "{batch: {sizer: bytes, max_size: 1000000}}", 4_000_000)
	f("otlp_grpc", "{batch: {sizer: bytes, max_size: 5000000}}", 0)
	f("otlp_grpc", "{batch: {sizer: bytes, min_size: 5000000}}", 0)
	f("otlp_grpc", "{batch: {sizer: items, min_size: 5000000}}", 4_000_000)
}

// Bytes with a min_size that nobody wrote mean 8192 bytes, as upstream, which is
// hardly what was meant.
func TestHoist_WarnsOfDefaultMinSizeInBytes(t *testing.T) {
	f := func(yaml string, words ...string) {
		t.Helper()
		r := mustResolve(t, yaml, queuedFactory())
		if len(words) == 0 {
			assert.Empty(t, r.warnings, yaml)
			return
		}
		require.Len(t, r.warnings, 1, yaml)
		for _, word := range words {
			assert.Contains(t, r.warnings[0], word)
		}
		assert.EqualValues(t, 8192, r.effective.SendingQueue.Get().Batch.Get().MinSize)
	}
	f("exporter: {queued: }\nsending_queue: {batch: {sizer: bytes}}", "`sending_queue::batch::sizer`", "`sending_queue::batch::min_size`", "8192 bytes")
	f("exporter: {queued: }\nsending_queue: {sizer: bytes, queue_size: 100000, batch: {}}", "`sending_queue::batch::min_size`", "8192 bytes")
	f("exporter: {queued: {sending_queue: {batch: {sizer: bytes}}}}", "`exporter::queued::sending_queue::batch::min_size`")
	f("exporter: {queued: }\nsending_queue: {batch: {sizer: bytes, min_size: 8192}}")
	f("exporter: {queued: }\nsending_queue: {sizer: bytes, queue_size: 100000}")
	f("exporter: {queued: }\nsending_queue: {batch: {max_size: 100}}")
}

// Fields are found by key and type, however they are held.
func TestHoist_Places(t *testing.T) {
	type shared struct {
		Queue configoptional.Optional[theirQueue] `mapstructure:"sending_queue"`
		Retry *configretry.BackOffConfig          `mapstructure:"retry_on_failure"`
	}
	type pointers struct {
		Queue *theirQueue                `mapstructure:"sending_queue"`
		Retry *configretry.BackOffConfig `mapstructure:"retry_on_failure"`
	}
	type squashed struct {
		Shared *shared `mapstructure:",squash"`
		Level  int     `mapstructure:"level"`
	}
	type embedded struct {
		configretry.BackOffConfig       `mapstructure:"retry_on_failure"`
		exporterhelper.QueueBatchConfig `mapstructure:"sending_queue"`
	}
	type foreign struct {
		Queue string `mapstructure:"sending_queue"`
		Retry int    `mapstructure:"retry_on_failure"`
	}
	retry := configretry.NewDefaultBackOffConfig()
	queue := exporterhelper.NewDefaultQueueConfig()
	const yaml = "exporter: {x: {sending_queue: {queue_size: 7}, retry_on_failure: {initial_interval: 1s}}}"
	want := hoisted{7, 8192, 10, 200 * ms, 1000 * ms}
	for _, config := range []func() component.Config{
		func() component.Config { return &shared{configoptional.Some(queue), &retry} },
		func() component.Config { return &shared{} },
		func() component.Config { return &pointers{&queue, &retry} },
		func() component.Config { return &pointers{} },
		func() component.Config { return &squashed{Shared: &shared{configoptional.Some(queue), &retry}} },
		func() component.Config { return &embedded{retry, queue} },
	} {
		r := mustResolve(t, yaml, factoryOf("x", config))
		assert.Equal(t, want, hoistedOf(r), "%T", r.wrapped.config)
	}
	// Something else under these keys is not ours.
	r := mustResolve(t, "exporter: {x: {sending_queue: a, retry_on_failure: 5}}\nsending_queue: {queue_size: 7}",
		factoryOf("x", func() component.Config { return &foreign{} }))
	assert.Equal(t, &foreign{"a", 5}, r.wrapped.config)
	assert.EqualValues(t, 7, r.effective.SendingQueue.Get().QueueSize)
}

// resetConfig is a wrapped configuration whose Unmarshal starts from defaults.
type resetConfig struct {
	queuedConfig `mapstructure:",squash"`
}

func (c *resetConfig) Unmarshal(conf *confmap.Conf) error {
	c.queuedConfig = *newQueuedConfig()
	return conf.Unmarshal(&c.queuedConfig)
}

// Off is off, whatever the wrapped configuration does while it is decoded.
func TestHoist_OffAfterDecoding(t *testing.T) {
	r := mustResolve(t, "exporter: {x: {endpoint: y}}", factoryOf("x", func() component.Config { return &resetConfig{*newQueuedConfig()} }))
	inner := r.wrapped.config.(*resetConfig)
	assert.Equal(t, "y", inner.Endpoint)
	assert.False(t, inner.Queue.HasValue())
	assert.False(t, inner.Retry.Enabled)
}
