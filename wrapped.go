// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/service/hostcapabilities"

	"github.com/pullbatch/batcherexporter/internal/metadata"
)

// WrappedConfig is the block of the wrapped exporter. It is kept as it came
// until its factory is known: a detour over map[string]any would turn the
// environment value 0123 into the number 83. It is untyped to us and may hold
// secrets, so nothing prints or marshals its values.
type WrappedConfig struct {
	// ID is the one component ID in the block; zero if there is not exactly one.
	ID component.ID `mapstructure:"-"`

	conf *confmap.Conf // with the ID as its only key
	keys []string      // of conf; anything but one is an error
}

// Unmarshal keeps the block. What is wrong with it is for Validate to say.
func (w *WrappedConfig) Unmarshal(conf *confmap.Conf) error {
	w.conf = conf
	w.keys = slices.Sorted(maps.Keys(conf.ToStringMap()))
	w.ID = component.ID{}
	if len(w.keys) != 1 {
		return nil
	}
	if err := w.ID.UnmarshalText([]byte(w.keys[0])); err != nil {
		w.ID = component.ID{}
	}
	return nil
}

// Marshal shows the keys of the block. Its values show up only where somebody
// asks for secrets, as in `print-config --mode=unredacted`.
func (w WrappedConfig) Marshal(conf *confmap.Conf) error {
	if w.conf == nil {
		return nil
	}
	masked, _ := mask(w.conf.ToStringMap()).(map[string]any)
	return conf.Merge(confmap.NewFromStringMap(masked))
}

// mask replaces every value that is neither a block nor a list.
func mask(value any) any {
	switch v := value.(type) {
	case nil:
		return nil
	case map[string]any:
		masked := make(map[string]any, len(v))
		for key, inner := range v {
			masked[key] = mask(inner)
		}
		return masked
	case []any:
		masked := make([]any, len(v))
		for i, inner := range v {
			masked[i] = mask(inner)
		}
		return masked
	}
	return secret(fmt.Sprint(value))
}

// secret is a text that marshals as redacted, but where confmap is told to show
// secrets: then it passes over the MarshalText of texts.
type secret string

const redacted = "[REDACTED]"

