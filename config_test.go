// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"encoding"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
)

// confOf reads a block as a user writes it.
func confOf(t *testing.T, yaml string) *confmap.Conf {
	t.Helper()
	retrieved, err := confmap.NewRetrievedFromYAML([]byte(yaml))
	require.NoError(t, err)
	conf, err := retrieved.AsConf()
	require.NoError(t, err, yaml)
	return conf
}

// decodeConfig loads a block as the collector does, up to Validate.
func decodeConfig(conf *confmap.Conf) (*Config, error) {
	c := createDefaultConfig().(*Config)
	if err := conf.Unmarshal(c); err != nil {
		return nil, err
	}
	return c, confmap.Validate(c)
}

func loadConfig(t *testing.T, yaml string) *Config {
	t.Helper()
	c, err := decodeConfig(confOf(t, yaml))
	require.NoError(t, err, yaml)
	return c
}

// eachBlock calls f for every block of a file of them.
func eachBlock(t *testing.T, file string, f func(t *testing.T, block *confmap.Conf)) {
	t.Helper()
	conf, err := confmaptest.LoadConf(filepath.Join("testdata", "config", file))
	require.NoError(t, err)
	for name := range conf.ToStringMap() {
		block, err := conf.Sub(name)
		require.NoError(t, err)
		t.Run(name, func(t *testing.T) { f(t, block) })
	}
}

func TestConfig_Valid(t *testing.T) {
	eachBlock(t, "valid.yaml", func(t *testing.T, block *confmap.Conf) {
		_, err := decodeConfig(block)
		assert.NoError(t, err)
	})
}

func TestConfig_Invalid(t *testing.T) {
	eachBlock(t, "invalid.yaml", func(t *testing.T, row *confmap.Conf) {
		block, err := row.Sub("config")
		require.NoError(t, err)
		_, err = decodeConfig(block)
		require.Error(t, err)
		for _, word := range row.Get("says").([]any) {
			assert.ErrorContains(t, err, word.(string))
		}
		assert.NotContains(t, err.Error(), "secret")
	})
}

// Every key whose feature is not there has a row in the file of invalid blocks.
func TestConfig_NotYetSupportedIsTested(t *testing.T) {
	conf, err := confmaptest.LoadConf(filepath.Join("testdata", "config", "invalid.yaml"))
	require.NoError(t, err)
	text := fmt.Sprint(conf.ToStringMap())
	for _, row := range notYetSupported {
		assert.Contains(t, text, "`"+row.key+"` is not yet supported")
	}
}

func TestConfig_Defaults(t *testing.T) {
	c := loadConfig(t, "exporter: {sink: }")
	assert.Equal(t, time.Duration(0), c.Timeout)
	assert.Equal(t, 20*time.Second, c.DrainTimeout)
	assert.Equal(t, configretry.NewDefaultBackOffConfig(), c.Retry)
	assert.Equal(t, RefusalsConfig{Isolate: "auto", MaxAttempts: 64, Destination: "keep"}, c.Refusals)
	q := c.SendingQueue.Get()
	require.NotNil(t, q)
	assert.Equal(t, exporterhelper.RequestSizerTypeRequests, q.Sizer)
	assert.EqualValues(t, 1000, q.QueueSize)
	assert.Equal(t, 10, q.NumConsumers)
	b := q.Batch.Get()
	require.NotNil(t, b, "batching is on")
	assert.Equal(t, exporterhelper.RequestSizerTypeItems, b.Sizer)
	assert.EqualValues(t, 8192, b.MinSize)
	assert.EqualValues(t, 0, b.MaxSize)
	assert.EqualValues(t, 0, b.MaxBytes)
	assert.Equal(t, 200*time.Millisecond, b.FlushTimeout)
	assert.Equal(t, OversizeSend, b.Oversize)
	assert.True(t, b.MergeResources)
	assert.Equal(t, PartitionConfig{CacheSize: 10000, IdleTimeout: 90 * time.Second, MaxShare: 1}, b.Partition)
	assert.NoError(t, componenttest.CheckConfigStruct(c))
}

