// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
)

// A queue inside the wrapped exporter would turn "accepted" into "lost": it takes
// a batch, we report it as sent, and what becomes of it is nobody's to know. So
// every queue is switched off, unless the block says that it is to be there. So
// are retries: each attempt of ours would last as long as all of theirs, and hold
// its slot meanwhile.

// builtInQueue is a queue that an exporter makes in code from keys of its own,
// which no type gives away.
type builtInQueue struct {
	key string
	// off is what to write below the key when the block does not say
	// `enabled: true`; nil for a queue that is off unless its block is there.
	off map[string]any
}

var builtInQueues = map[string][]builtInQueue{
	"prometheusremotewrite": {
		{key: "remote_write_queue", off: map[string]any{"enabled": false}},
		{key: "wal"},
	},
}

// silenceBuiltIn switches off, in the block, the queues that no type gives away.
// It returns the keys of those that stay on.
func silenceBuiltIn(typ component.Type, block *confmap.Conf) (kept []string, err error) {
	for _, q := range builtInQueues[typ.String()] {
		enabled, said := block.Get(q.key + "::enabled").(bool)
		there := q.off == nil && block.Get(q.key) != nil
		switch {
		case enabled, there && !said:
			kept = append(kept, q.key)
		case q.off != nil:
			off := confmap.NewFromStringMap(map[string]any{q.key: q.off})
			err = errors.Join(err, block.Merge(off))
		}
	}
	return kept, err
}

// reportKept warns of the queues that stay on because the block says so, and
// refuses them where we promise more than they keep.
func (r *resolved) reportKept(kept []string, at path) error {
	q := r.effective.SendingQueue.Get()
	var p problems
	for _, key := range kept {
		key = at.key(key)
		r.warn("`%s` is a queue inside the wrapped exporter: what it still holds counts as sent, and may be lost; leave it out, the batcher has a queue", key)
		p.when(q != nil && q.StorageID != nil, "`%s` is a queue inside the wrapped exporter, which loses what `%s::storage` is to keep: leave one of them out",
			key, keyQueue)
		p.when(q != nil && q.WaitForResult, "`%s` is a queue inside the wrapped exporter, which hides what `%s::wait_for_result` waits for: leave one of them out",
			key, keyQueue)
	}
	return p.err()
}

// kept are the keys of what stays on because the block says so.
type kept struct{ queues, retries []string }

// warnOfRetries warns of retries that stay on.
func (r *resolved) warnOfRetries(kept []string, at path) {
	for _, key := range kept {
		r.warn("`%s` are retries inside the wrapped exporter: each attempt lasts as long as all of them, and is one of `num_consumers` meanwhile; leave it out, the batcher retries",
			at.key(key))
	}
}

// silencer walks a wrapped configuration and switches off the queues and the
// retries that it finds by type. A configuration that points back into itself is not expected:
// confmap.Validate, which walks the same way, would not end either.
type silencer struct {
	consumers int // of a queue that cannot be off
	kept      kept
	changed   int
}

// place is a value of the configuration, with what the block says there.
type place struct {
	value   reflect.Value
	written any // nil: nothing
	key     string
}

// below is the place of a value under a key.
func (p place) below(value reflect.Value, key string) place {
	block, _ := p.written.(map[string]any)
	return place{value, block[key], strings.TrimPrefix(p.key+confmap.KeyDelimiter+key, confmap.KeyDelimiter)}
}

// silence switches off every queue and all retries in a decoded configuration. It
// returns what stays on because the block says so.
func silence(config component.Config, block map[string]any, consumers int) kept {
	s := silencer{consumers: consumers}
	var written any
	if block != nil {
		written = block
	}
	s.walk(place{value: reflect.ValueOf(config), written: written})
	return s.kept
}

func (s *silencer) walk(p place) {
	v := p.value
	if v.CanAddr() && v.CanInterface() && s.silence(p, v.Addr().Interface()) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			s.walk(place{v.Elem(), p.written, p.key})
		}
	case reflect.Interface:
		if !v.IsNil() {
			s.walkCopy(place{v.Elem(), p.written, p.key}, v.Set)
		}
	case reflect.Struct:
		s.walkStruct(p)
	case reflect.Slice, reflect.Array:
		s.walkList(p)
	case reflect.Map:
		s.walkMap(p)
	}
}

