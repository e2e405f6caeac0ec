// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"errors"
	"reflect"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
)

// The keys of a batcher that its code has to name.
const (
	keyExporter = "exporter"
	keyQueue    = "sending_queue"
	keyRetry    = "retry_on_failure"
)

// Config is the configuration of a batcher. Keys that exporterhelper has too
// keep its names, meanings and defaults, so that a block can be moved here from
// any exporter; all others are additions.
type Config struct {
	// Exporter is the wrapped exporter: one component ID with its own block.
	Exporter WrappedConfig `mapstructure:"exporter"`
	// SendingQueue is on by default. Without it each request goes straight to
	// the sender.
	SendingQueue configoptional.Optional[QueueConfig] `mapstructure:"sending_queue"`
	Retry        configretry.BackOffConfig            `mapstructure:"retry_on_failure"`
	Refusals     RefusalsConfig                       `mapstructure:"refusals"`
	// Timeout bounds each attempt; 0 leaves that to the wrapped exporter.
	Timeout time.Duration `mapstructure:"timeout"`
	// DrainTimeout is how long a stop may go on sending, all signals together.
	DrainTimeout time.Duration `mapstructure:"drain_timeout"`

	// factories are those that NewFactory was given by code. With one for the
	// wrapped type, Validate checks the wrapped block too.
	factories map[component.Type]exporter.Factory
	// written are the blocks as the user wrote them, nil for none. The decoded
	// structs do not tell a default from a written value, and only gaps may be
	// filled with what the wrapped exporter's authors chose.
	written struct{ queue, retry *confmap.Conf }
}

// QueueConfig has the keys of exporterhelper's QueueBatchConfig and some of
// ours. It is not that struct, whose Unmarshal and Validate refuse other keys.
type QueueConfig struct {
	// Sizer is what QueueSize counts.
	Sizer           exporterhelper.RequestSizerType `mapstructure:"sizer"`
	QueueSize       int64                           `mapstructure:"queue_size"`
	NumConsumers    int                             `mapstructure:"num_consumers"`
	BlockOnOverflow bool                            `mapstructure:"block_on_overflow"`
	WaitForResult   bool                            `mapstructure:"wait_for_result"`
	StorageID       *component.ID                   `mapstructure:"storage"`
	// MaxAge is after which time data is given up; 0 for never.
	MaxAge time.Duration `mapstructure:"max_age"`
	// DropOldestOnOverflow makes room for new data in a full queue.
	DropOldestOnOverflow bool `mapstructure:"drop_oldest_on_overflow"`
	// DrainStorage has a stop send what is in storage too.
	DrainStorage bool                                 `mapstructure:"drain_storage"`
	Batch        configoptional.Optional[BatchConfig] `mapstructure:"batch"`
}

// BatchConfig has the keys of exporterhelper's BatchConfig and some of ours.
type BatchConfig struct {
	// FlushTimeout is how long the oldest request waits for company.
	FlushTimeout time.Duration `mapstructure:"flush_timeout"`
	// Sizer is what MinSize and MaxSize count.
	Sizer   exporterhelper.RequestSizerType `mapstructure:"sizer"`
	MinSize int64                           `mapstructure:"min_size"`
	// MaxSize is 0 for none.
	MaxSize int64 `mapstructure:"max_size"`
	// MaxBytes is a second bound, in bytes of the export request; 0 for none, or
	// for the default of the wrapped type if nobody wrote it.
	MaxBytes int64 `mapstructure:"max_bytes"`
	// Oversize decides about an item that alone exceeds a bound.
	Oversize Oversize `mapstructure:"oversize"`
	// MergeResources lets items of equal resource and scope share one header.
	MergeResources bool            `mapstructure:"merge_resources"`
	Partition      PartitionConfig `mapstructure:"partition"`

	// maxBytesWritten says that a block has MaxBytes, so that 0 is no bound and
	// not the default of the wrapped type.
	maxBytesWritten bool
	// fallbackMinSize is the MinSize that stands when nobody wrote one, and -1
	// once somebody did.
	fallbackMinSize int64
}

// PartitionConfig has the keys of exporterhelper's PartitionConfig and some of
// ours. A partition costs a map entry here and exists only while it holds data,
// so CacheSize and IdleTimeout have nothing to limit; they load for the sake of
// blocks that have them.
type PartitionConfig struct {
	MetadataKeys []string      `mapstructure:"metadata_keys"`
	CacheSize    int           `mapstructure:"cache_size"`
	IdleTimeout  time.Duration `mapstructure:"idle_timeout"`
	// ResourceAttributes partition by the values of these attributes.
	ResourceAttributes []string `mapstructure:"resource_attributes"`
	// MaxShare is the share of the capacity that one partition may hold.
	MaxShare float64 `mapstructure:"max_share"`
	// MaxInFlight is how many batches of a partition are sent at the same time;
	// 0 for no limit. With 1, their order is kept.
	MaxInFlight int `mapstructure:"max_in_flight"`
}

