// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
)

// problems gathers what is wrong, so that the user sees all of it at once.
type problems struct{ errs []error }

func (p *problems) when(bad bool, format string, args ...any) {
	if bad {
		p.errs = append(p.errs, fmt.Errorf(format, args...))
	}
}

func (p *problems) err() error { return errors.Join(p.errs...) }

// path is a key path in front of its last key: with "::" at its end, or empty.
type path string

func (p path) under(key string) path { return p + path(key+confmap.KeyDelimiter) }

func (p path) key(key string) string { return string(p) + key }

// block is the path of the block itself.
func (p path) block() string { return strings.TrimSuffix(string(p), confmap.KeyDelimiter) }

// notYetSupported are keys whose meaning is settled but whose feature is not
// there. They are refused by name, since a key that is known and has no effect
// would be a lie. A row goes when its feature comes.
var notYetSupported = []struct {
	key string
	set func(*Config) bool
}{
	{"sending_queue::storage", queueSays(func(q *QueueConfig) bool { return q.StorageID != nil })},
	{"sending_queue::drain_storage", queueSays(func(q *QueueConfig) bool { return q.DrainStorage })},
	{"sending_queue::batch::partition::metadata_keys", partitionSays(func(p *PartitionConfig) bool { return len(p.MetadataKeys) > 0 })},
	{"sending_queue::batch::partition::resource_attributes", partitionSays(func(p *PartitionConfig) bool { return len(p.ResourceAttributes) > 0 })},
	{"sending_queue::batch::partition::max_share", partitionSays(func(p *PartitionConfig) bool { return p.MaxShare != 1 })},
	{"sending_queue::batch::partition::max_in_flight", partitionSays(func(p *PartitionConfig) bool { return p.MaxInFlight != 0 })},
}

func queueSays(set func(*QueueConfig) bool) func(*Config) bool {
	return func(c *Config) bool {
		q := c.SendingQueue.Get()
		return q != nil && set(q)
	}
}

func partitionSays(set func(*PartitionConfig) bool) func(*Config) bool {
	return queueSays(func(q *QueueConfig) bool {
		b := q.Batch.Get()
		return b != nil && set(&b.Partition)
	})
}

// check finds what is wrong with the values. It is one pass from the top, and
// not a Validate on each struct, so that every error names the whole path of its
// key, also of a queue block that was hoisted from the wrapped exporter's.
func (c *Config) check() error {
	var p problems
	if err := c.Exporter.check(); err != nil {
		p.errs = append(p.errs, err)
	}
	p.when(c.Timeout < 0, "`timeout` is %v: it must be positive, or 0 for that of the wrapped exporter", c.Timeout)
	p.when(c.DrainTimeout < 0, "`drain_timeout` is %v: it must be positive, or 0 to send nothing more once a stop begins", c.DrainTimeout)
	isolate := []Isolate{IsolateAuto, IsolateAlways, IsolateNever}
	p.when(!slices.Contains(isolate, c.Refusals.Isolate), "`refusals::isolate` is %q: it must be one of %v", c.Refusals.Isolate, isolate)
	p.when(c.Refusals.MaxAttempts < 1, "`refusals::max_attempts` is %d: it must be at least 1", c.Refusals.MaxAttempts)
	destination := []Destination{DestinationKeep, DestinationDrop}
	p.when(!slices.Contains(destination, c.Refusals.Destination), "`refusals::destination` is %q: it must be one of %v", c.Refusals.Destination, destination)
	p.errs = append(p.errs, c.checkQueue(""), c.checkInner())
	return p.err()
}

// checkQueue checks the queue block, which was written below at.
func (c *Config) checkQueue(at path) error {
	var p problems
	if q := c.SendingQueue.Get(); q != nil {
		q.check(at.under(keyQueue), &p)
	}
	for _, row := range notYetSupported {
		p.when(row.set(c), "`%s` is not yet supported: leave it out", at.key(row.key))
	}
	return p.err()
}