// silence switches off what it is given if that is a queue or retries.
func (s *silencer) silence(p place, pointer any) bool {
	switch q := pointer.(type) {
	case *configoptional.Optional[theirQueue]:
		if q.HasValue() && !s.keeps(p) {
			*q = configoptional.None[theirQueue]()
			s.changed++
		}
	case *theirQueue:
		if !s.keeps(p) {
			*q = transparentQueue(s.consumers)
			s.changed++
		}
	case *configretry.BackOffConfig:
		if q.Enabled && !s.keepsRetries(p) {
			q.Enabled = false
			s.changed++
		}
	default:
		return false
	}
	return true
}

func (s *silencer) keeps(p place) bool {
	if p.written == nil {
		return false
	}
	s.kept.queues = append(s.kept.queues, p.key)
	return true
}

// keepsRetries says whether the block asks for retries in so many words: one that
// only changes an interval says how they would be, as it does in an exporter of
// which they are ours.
func (s *silencer) keepsRetries(p place) bool {
	block, _ := p.written.(map[string]any)
	if enabled, _ := block["enabled"].(bool); !enabled {
		return false
	}
	s.kept.retries = append(s.kept.retries, p.key)
	return true
}

func (s *silencer) walkStruct(p place) {
	if strings.HasPrefix(p.value.Type().String(), "configoptional.Optional[") {
		s.walkOptional(p)
		return
	}
	for f, field := range p.value.Fields() {
		key, squash := tagOf(f)
		switch {
		case !isOpen(f), !mayHold(f.Type):
		case squash:
			s.walk(place{field, p.written, p.key})
		default:
			s.walk(p.below(field, key))
		}
	}
}

// isOpen says whether the fields below can be changed.
func isOpen(f reflect.StructField) bool {
	return f.IsExported() || f.Anonymous && f.Type.Kind() == reflect.Struct
}

// walkOptional looks into an Optional, whose fields are not ours to reach.
func (s *silencer) walkOptional(p place) {
	if !p.value.CanAddr() || !p.value.CanInterface() {
		return
	}
	get := p.value.Addr().MethodByName("Get")
	if !get.IsValid() {
		return
	}
	if held := get.Call(nil)[0]; !held.IsNil() {
		s.walk(place{held.Elem(), p.written, p.key})
	}
}

func (s *silencer) walkList(p place) {
	if !mayHold(p.value.Type().Elem()) {
		return
	}
	list, _ := p.written.([]any)
	for i := range p.value.Len() {
		at := p.below(p.value.Index(i), strconv.Itoa(i))
		if i < len(list) {
			at.written = list[i]
		}
		s.walk(at)
	}
}

func (s *silencer) walkMap(p place) {
	if !mayHold(p.value.Type().Elem()) || !p.value.CanInterface() {
		return
	}
	for _, key := range p.value.MapKeys() {
		at := p.below(p.value.MapIndex(key), fmt.Sprint(key.Interface()))
		s.walkCopy(at, func(v reflect.Value) { p.value.SetMapIndex(key, v) })
	}
}

// walkCopy walks a copy of a value that cannot be changed where it is, and puts
// it back if something in it was.
func (s *silencer) walkCopy(p place, putBack func(reflect.Value)) {
	before := s.changed
	twin := reflect.New(p.value.Type()).Elem()
	twin.Set(p.value)
	s.walk(place{twin, p.written, p.key})
	if s.changed != before {
		putBack(twin)
	}
}

// mayHold says whether a queue, or retries, can be somewhere in a value of the type.
func mayHold(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return t.Name() != "" || mayHold(t.Elem()) // a named type may be its own element
	default:
		return false
	}
}

// transparentQueue stands for none where the field has no way to say so: who
// calls waits for the result, nothing is refused, and there is a consumer for
// each of our slots.
func transparentQueue(consumers int) theirQueue {
	q := exporterhelper.NewDefaultQueueConfig()
	q.WaitForResult = true
	q.BlockOnOverflow = true
	q.QueueSize = math.MaxInt32
	q.NumConsumers = consumers
	q.Batch = configoptional.None[exporterhelper.BatchConfig]()
	return q
}
