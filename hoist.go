// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
)

type theirQueue = exporterhelper.QueueBatchConfig

// hoist makes the queue and the retries of the wrapped exporter ours: what its
// block says of them is taken out of it, and what its authors chose fills the
// gaps. An exporter without such keys is left alone, so that writing them there
// is the error that it is without us.
func (r *resolved) hoist(c *Config, block *confmap.Conf, at path) error {
	places := findPlaces(reflect.ValueOf(r.wrapped.config))
	return errors.Join(r.hoistQueue(c, block, places.queue, at), r.hoistRetry(c, block, places.retry, at))
}

func (r *resolved) hoistQueue(c *Config, block *confmap.Conf, place reflect.Value, at path) error {
	var inner *confmap.Conf
	base := newDefaultQueueConfig()
	if place.IsValid() {
		var err error
		if inner, err = takeBlock(block, keyQueue, at); err != nil {
			return err
		}
		if c.queueOutside() {
			inner = nil // checked: it says no more than that it is off
		}
		theirs, on := queueDefaults(place)
		if on || inner != nil || c.written.queue != nil {
			base = tuned(base, theirs)
		}
	}
	var err error
	switch byCode := c.queueByCode(); {
	case inner != nil:
		r.sayIfOff(inner, at)
		if r.effective.SendingQueue, err = decodeQueue(inner, base); err != nil {
			return fmt.Errorf("`%s`: %w", at.key(keyQueue), err)
		}
		return r.fitQueue(at)
	case !byCode:
		if r.effective.SendingQueue, err = decodeQueue(c.written.queue, base); err != nil {
			return fmt.Errorf("`%s`: %w", keyQueue, err)
		}
	}
	return r.fitQueue("")
}

func (r *resolved) hoistRetry(c *Config, block *confmap.Conf, place reflect.Value, at path) error {
	var inner *confmap.Conf
	base := configretry.NewDefaultBackOffConfig()
	if place.IsValid() {
		var err error
		if inner, err = takeBlock(block, keyRetry, at); err != nil {
			return err
		}
		if c.retryOutside() {
			inner = nil
		}
		theirs := theirRetries(place)
		// Off is silence, but a block that switches retries on means the
		// intervals that its exporter's authors chose, if they did.
		chosen := theirs.InitialInterval > 0 && (inner != nil || c.written.retry != nil)
		if theirs.Enabled || chosen {
			base = *theirs
			base.Enabled = true
		}
	}
	var err error
	key := keyRetry
	switch byCode := c.retryByCode(); {
	case inner != nil:
		key = at.key(keyRetry)
		r.effective.Retry, err = decodeRetry(inner, base)
	case !byCode:
		r.effective.Retry, err = decodeRetry(c.written.retry, base)
	}
	if err == nil {
		err = r.effective.Retry.Validate()
	}
	if err != nil {
		return fmt.Errorf("`%s`: %w", key, err)
	}
	return nil
}

// sayIfOff tells of a queue that is off because the wrapped block says so: who
// wraps an exporter expects batches.
func (r *resolved) sayIfOff(inner *confmap.Conf, at path) {
	if isOff(inner.ToStringMap()) {
		r.warn("`%s` is false: nothing is queued or batched, each request goes straight to the wrapped exporter; leave it out to batch",
			at.under(keyQueue).key("enabled"))
	}
}

// checkInner checks what the wrapped block says of the queue and of retries. It
// takes both for what exporterhelper has under these keys: the factory, which
// would tell, is not known before Start.
func (c *Config) checkInner() error {
	if c.Exporter.check() != nil {
		return nil //nolint:nilerr // who asks has that error already
	}
	at := c.Exporter.path()
	return errors.Join(
		c.checkInnerBlock(keyQueue, at, c.queueOutside, c.checkInnerQueue),
		c.checkInnerBlock(keyRetry, at, c.retryOutside, c.checkInnerRetry),
	)
}

// checkInnerBlock checks a block of ours inside the wrapped one. Beside one
// outside it may only say that it is off, so that there is one of it.
func (c *Config) checkInnerBlock(key string, at path, outside func() bool, decoded func(*confmap.Conf, path) error) error {
	said := c.Exporter.says(key)
	if said == nil {
		return nil
	}
	if outside() && !isOff(said) {
		return bothPlaces(key, at)
	}
	inner := confmap.NewFromStringMap(said)
	dropNulls(inner)
	if err := checkWritten(inner.ToStringMap(), key, at); err != nil {
		return err
	}
	return decoded(inner, at)
}

// checkInnerQueue checks the values of a queue block. What the exporter's authors
// chose for its gaps is not known yet, so a size that is not written is not
// compared.
func (c *Config) checkInnerQueue(inner *confmap.Conf, at path) error {
	q, err := decodeQueue(inner, newDefaultQueueConfig())
	if err != nil {
		return fmt.Errorf("`%s`: %w", at.key(keyQueue), err)
	}
	if sized := q.Get(); sized != nil && !inner.IsSet("queue_size") {
		sized.QueueSize = math.MaxInt64
	}
	there := *c
	there.SendingQueue = q
	return there.checkQueue(at)
}