// RefusalsConfig is what to do when the backend refuses a batch for its content.
type RefusalsConfig struct {
	Isolate Isolate `mapstructure:"isolate"`
	// MaxAttempts is the budget of calls for halving one batch.
	MaxAttempts int `mapstructure:"max_attempts"`
	// Destination is what becomes of data while the destination refuses us, or
	// the address is wrong.
	Destination Destination `mapstructure:"destination"`
}

// Oversize is what becomes of an item that alone exceeds a bound.
type Oversize string

// The values of Oversize.
const (
	OversizeSend Oversize = "send" // alone, the backend decides
	OversizeDrop Oversize = "drop" // counted and dropped
)

// Isolate is whether a refused batch is halved to find the refused items.
type Isolate string

// The values of Isolate.
const (
	IsolateAuto   Isolate = "auto" // for protocols that take all or nothing
	IsolateAlways Isolate = "always"
	IsolateNever  Isolate = "never"
)

// Destination is what becomes of data that the destination refuses for no fault
// of the data.
type Destination string

// The values of Destination.
const (
	DestinationKeep Destination = "keep" // tried again
	DestinationDrop Destination = "drop" // as any permanent error
)

// The defaults of a queue, by what is written. They are exporterhelper's of the
// day they were chosen, but pinned: a test tells when theirs move, and a person
// decides. Only batching is on.
const (
	defaultRequests     = 1000
	defaultItems        = 100_000
	defaultBytes        = 128 << 20
	defaultConsumers    = 10
	defaultMinSize      = 8192
	defaultFlushTimeout = 200 * time.Millisecond
)

func createDefaultConfig() component.Config {
	return &Config{
		SendingQueue: configoptional.Some(newDefaultQueueConfig()),
		Retry:        configretry.NewDefaultBackOffConfig(),
		Refusals:     RefusalsConfig{Isolate: IsolateAuto, MaxAttempts: 64, Destination: DestinationKeep},
		DrainTimeout: 20 * time.Second,
	}
}

func newDefaultQueueConfig() QueueConfig {
	return QueueConfig{
		Sizer:        exporterhelper.RequestSizerTypeRequests,
		QueueSize:    defaultRequests,
		NumConsumers: defaultConsumers,
		Batch:        configoptional.Some(newDefaultBatchConfig()),
	}
}

func newDefaultBatchConfig() BatchConfig {
	return BatchConfig{
		FlushTimeout:   defaultFlushTimeout,
		Sizer:          exporterhelper.RequestSizerTypeItems,
		MinSize:        defaultMinSize,
		Oversize:       OversizeSend,
		MergeResources: true,
		Partition: PartitionConfig{
			CacheSize:   10000,
			IdleTimeout: 90 * time.Second,
			MaxShare:    1,
		},
		fallbackMinSize: defaultMinSize,
	}
}

// defaultQueueSize is the size of a queue of which only the sizer is written: 1000
// would be a few requests in items, and not one in bytes.
func defaultQueueSize(sizer exporterhelper.RequestSizerType) int64 {
	switch sizer {
	case exporterhelper.RequestSizerTypeItems:
		return defaultItems
	case exporterhelper.RequestSizerTypeBytes:
		return defaultBytes
	}
	return defaultRequests
}

// Unmarshal decodes the block of a batcher, and remembers what was written.
func (c *Config) Unmarshal(conf *confmap.Conf) error {
	dropNulls(conf)
	if err := checkWritten(conf.ToStringMap(), "", ""); err != nil {
		return err
	}
	if err := conf.Unmarshal(c); err != nil {
		return err
	}
	var errQueue, errRetry error
	c.written.queue, errQueue = writtenBlock(conf, keyQueue)
	c.written.retry, errRetry = writtenBlock(conf, keyRetry)
	return errors.Join(errQueue, errRetry)
}

// writtenBlock returns the block under a key; nil if there is none, or nothing
// in it.
func writtenBlock(conf *confmap.Conf, key string) (*confmap.Conf, error) {
	if conf.Get(key) == nil {
		return nil, nil
	}
	return conf.Sub(key)
}