// Every key is decoded into the field that is meant.
func TestConfig_EveryKey(t *testing.T) {
	conf, err := confmaptest.LoadConf(filepath.Join("testdata", "config", "valid.yaml"))
	require.NoError(t, err)
	block, err := conf.Sub("complete")
	require.NoError(t, err)
	c, err := decodeConfig(block)
	require.NoError(t, err)
	assert.Equal(t, "otlp_grpc", c.Exporter.ID.String())
	assert.Equal(t, 7*time.Second, c.Timeout)
	assert.Equal(t, 8*time.Second, c.DrainTimeout)
	assert.Equal(t, configretry.BackOffConfig{
		Enabled: true, InitialInterval: time.Second, RandomizationFactor: 0.1, Multiplier: 2,
		MaxInterval: 10 * time.Second, MaxElapsedTime: time.Minute,
	}, c.Retry)
	assert.Equal(t, QueueConfig{
		Sizer: exporterhelper.RequestSizerTypeItems, QueueSize: 100000, NumConsumers: 7, BlockOnOverflow: true, WaitForResult: true,
		Batch: configoptional.Some(BatchConfig{
			Sizer: exporterhelper.RequestSizerTypeItems, MinSize: 1000, MaxSize: 2000, MaxBytes: 4000000, FlushTimeout: 300 * time.Millisecond,
			Oversize: OversizeDrop, Partition: PartitionConfig{CacheSize: 500, IdleTimeout: time.Minute, MaxShare: 1}, maxBytesWritten: true, fallbackMinSize: -1,
		}),
	}, *c.SendingQueue.Get())
}

func TestConfig_Switches(t *testing.T) {
	f := func(yaml string, queue, batch, retry bool) {
		t.Helper()
		c := loadConfig(t, "exporter: {sink: }\n"+yaml)
		q := c.SendingQueue.Get()
		assert.Equal(t, queue, q != nil, "queue: %s", yaml)
		assert.Equal(t, batch, q != nil && q.Batch.HasValue(), "batch: %s", yaml)
		assert.Equal(t, retry, c.Retry.Enabled, "retry: %s", yaml)
	}
	f("", true, true, true)
	f("sending_queue:", true, true, true)
	f("sending_queue: {}", true, true, true)
	f("sending_queue: {batch: }", true, true, true)
	f("sending_queue: {batch: {}}", true, true, true)
	f("sending_queue: {batch: {enabled: true}}", true, true, true)
	f("sending_queue: {batch: {enabled: false}}", true, false, true)
	f("sending_queue: {enabled: false}", false, false, true)
	f("sending_queue: {enabled: false, batch: {min_size: 5}}", false, false, true)
	f("retry_on_failure:", true, true, true)
	f("retry_on_failure: {}", true, true, true)
	f("retry_on_failure: {enabled: false}", true, true, false)
}

// A key without a value is a key that was not written.
func TestConfig_KeysWithoutValue(t *testing.T) {
	c := loadConfig(t, "exporter: {sink: }\nsending_queue: {queue_size: , batch: {min_size: , merge_resources: }}\ndrain_timeout:")
	want := createDefaultConfig().(*Config)
	assert.Equal(t, want.SendingQueue, c.SendingQueue)
	assert.Equal(t, want.DrainTimeout, c.DrainTimeout)
}

// The structs are not exporterhelper's, so this test holds them to it: every key
// that is there is here, with the same type and the same default.
func TestConfig_KeysOfExporterhelper(t *testing.T) {
	pin := func(block string, theirs, ours any) {
		keys := map[string]reflect.Value{}
		v := reflect.ValueOf(ours)
		for f, value := range v.Fields() {
			keys[f.Tag.Get("mapstructure")] = value
		}
		for f, value := range reflect.ValueOf(theirs).Fields() {
			key := f.Tag.Get("mapstructure")
			if key == "" || key == "batch" || key == "partition" {
				continue // compared on their own
			}
			mine, ok := keys[key]
			if assert.True(t, ok, "%s::%s is missing", block, key) {
				assert.Equal(t, value.Interface(), mine.Interface(), "%s::%s", block, key)
			}
		}
	}
	queue, batch := newDefaultQueueConfig(), newDefaultBatchConfig()
	pin("sending_queue", exporterhelper.NewDefaultQueueConfig(), queue)
	pin("batch", exporterhelper.NewDefaultBatchConfig(), batch)
	pin("partition", exporterhelper.NewDefaultPartitionConfig(), batch.Partition)
	assert.Equal(t, batch, *queue.Batch.Get())
	assert.Contains(t, keysOf(reflect.TypeFor[QueueConfig]()), "batch")
	assert.Contains(t, keysOf(reflect.TypeFor[BatchConfig]()), "partition")
}