func (c *Config) checkInnerRetry(inner *confmap.Conf, at path) error {
	r, err := decodeRetry(inner, configretry.NewDefaultBackOffConfig())
	if err == nil {
		err = r.Validate()
	}
	if err != nil {
		return fmt.Errorf("`%s`: %w", at.key(keyRetry), err)
	}
	return nil
}

func bothPlaces(key string, at path) error {
	return fmt.Errorf("`%s` and `%s` are both set, and there is only one of it, the batcher's: keep one of the two", key, at.key(key))
}

// takeBlock takes a block of ours out of the wrapped exporter's. It returns nil
// for one that is not there or says nothing.
func takeBlock(block *confmap.Conf, key string, at path) (*confmap.Conf, error) {
	if block.Get(key) == nil {
		block.Delete(key)
		return nil, nil
	}
	taken, err := block.Sub(key)
	if err != nil {
		return nil, fmt.Errorf("`%s` must be a block, not a %T", at.key(key), block.Get(key))
	}
	block.Delete(key)
	dropNulls(taken)
	return taken, checkWritten(taken.ToStringMap(), key, at)
}

// places are the fields of a wrapped configuration that hoisting is about; the
// zero Value where there is none.
type places struct{ queue, retry reflect.Value }

// findPlaces finds them by key and by type, since a key of that name may hold
// something else that we would not understand.
func findPlaces(v reflect.Value) places {
	var found places
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || !v.CanAddr() {
		return found
	}
	for f, field := range v.Fields() {
		key, squash := tagOf(f)
		switch {
		case squash:
			below := findPlaces(field)
			found.queue, found.retry = firstValid(found.queue, below.queue), firstValid(found.retry, below.retry)
		case !f.IsExported():
		case key == keyQueue && isQueue(field.Type()):
			found.queue = field
		case key == keyRetry && derefType(field.Type()) == reflect.TypeFor[configretry.BackOffConfig]():
			found.retry = field
		}
	}
	return found
}

func firstValid(a, b reflect.Value) reflect.Value {
	if a.IsValid() {
		return a
	}
	return b
}

// tagOf returns the key of a field, and whether its own keys stand in the block
// of its parent.
func tagOf(f reflect.StructField) (key string, squash bool) {
	key, options, _ := strings.Cut(f.Tag.Get(confmap.MapstructureTag), ",")
	return key, slices.Contains(strings.Split(options, ","), "squash")
}

func derefType(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

func isQueue(t reflect.Type) bool {
	t = derefType(t)
	return t == reflect.TypeFor[configoptional.Optional[theirQueue]]() || t == reflect.TypeFor[theirQueue]()
}

// queueDefaults returns what the authors of the wrapped exporter chose for its
// queue, and whether it is on.
func queueDefaults(place reflect.Value) (chosen theirQueue, on bool) {
	if place.Kind() == reflect.Pointer {
		if place.IsNil() {
			return theirQueue{}, false
		}
		place = place.Elem()
	}
	switch q := place.Addr().Interface().(type) {
	case *configoptional.Optional[theirQueue]:
		off := *q // a copy: reading the default of one that is off switches it on
		return *off.GetOrInsertDefault(), q.HasValue()
	case *theirQueue:
		return *q, true
	}
	return theirQueue{}, false
}

// theirRetries are the retries in a configuration of the wrapped exporter; never
// nil.
func theirRetries(place reflect.Value) *configretry.BackOffConfig {
	if place.Kind() != reflect.Pointer {
		place = place.Addr()
	}
	if r, ok := reflect.TypeAssert[*configretry.BackOffConfig](place); ok && r != nil {
		return r
	}
	return &configretry.BackOffConfig{}
}

// tuned is a queue of ours with the values that the authors of the wrapped
// exporter chose, where they chose one, and with batching on all the same.
func tuned(q QueueConfig, theirs theirQueue) QueueConfig {
	if theirs.QueueSize <= 0 {
		return q // none was ever meant to be
	}
	setIf(&q.Sizer, theirs.Sizer, theirs.Sizer.String() != "")
	q.QueueSize = theirs.QueueSize
	setIf(&q.NumConsumers, theirs.NumConsumers, theirs.NumConsumers > 0)
	// Whether callers wait for the result is only what somebody wrote.
	q.BlockOnOverflow, q.StorageID = theirs.BlockOnOverflow, theirs.StorageID
	if b := *theirs.Batch.GetOrInsertDefault(); b.FlushTimeout > 0 {
		q.Batch = configoptional.Some(tunedBatch(*q.Batch.Get(), b))
	}
	return q
}

func tunedBatch(b BatchConfig, theirs exporterhelper.BatchConfig) BatchConfig {
	b.FlushTimeout = theirs.FlushTimeout
	setIf(&b.Sizer, theirs.Sizer, theirs.Sizer.String() != "")
	b.MinSize, b.MaxSize, b.fallbackMinSize = theirs.MinSize, theirs.MaxSize, theirs.MinSize
	b.Partition.MetadataKeys = theirs.Partition.MetadataKeys
	setIf(&b.Partition.CacheSize, theirs.Partition.CacheSize, theirs.Partition.CacheSize > 0)
	setIf(&b.Partition.IdleTimeout, theirs.Partition.IdleTimeout, theirs.Partition.IdleTimeout > 0)
	return b
}

func setIf[T any](to *T, value T, when bool) {
	if when {
		*to = value
	}
}