// Unmarshal decodes a queue block. The sizer of the queue becomes that of its
// batches by exporterhelper's rule: it is written, theirs is not, and the batch
// block is. A size that was chosen for another sizer does not stay.
func (q *QueueConfig) Unmarshal(conf *confmap.Conf) error {
	before := q.Sizer
	if err := conf.Unmarshal(q); err != nil {
		return err
	}
	if q.Sizer != before && !conf.IsSet("queue_size") {
		q.QueueSize = defaultQueueSize(q.Sizer)
	}
	inherits := conf.IsSet("sizer") && !conf.IsSet("batch::sizer") && conf.Get("batch") != nil
	if b := q.Batch.Get(); b != nil && inherits {
		b.Sizer = q.Sizer
	}
	return nil
}

// Unmarshal decodes a batch block.
func (b *BatchConfig) Unmarshal(conf *confmap.Conf) error {
	if err := conf.Unmarshal(b); err != nil {
		return err
	}
	if conf.IsSet("min_size") {
		b.fallbackMinSize = -1
	}
	b.maxBytesWritten = b.maxBytesWritten || conf.IsSet("max_bytes")
	return nil
}

// minSizeIsWritten says whether somebody chose MinSize, in YAML or by code.
func (b *BatchConfig) minSizeIsWritten() bool { return b.MinSize != b.fallbackMinSize }

// lowerMinSize fits a MinSize that nobody wrote below the limits that somebody
// did, so that what loads upstream, where no batch is formed by default, loads
// here.
func (b *BatchConfig) lowerMinSize(q *QueueConfig) {
	if b.minSizeIsWritten() {
		return
	}
	if b.Sizer == q.Sizer {
		b.MinSize = min(b.MinSize, q.QueueSize)
	}
	if b.MaxSize > 0 {
		b.MinSize = min(b.MinSize, b.MaxSize)
	}
	if b.Sizer == exporterhelper.RequestSizerTypeBytes && b.MaxBytes > 0 {
		b.MinSize = min(b.MinSize, b.MaxBytes)
	}
	b.fallbackMinSize = b.MinSize
}

// decodeQueue decodes a queue block over a base; nil is a block that says
// nothing.
func decodeQueue(block *confmap.Conf, base QueueConfig) (configoptional.Optional[QueueConfig], error) {
	q := configoptional.Some(base)
	if block == nil {
		return q, nil
	}
	err := block.Unmarshal(&q)
	return q, err
}

// decodeRetry is decodeQueue for retries.
func decodeRetry(block *confmap.Conf, base configretry.BackOffConfig) (configretry.BackOffConfig, error) {
	if block == nil {
		return base, nil
	}
	err := block.Unmarshal(&base)
	return base, err
}

// queueByCode says whether code put the queue there rather than a block: then it
// is as it is, and has no gaps.
func (c *Config) queueByCode() bool {
	q, err := decodeQueue(c.written.queue, newDefaultQueueConfig())
	return err != nil || !reflect.DeepEqual(q, c.SendingQueue)
}

// retryByCode is queueByCode for retries.
func (c *Config) retryByCode() bool {
	r, err := decodeRetry(c.written.retry, configretry.NewDefaultBackOffConfig())
	return err != nil || r != c.Retry
}

// queueOutside says whether the queue was said outside of the wrapped block.
func (c *Config) queueOutside() bool { return c.written.queue != nil || c.queueByCode() }

// retryOutside is queueOutside for retries.
func (c *Config) retryOutside() bool { return c.written.retry != nil || c.retryByCode() }

// batches says whether batches are made, as far as the blocks tell: the collector
// asks before the factory of the wrapped exporter is known.
func (c *Config) batches() bool {
	if inner := c.Exporter.says(keyQueue); inner != nil && !c.queueOutside() {
		batch, _ := inner["batch"].(map[string]any)
		return !isOff(inner) && !isOff(batch)
	}
	q := c.SendingQueue.Get()
	return q != nil && q.Batch.HasValue()
}

// isOff says whether a block switches off what it is about.
func isOff(block map[string]any) bool {
	enabled, said := block["enabled"].(bool)
	return said && !enabled
}

// setFactories lets Validate check the block of a wrapped exporter whose factory
// is known before Start.
func (c *Config) setFactories(given map[component.Type]exporter.Factory) { c.factories = given }

// Validate checks all that can be known before Start.
func (c *Config) Validate() error {
	if err := c.check(); err != nil {
		return err
	}
	if givenFactory(c.factories, c.Exporter.ID.Type()) == nil {
		return nil
	}
	_, err := c.resolve(lookupFrom(nil, c.factories))
	return err
}