// MarshalText implements encoding.TextMarshaler.
func (secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// String hides the text from fmt.
func (secret) String() string { return redacted }

// GoString hides the text from %#v.
func (secret) GoString() string { return redacted }

// String names the wrapped exporter only.
func (w WrappedConfig) String() string { return w.ID.String() + " " + redacted }

// GoString is String, for %#v.
func (w WrappedConfig) GoString() string { return w.String() }

func (w *WrappedConfig) check() error {
	switch len(w.keys) {
	case 0:
		return fmt.Errorf("`%s` is empty: a %s wraps exactly one exporter, such as `otlp_grpc:` with its configuration below that", keyExporter, metadata.Type)
	case 1:
	default:
		return fmt.Errorf("`%s` holds %d exporters (%s): a %s wraps exactly one, give each a %[4]s of its own",
			keyExporter, len(w.keys), strings.Join(w.keys, ", "), metadata.Type)
	}
	var id component.ID
	if err := id.UnmarshalText([]byte(w.keys[0])); err != nil {
		return fmt.Errorf("`%s` must hold one component ID: %w", keyExporter, err)
	}
	if id.Type() == metadata.Type {
		return fmt.Errorf("`%s` holds %s: a %s cannot wrap another one", keyExporter, id, metadata.Type)
	}
	switch v := w.conf.Get(w.keys[0]).(type) {
	case nil, map[string]any:
		return nil
	default:
		return fmt.Errorf("`%s` must be the block of the exporter, or empty for its defaults, not a %T", w.path().block(), v)
	}
}

// path is where the keys of the wrapped exporter's block stand.
func (w *WrappedConfig) path() path { return path("").under(keyExporter).under(w.ID.String()) }

// block returns the wrapped exporter's own block, for the caller to change.
func (w *WrappedConfig) block() (*confmap.Conf, error) { return w.conf.Sub(w.keys[0]) }

// says returns what the block says under a key of ours; nil for nothing.
func (w *WrappedConfig) says(key string) map[string]any {
	if len(w.keys) != 1 {
		return nil
	}
	block, err := w.block()
	if err != nil {
		return nil
	}
	said, _ := block.Get(key).(map[string]any)
	return said
}

// wrapped is what it takes to create the wrapped exporter.
type wrapped struct {
	factory exporter.Factory
	id      component.ID // as in the block
	config  component.Config
}

// resolved is a configuration whose wrapped exporter is known.
type resolved struct {
	wrapped *wrapped
	// effective is ours after hoisting.
	effective Config
	// warnings are for the log at Start.
	warnings []string
}

func (r *resolved) warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// resolve decodes the wrapped block and settles what is ours. It changes
// nothing, and each call decodes anew: the signals of one instance share one
// call.
func (c *Config) resolve(lookup lookupFunc) (*resolved, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	id := c.Exporter.ID
	factory, err := lookup(id.Type())
	if err != nil {
		return nil, err
	}
	block, err := c.Exporter.block()
	if err != nil {
		return nil, err
	}
	r := &resolved{wrapped: &wrapped{factory: factory, id: id, config: factory.CreateDefaultConfig()}, effective: *c}
	at := c.Exporter.path()
	if err := r.hoist(c, block, at); err != nil {
		return nil, err
	}
	if err := r.decode(block, at); err != nil {
		return nil, err
	}
	return r, nil
}

// decode decodes the wrapped block, without what was hoisted out of it, and
// switches off retries and queues in the result, where a wrapped Unmarshal cannot
// bring them back.
func (r *resolved) decode(block *confmap.Conf, at path) error {
	kept, err := silenceBuiltIn(r.wrapped.id.Type(), block)
	if err == nil {
		err = block.Unmarshal(r.wrapped.config)
	}
	if err != nil {
		return fmt.Errorf("`%s`: %w", at.block(), err)
	}
	if retry := findPlaces(reflect.ValueOf(r.wrapped.config)).retry; retry.IsValid() {
		theirRetries(retry).Enabled = false
	}
	slots := newDefaultQueueConfig().NumConsumers
	if q := r.effective.SendingQueue.Get(); q != nil {
		slots = q.NumConsumers
	}
	found := silence(r.wrapped.config, block.ToStringMap(), slots)
	r.warnOfRetries(found.retries, at)
	if err := r.reportKept(append(kept, found.queues...), at); err != nil {
		return err
	}
	return r.wrapped.validate()
}

// validate checks the wrapped exporter's configuration as it is created with:
// after its queue and its retries were switched off. The two maps give the error
// of a nested key its whole path.
func (w *wrapped) validate() error {
	return confmap.Validate(map[string]map[string]component.Config{keyExporter: {w.id.String(): w.config}})
}

// usualMaxBytes is `max_bytes` by the type of the wrapped exporter, where nobody
// wrote it: what the receivers of its protocol take by default (4 MiB of gRPC, the
// 1 MB of a Kafka broker), less some room, so that merged batches are not refused.
var usualMaxBytes = map[string]int64{
	"otlp_grpc": 4_000_000,
	"otlp":      4_000_000, // the old name of the same
	"kafka":     900_000,
}

// boundFor sets the `max_bytes` that nobody wrote. A size in bytes above that is
// the word of somebody who knows the receiver.
func (b *BatchConfig) boundFor(typ component.Type) {
	usual, known := usualMaxBytes[typ.String()]
	inBytes := b.Sizer == exporterhelper.RequestSizerTypeBytes
	if !known || b.maxBytesWritten || b.MaxBytes != 0 || inBytes && max(b.MinSize, b.MaxSize) > usual {
		return
	}
	b.MaxBytes = usual
}

// fitQueue settles what of the queue nobody wrote, and checks the whole.
func (r *resolved) fitQueue(at path) error {
	q := r.effective.SendingQueue.Get()
	if q == nil {
		return nil
	}
	if b := q.Batch.Get(); b != nil {
		inherited := b.Sizer == exporterhelper.RequestSizerTypeBytes && b.MinSize == newDefaultBatchConfig().MinSize
		if inherited && !b.minSizeIsWritten() {
			key := at.under(keyQueue).under("batch")
			r.warn("`%s` is bytes and `%s` is not set: its default means %d bytes then, which is a batch of few items; set it",
				key.key("sizer"), key.key("min_size"), b.MinSize)
		}
		b.boundFor(r.wrapped.id.Type())
		b.lowerMinSize(q)
	}
	return r.effective.checkQueue(at)
}

// lookupFunc finds the exporter factory of a type.
type lookupFunc func(component.Type) (exporter.Factory, error)

// lookupFrom looks among the given factories first, and then asks the host.
func lookupFrom(host component.Host, given map[component.Type]exporter.Factory) lookupFunc {
	return func(typ component.Type) (exporter.Factory, error) {
		if f := givenFactory(given, typ); f != nil {
			return f, nil
		}
		server, ok := host.(hostcapabilities.ComponentFactory)
		if !ok {
			return nil, fmt.Errorf("`%s` is of type %s, and the host serves no factories (hostcapabilities.ComponentFactory): take a newer collector, or pass the factory to NewFactory",
				keyExporter, typ)
		}
		f, ok := server.GetFactory(component.KindExporter, typ).(exporter.Factory)
		if !ok {
			return nil, fmt.Errorf("`%s` is of type %s, and this collector has no exporter of that type: correct the type, or build it in",
				keyExporter, typ)
		}
		return f, nil
	}
}

// givenFactory looks a factory up by its type or by the old name of its type.
func givenFactory(given map[component.Type]exporter.Factory, typ component.Type) exporter.Factory {
	if f, ok := given[typ]; ok {
		return f
	}
	for _, f := range given {
		if renamed, ok := f.(interface{ DeprecatedAlias() component.Type }); ok && renamed.DeprecatedAlias() == typ {
			return f
		}
	}
	return nil
}