func (q *QueueConfig) check(at path, p *problems) {
	sizers := sizers()
	p.when(!slices.Contains(sizers, q.Sizer.String()), "`%s` is %q: it must be one of %v", at.key("sizer"), q.Sizer.String(), sizers)
	p.when(q.QueueSize < 1, "`%s` is %d: it must be at least 1", at.key("queue_size"), q.QueueSize)
	p.when(q.NumConsumers < 1, "`%s` is %d: it must be at least 1", at.key("num_consumers"), q.NumConsumers)
	p.when(q.MaxAge < 0, "`%s` is %v: it must be positive, or 0 for never", at.key("max_age"), q.MaxAge)
	p.when(q.MaxAge > 0 && q.MaxAge < time.Millisecond,
		"`%s` is %v: nothing is sent below 1ms, set a time such as `1h`, or 0 for never", at.key("max_age"), q.MaxAge)
	p.when(q.DropOldestOnOverflow && q.BlockOnOverflow,
		"`%s` and `%s` exclude each other: a full queue makes callers wait, or makes room, leave one of them out",
		at.key("drop_oldest_on_overflow"), at.key("block_on_overflow"))
	p.when(q.StorageID != nil && q.WaitForResult,
		"`%s` and `%s` exclude each other: who waits for the result needs no storage, leave one of them out", at.key("wait_for_result"), at.key("storage"))
	b := q.Batch.Get()
	if b == nil {
		return
	}
	b.check(at.under("batch"), p)
	p.when(b.minSizeIsWritten() && b.Sizer == q.Sizer && b.MinSize > q.QueueSize,
		"`%s` is %d %s, above `%s`, which is %d: the queue can never hold such a batch, lower the one or raise the other",
		at.key("batch::min_size"), b.MinSize, b.Sizer.String(), at.key("queue_size"), q.QueueSize)
}

func (b *BatchConfig) check(at path, p *problems) {
	inBytes := b.Sizer == exporterhelper.RequestSizerTypeBytes
	p.when(!inBytes && b.Sizer != exporterhelper.RequestSizerTypeItems,
		"`%s` is %q: a batch is measured in `items` or `bytes`; without a sizer of its own it has that of the queue, so write one",
		at.key("sizer"), b.Sizer.String())
	b.checkFlushTimeout(at, p)
	sizes := []struct {
		key   string
		value int64
	}{{"min_size", b.MinSize}, {"max_size", b.MaxSize}, {"max_bytes", b.MaxBytes}}
	for _, s := range sizes {
		p.when(s.value < 0, "`%s` is %d: it must be positive, or 0 for none", at.key(s.key), s.value)
	}
	written := b.minSizeIsWritten()
	p.when(written && b.MaxSize > 0 && b.MinSize > b.MaxSize, aboveMax, at.key("min_size"), b.MinSize, at.key("max_size"), b.MaxSize)
	p.when(written && inBytes && b.MaxBytes > 0 && b.MinSize > b.MaxBytes, aboveMax, at.key("min_size"), b.MinSize, at.key("max_bytes"), b.MaxBytes)
	p.when(b.Oversize != OversizeSend && b.Oversize != OversizeDrop,
		"`%s` is %q: it must be `%s` or `%s`", at.key("oversize"), b.Oversize, OversizeSend, OversizeDrop)
	b.Partition.check(at.under("partition"), p)
}

const aboveMax = "`%s` is %d, above `%s`, which is %d: lower the one or raise the other"

func (b *BatchConfig) checkFlushTimeout(at path, p *problems) {
	key := at.key("flush_timeout")
	switch {
	case b.FlushTimeout < 0:
		p.when(true, "`%s` is %v: it must be positive, or 0 together with `min_size: 0`", key, b.FlushTimeout)
	case b.FlushTimeout == 0:
		p.when(b.MinSize > 0, "`%s` is 0 while `%s` is %d: less than that would never leave; set a time such as `200ms`, or `min_size: 0` to only split",
			key, at.key("min_size"), b.MinSize)
	case b.FlushTimeout < time.Millisecond:
		p.when(true, "`%s` is %v: no batch gathers below 1ms, set a time such as `200ms`, or 0 together with `min_size: 0`", key, b.FlushTimeout)
	}
}