// What exporterhelper makes of a block, its sizers included, we make of it.
func TestConfig_DecodesAsExporterhelper(t *testing.T) {
	for _, yaml := range []string{
		"{}",
		"{batch: }",
		"{batch: {}}",
		"{batch: {min_size: 5}}",
		"{batch: {sizer: bytes}}",
		"{sizer: items}",
		"{sizer: bytes}",
		"{sizer: bytes, batch: }",
		"{sizer: bytes, batch: {}}",
		"{sizer: bytes, batch: {min_size: 5}}",
		"{sizer: bytes, batch: {sizer: items}}",
		"{sizer: bytes, batch: {enabled: true}}",
		"{sizer: bytes, batch: {enabled: false}}",
		"{sizer: items, batch: {sizer: bytes, min_size: 5}}",
		"{sizer: requests, batch: {}}",
		"{sizer: requests, batch: {sizer: items}}",
		"{enabled: false, sizer: bytes, batch: {}}",
		"{queue_size: 5, num_consumers: 3, block_on_overflow: true, wait_for_result: true, storage: a/b}",
		"{batch: {flush_timeout: 3s, max_size: 9, min_size: 4, partition: {metadata_keys: [a], cache_size: 3, idle_timeout: 1s}}}",
	} {
		var theirs struct {
			Queue configoptional.Optional[theirQueue] `mapstructure:"sending_queue"`
		}
		theirs.Queue = configoptional.Some(exporterhelper.NewDefaultQueueConfig())
		require.NoError(t, confOf(t, "sending_queue: "+yaml).Unmarshal(&theirs))
		c := createDefaultConfig().(*Config)
		require.NoError(t, confOf(t, "sending_queue: "+yaml).Unmarshal(c))
		sameQueue(t, theirs.Queue, c.SendingQueue, yaml)
	}
}

func sameQueue(t *testing.T, theirs configoptional.Optional[theirQueue], ours configoptional.Optional[QueueConfig], yaml string) {
	t.Helper()
	require.Equal(t, theirs.HasValue(), ours.HasValue(), yaml)
	if !ours.HasValue() {
		return
	}
	want, got := *theirs.Get(), *ours.Get()
	if strings.Contains(yaml, "sizer") && !strings.Contains(yaml, "queue_size") {
		want.QueueSize = got.QueueSize // by our own rule
	}
	assert.Equal(t, []any{want.Sizer, want.QueueSize, want.NumConsumers, want.BlockOnOverflow, want.WaitForResult, want.StorageID},
		[]any{got.Sizer, got.QueueSize, got.NumConsumers, got.BlockOnOverflow, got.WaitForResult, got.StorageID}, yaml)
	b := got.Batch.Get()
	if b == nil || !want.Batch.HasValue() {
		return // ours is on by default
	}
	w := *want.Batch.Get()
	assert.Equal(t, []any{w.Sizer, w.FlushTimeout, w.MinSize, w.MaxSize, w.Partition.MetadataKeys, w.Partition.CacheSize, w.Partition.IdleTimeout},
		[]any{b.Sizer, b.FlushTimeout, b.MinSize, b.MaxSize, b.Partition.MetadataKeys, b.Partition.CacheSize, b.Partition.IdleTimeout}, yaml)
}

// What exporterhelper refuses we refuse, but for what can be made to work.
func TestConfig_RefusesAsExporterhelper(t *testing.T) {
	for _, yaml := range []string{
		"{queue_size: 0}", "{num_consumers: 0}", "{storage: a, wait_for_result: true}",
		"{sizer: items, queue_size: 10, batch: {min_size: 11}}",
		"{batch: {sizer: requests}}", "{sizer: requests, batch: {min_size: 1}}",
		"{batch: {flush_timeout: -1s}}", "{batch: {flush_timeout: 0}}",
		"{batch: {min_size: -1}}", "{batch: {max_size: -1}}", "{batch: {min_size: 10, max_size: 5}}",
		"{batch: {partition: {cache_size: 0}}}", "{batch: {partition: {idle_timeout: 0}}}", "{batch: {partition: {metadata_keys: [a, A]}}}",
	} {
		theirs := configoptional.Some(exporterhelper.NewDefaultQueueConfig())
		require.NoError(t, confOf(t, yaml).Unmarshal(&theirs))
		require.Error(t, confmap.Validate(&theirs), yaml)
		_, err := decodeConfig(confOf(t, "exporter: {sink: }\nsending_queue: "+yaml))
		assert.Error(t, err, yaml)
	}
}