func (c *PartitionConfig) check(at path, p *problems) {
	seen := map[string]bool{}
	for _, k := range c.MetadataKeys {
		l := strings.ToLower(k)
		p.when(seen[l], "`%s` holds %q twice, regardless of case: leave one out", at.key("metadata_keys"), l)
		seen[l] = true
	}
	p.when(c.CacheSize < 1, "`%s` is %d: it must be at least 1", at.key("cache_size"), c.CacheSize)
	p.when(c.IdleTimeout <= 0, "`%s` is %v: it must be positive", at.key("idle_timeout"), c.IdleTimeout)
	p.when(!(c.MaxShare > 0 && c.MaxShare <= 1), "`%s` is %v: it must be above 0, and 1 at most for no limit", at.key("max_share"), c.MaxShare)
	p.when(c.MaxInFlight < 0, "`%s` is %d: it must be positive, or 0 for no limit", at.key("max_in_flight"), c.MaxInFlight)
}

func sizers() []string {
	requests, items, size := exporterhelper.RequestSizerTypeRequests, exporterhelper.RequestSizerTypeItems, exporterhelper.RequestSizerTypeBytes
	return []string{requests.String(), items.String(), size.String()}
}

// blocks are the types of the blocks that are ours to check before they are
// decoded; that of the wrapped exporter is not.
var blocks = map[string]reflect.Type{
	"":                                reflect.TypeFor[Config](),
	"sending_queue":                   reflect.TypeFor[QueueConfig](),
	"sending_queue::batch":            reflect.TypeFor[BatchConfig](),
	"sending_queue::batch::partition": reflect.TypeFor[PartitionConfig](),
	"retry_on_failure":                reflect.TypeFor[configretry.BackOffConfig](),
	"refusals":                        reflect.TypeFor[RefusalsConfig](),
}

// checkWritten checks what was written in a block of ours, before the decoder
// takes 200 for 200ns, and names keys and values where the decoder would not.
// The block is the one under key, written below at.
func checkWritten(block map[string]any, key string, at path) error {
	var p problems
	here := at
	if key != "" {
		here = at.under(key)
	}
	keys := keysOf(blocks[key])
	for _, k := range slices.Sorted(maps.Keys(block)) {
		typ, known := keys[k]
		p.when(!known, "`%s`%s is not a key: there are %s", here.key(k), shown(block[k]), strings.Join(slices.Sorted(maps.Keys(keys)), ", "))
		if known {
			checkValue(typ, block[k], here.key(k), &p)
		}
		below := strings.TrimPrefix(key+confmap.KeyDelimiter+k, confmap.KeyDelimiter)
		inner, isBlock := block[k].(map[string]any)
		if _, ours := blocks[below]; ours && isBlock {
			p.errs = append(p.errs, checkWritten(inner, below, at))
		}
	}
	return p.err()
}

// keysOf returns the keys of a block with their types.
func keysOf(block reflect.Type) map[string]reflect.Type {
	keys := map[string]reflect.Type{}
	for f := range block.Fields() {
		if tag := f.Tag.Get(confmap.MapstructureTag); tag != "" {
			keys[tag] = f.Type
		}
	}
	if block == reflect.TypeFor[QueueConfig]() || block == reflect.TypeFor[BatchConfig]() {
		keys["enabled"] = reflect.TypeFor[bool]() // of configoptional
	}
	return keys
}

func checkValue(typ reflect.Type, value any, key string, p *problems) {
	if value == nil {
		return
	}
	switch typ {
	case reflect.TypeFor[time.Duration]():
		checkDuration(value, key, p)
	case reflect.TypeFor[exporterhelper.RequestSizerType]():
		s, isText := value.(string)
		p.when(isText && !slices.Contains(sizers(), s), "`%s` is %q: it must be one of %v", key, s, sizers())
	case reflect.TypeFor[WrappedConfig]():
		_, isBlock := value.(map[string]any)
		p.when(!isBlock, "`%s` must be a block with one component ID, such as `otlp_grpc:`, and its configuration below that, not a %T", key, value)
	default:
		checkScalar(typ, value, key, p)
	}
}