// A min_size that nobody wrote gives way; one that somebody wrote is an error.
func TestConfig_LowersMinSize(t *testing.T) {
	f := func(yaml string, want int64) {
		t.Helper()
		q := loadConfig(t, "exporter: {sink: }\nsending_queue: "+yaml).SendingQueue.Get()
		b := q.Batch.Get()
		b.lowerMinSize(q)
		assert.Equal(t, want, b.MinSize, yaml)
	}
	f("{}", 8192)
	f("{queue_size: 10}", 8192) // requests and items cannot be compared
	f("{sizer: items, queue_size: 1000}", 1000)
	f("{sizer: items, queue_size: 10000}", 8192)
	f("{sizer: items, queue_size: 1000, batch: {max_size: 10}}", 10)
	f("{batch: {max_size: 10}}", 10)
	f("{batch: {max_bytes: 10}}", 8192)
	f("{batch: {sizer: bytes, max_bytes: 10}}", 10)
	f("{batch: {sizer: bytes, max_bytes: 20, max_size: 10}}", 10)
	f("{sizer: bytes, queue_size: 1000, batch: {}}", 1000)
	f("{batch: {min_size: 8192, max_size: 9000}}", 8192)
	f("{batch: {min_size: 0, max_size: 10}}", 0)
}

func TestConfig_MinSizeIsWritten(t *testing.T) {
	f := func(yaml string, want bool) {
		t.Helper()
		b := loadConfig(t, "exporter: {sink: }\nsending_queue: {batch: "+yaml+"}").SendingQueue.Get().Batch.Get()
		assert.Equal(t, want, b.minSizeIsWritten(), yaml)
	}
	f("{}", false)
	f("{max_size: 10}", false)
	f("{min_size: 5}", true)
	f("{min_size: 8192}", true)
	byCode := newDefaultBatchConfig()
	byCode.MinSize = 5
	assert.True(t, byCode.minSizeIsWritten())
}

func TestConfig_BareNumber(t *testing.T) {
	f := func(value any, want bool) {
		t.Helper()
		assert.Equal(t, want, isBareNumber(value), "%T %v", value, value)
	}
	f(5, true)
	f(int64(-5), true)
	f(uint64(5), true)
	f(0.5, true)
	f("5", true)
	f(" 5 ", true)
	f("5e3", true)
	f(0, false)
	f(0.0, false)
	f("0", false)
	f("5s", false)
	f("", false)
	f(5*time.Second, false)
	f(nil, false)
	f(true, false)
	f([]any{5}, false)
}

// Durations that code puts into a map are not numbers without a unit.
func TestConfig_DurationsByCode(t *testing.T) {
	c, err := decodeConfig(confmap.NewFromStringMap(map[string]any{
		"exporter": map[string]any{"sink": nil}, "timeout": 3 * time.Second,
	}))
	require.NoError(t, err)
	assert.Equal(t, 3*time.Second, c.Timeout)
}

const withSecrets = `
exporter:
  otlp_grpc:
    endpoint: s3cret
    insecure: true
    port: 31337
    headers: {authorization: s3cret, empty: }
    list: [s3cret, {token: s3cret}, [s3cret], 31337]
timeout: 5s
`

func TestConfig_MarshalMasksWrappedBlock(t *testing.T) {
	conf := confmap.New()
	require.NoError(t, conf.Marshal(loadConfig(t, withSecrets)))
	const x = "[REDACTED]"
	assert.Equal(t, map[string]any{"otlp_grpc": map[string]any{
		"endpoint": x, "insecure": x, "port": x,
		"headers": map[string]any{"authorization": x, "empty": nil},
		"list":    []any{x, map[string]any{"token": x}, []any{x}, x},
	}}, conf.Get("exporter"))
	assert.Equal(t, 5*time.Second, conf.Get("timeout"))
	assert.EqualValues(t, 1000, conf.Get("sending_queue::queue_size"))

	conf = confmap.New()
	require.NoError(t, conf.Marshal(loadConfig(t, "exporter: {otlp_grpc: }")))
	assert.Equal(t, map[string]any{"otlp_grpc": nil}, conf.Get("exporter"))
	require.NoError(t, confmap.New().Marshal(createDefaultConfig()))
}

func TestConfig_PrintsNoSecret(t *testing.T) {
	c := loadConfig(t, withSecrets)
	asJSON, err := json.Marshal(c)
	require.NoError(t, err)
	texts := []string{string(asJSON), c.Exporter.String(), c.Exporter.GoString()}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		texts = append(texts, fmt.Sprintf(format, c), fmt.Sprintf(format, *c), fmt.Sprintf(format, c.Exporter), fmt.Sprintf(format, &c.Exporter))
	}
	for _, text := range texts {
		assert.NotContains(t, text, "s3cret")
		assert.NotContains(t, text, "31337")
	}
	assert.Contains(t, fmt.Sprintf("%+v", c), "otlp_grpc")
}

// Where secrets are asked for, confmap takes the text of a value and passes over
// its MarshalText: the block shows then.
func TestConfig_UnredactedShowsWrappedBlock(t *testing.T) {
	conf := confmap.New()
	require.NoError(t, loadConfig(t, withSecrets).Exporter.Marshal(conf))
	for key, want := range map[string]string{
		"otlp_grpc::endpoint": "s3cret", "otlp_grpc::port": "31337", "otlp_grpc::headers::authorization": "s3cret", "otlp_grpc::insecure": "true",
	} {
		value := reflect.ValueOf(conf.Get(key))
		require.Equal(t, reflect.String, value.Kind(), key)
		assert.Implements(t, (*encoding.TextMarshaler)(nil), value.Interface(), key)
		assert.Equal(t, want, value.String(), key)
	}
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v %q", conf.ToStringMap(), conf.ToStringMap(), conf.ToStringMap(), conf.ToStringMap()), "s3cret")
}

// A queue of which only the sizer is written has a size that makes sense in it.
func TestConfig_QueueSizeBySizer(t *testing.T) {
	f := func(yaml string, want int64) {
		t.Helper()
		assert.Equal(t, want, loadConfig(t, "exporter: {sink: }\nsending_queue: "+yaml).SendingQueue.Get().QueueSize, yaml)
	}
	f("{}", 1000)
	f("{sizer: requests}", 1000)
	f("{sizer: items}", 100_000)
	f("{sizer: items, queue_size: }", 100_000)
	f("{sizer: bytes}", 134_217_728)
	f("{sizer: bytes, batch: {min_size: 10000}}", 134_217_728)
	f("{sizer: bytes, queue_size: 1000}", 1000)
	f("{sizer: items, queue_size: 7}", 7)
	f("{batch: {sizer: bytes}}", 1000)
}

func TestConfig_WholeNumbers(t *testing.T) {
	q := loadConfig(t, "exporter: {sink: }\nsending_queue: {queue_size: 1e3, num_consumers: 1e1, batch: {min_size: 1_000, max_bytes: 4.0e6}}").SendingQueue.Get()
	assert.Equal(t, []int64{1000, 10, 1000, 4_000_000}, []int64{q.QueueSize, int64(q.NumConsumers), q.Batch.Get().MinSize, q.Batch.Get().MaxBytes})
}

// The keys of ours reach what they are for.
func TestConfig_ReachesTheQueue(t *testing.T) {
	set := queueSettingsOf(loadConfig(t, "exporter: {sink: }\nsending_queue: {max_age: 1h, drop_oldest_on_overflow: true}"))
	assert.Equal(t, time.Hour, set.maxAge)
	assert.True(t, set.dropOldest)
}

// The collector asks before it is known what the wrapped exporter is.
func TestConfig_Batches(t *testing.T) {
	f := func(yaml string, want bool) {
		t.Helper()
		assert.Equal(t, want, loadConfig(t, yaml).batches(), yaml)
	}
	f("exporter: {sink: }", true)
	f("exporter: {sink: {}}", true)
	f("exporter: {sink: }\nsending_queue: {enabled: false}", false)
	f("exporter: {sink: }\nsending_queue: {batch: {enabled: false}}", false)
	f("exporter: {sink: {sending_queue: }}", true)
	f("exporter: {sink: {sending_queue: {queue_size: 5}}}", true)
	f("exporter: {sink: {sending_queue: {batch: }}}", true)
	f("exporter: {sink: {sending_queue: {enabled: false}}}", false)
	f("exporter: {sink: {sending_queue: {batch: {enabled: false}}}}", false)
	f("exporter: {sink: {sending_queue: {enabled: false}}}\nsending_queue: {}", true)
	f("exporter: {sink: {sending_queue: {enabled: false}}}\nsending_queue: {enabled: false}", false)
	f("exporter: {sink: {sending_queue: {enabled: false}}}\nsending_queue: {batch: {enabled: false}}", false)
}