// checkScalar checks what the decoder would cut to fit: it makes 1 of 1.5, and a
// negative number of 1e30.
func checkScalar(typ reflect.Type, value any, key string, p *problems) {
	switch typ.Kind() {
	case reflect.Int, reflect.Int64:
		fault := notWhole(typ, value)
		p.when(fault != "", "`%s` is %s: it must be %s", key, written(value), fault)
	case reflect.Float64:
		v := reflect.ValueOf(value)
		isNumber := v.CanInt() || v.CanUint() || v.CanFloat() && !math.IsInf(v.Float(), 0) && !math.IsNaN(v.Float())
		p.when(!isNumber, "`%s` is %s: it must be a number, such as 1.5, without quotes", key, written(value))
	case reflect.Bool:
		p.when(reflect.ValueOf(value).Kind() != reflect.Bool, "`%s` is %s: it must be true or false, without quotes", key, written(value))
	}
}

// notWhole says what a value should be that is no whole number or does not fit,
// and nothing of one that is fine. A number such as 1e3 is whole.
func notWhole(typ reflect.Type, value any) string {
	greatest := int64(math.MaxInt64)
	if typ.Kind() == reflect.Int {
		greatest = math.MaxInt
	}
	tooLarge := fmt.Sprintf("a whole number, %d at most", greatest)
	switch v := reflect.ValueOf(value); {
	case v.CanInt():
		if reflect.Zero(typ).OverflowInt(v.Int()) {
			return tooLarge
		}
	case v.CanUint():
		if v.Uint() > uint64(greatest) {
			return tooLarge
		}
	case v.CanFloat():
		// As a float, the greatest is the first that does not fit.
		if f := v.Float(); math.IsNaN(f) || math.Abs(f) >= float64(greatest) {
			return tooLarge
		} else if f != math.Trunc(f) {
			return fmt.Sprintf("a whole number, such as %.0f", math.Ceil(f))
		}
	case v.Kind() == reflect.String:
		return "a whole number, without quotes"
	default:
		return "a whole number, such as 1000"
	}
	return ""
}

// written is a value under a key of ours as the user wrote it, as far as that is
// known.
func written(value any) string {
	switch v := reflect.ValueOf(value); {
	case v.CanFloat():
		return strings.Replace(strconv.FormatFloat(v.Float(), 'g', -1, 64), "e+", "e", 1)
	case v.CanInt(), v.CanUint(), v.Kind() == reflect.Bool:
		return fmt.Sprint(value)
	case v.Kind() == reflect.String:
		return strconv.Quote(v.String())
	case v.Kind() == reflect.Map:
		return "a block"
	}
	return "a list"
}

func checkDuration(value any, key string, p *problems) {
	if isBareNumber(value) {
		p.when(true, "`%s` is %v without a unit, which would be read as nanoseconds: write a unit, such as `%[2]vms` or `%[2]vs`", key, value)
		return
	}
	if s, isText := value.(string); isText {
		_, err := time.ParseDuration(s)
		p.when(err != nil, "`%s` is %q: it must be a duration, such as `200ms` or `5m`", key, s)
	}
}

// isBareNumber says whether a duration was written as a number other than 0.
func isBareNumber(value any) bool {
	if _, ok := value.(time.Duration); ok {
		return false // a configuration made by code
	}
	switch v := reflect.ValueOf(value); {
	case v.CanInt():
		return v.Int() != 0
	case v.CanUint():
		return v.Uint() != 0
	case v.CanFloat():
		return v.Float() != 0
	case v.Kind() == reflect.String:
		f, err := strconv.ParseFloat(strings.TrimSpace(v.String()), 64)
		return err == nil && f != 0
	}
	return false
}

// shown is a value for the error about its key: only numbers and switches, since
// under a key that is not ours a text may be somebody's secret.
func shown(value any) string {
	switch v := reflect.ValueOf(value); {
	case v.CanInt(), v.CanUint(), v.CanFloat(), v.Kind() == reflect.Bool:
		return fmt.Sprintf(" (%v)", value)
	}
	return ""
}

// dropNulls takes a key without a value for one that was not written. The
// decoder would make it zero, which for `drain_timeout:` is a stop that sends
// nothing.
func dropNulls(conf *confmap.Conf) {
	for _, key := range conf.AllKeys() {
		wrapped := strings.HasPrefix(key, keyExporter+confmap.KeyDelimiter)
		if !wrapped && conf.Get(key) == nil {
			conf.Delete(key)
		}
	}
}
