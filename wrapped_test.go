// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/xexporter"
	"go.opentelemetry.io/collector/service/hostcapabilities"
)

// queuedConfig is the configuration of an exporter as exporterhelper suggests it.
type queuedConfig struct {
	Timeout  exporterhelper.TimeoutConfig        `mapstructure:",squash"`
	Endpoint string                              `mapstructure:"endpoint"`
	Code     string                              `mapstructure:"code"`
	TLS      tlsConfig                           `mapstructure:"tls"`
	Queue    configoptional.Optional[theirQueue] `mapstructure:"sending_queue"`
	Retry    configretry.BackOffConfig           `mapstructure:"retry_on_failure"`
}

type tlsConfig struct {
	CAFile string `mapstructure:"ca_file"`
}

func (c *queuedConfig) Validate() error {
	if c.Endpoint == "" {
		return errors.New("`endpoint` is missing")
	}
	return nil
}

func (c *tlsConfig) Validate() error {
	if c.CAFile == "gone" {
		return errors.New("`ca_file` is gone")
	}
	return nil
}

func newQueuedConfig() *queuedConfig {
	return &queuedConfig{
		Endpoint: "default:1",
		Queue:    configoptional.Some(exporterhelper.NewDefaultQueueConfig()),
		Retry:    configretry.NewDefaultBackOffConfig(),
	}
}

// plainConfig is the configuration of an exporter that has no queue.
type plainConfig struct {
	Path string `mapstructure:"path"`
}

func factoryOf(typ string, config func() component.Config) exporter.Factory {
	return exporter.NewFactory(component.MustNewType(typ), config)
}

func queuedFactory(change ...func(*queuedConfig)) exporter.Factory {
	return factoryOf("queued", func() component.Config {
		c := newQueuedConfig()
		for _, f := range change {
			f(c)
		}
		return c
	})
}

func plainFactory() exporter.Factory {
	return factoryOf("plain", func() component.Config { return &plainConfig{Path: "default"} })
}

// factoryHost is a host that serves exporter factories.
type factoryHost struct {
	component.Host
	factories map[component.Type]exporter.Factory
}

var _ hostcapabilities.ComponentFactory = (*factoryHost)(nil)

func hostOf(factories ...exporter.Factory) *factoryHost {
	h := &factoryHost{Host: componenttest.NewNopHost(), factories: map[component.Type]exporter.Factory{}}
	for _, f := range factories {
		h.factories[f.Type()] = f
	}
	return h
}

func (h *factoryHost) GetFactory(kind component.Kind, typ component.Type) component.Factory {
	if f, ok := h.factories[typ]; ok && kind == component.KindExporter {
		return f
	}
	return nil
}

// resolveWith loads a block and resolves it in a host with the factories.
func resolveWith(t *testing.T, yaml string, factories ...exporter.Factory) (*resolved, error) {
	t.Helper()
	c, err := decodeConfig(confOf(t, yaml))
	if err != nil {
		return nil, err
	}
	return c.resolve(lookupFrom(hostOf(factories...), nil))
}

func mustResolve(t *testing.T, yaml string, factories ...exporter.Factory) *resolved {
	t.Helper()
	r, err := resolveWith(t, yaml, factories...)
	require.NoError(t, err, yaml)
	return r
}

// wantError checks that an error has all the words.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		assert.ErrorContains(t, err, word)
	}
}

func TestWrapped_DecodesOverDefaults(t *testing.T) {
	f := func(yaml, endpoint, caFile string) {
		t.Helper()
		r := mustResolve(t, yaml, queuedFactory())
		got := r.wrapped.config.(*queuedConfig)
		assert.Equal(t, endpoint, got.Endpoint, yaml)
		assert.Equal(t, caFile, got.TLS.CAFile, yaml)
		assert.Empty(t, r.warnings, yaml)
	}
	f("exporter: {queued: }", "default:1", "")
	f("exporter: {queued: {}}", "default:1", "")
	f("exporter: {queued: {endpoint: 'x:1', tls: {ca_file: ca.pem}}}", "x:1", "ca.pem")
	f("exporter: {queued/name: {endpoint: 'x:1'}}", "x:1", "")
	f("exporter: {' queued / name ': {endpoint: 'x:1'}}", "x:1", "")

	r := mustResolve(t, "exporter: {plain: {path: x}}", plainFactory())
	assert.Equal(t, &plainConfig{Path: "x"}, r.wrapped.config)
}

func TestWrapped_Errors(t *testing.T) {
	f := func(yaml string, words ...string) {
		t.Helper()
		_, err := resolveWith(t, yaml, queuedFactory(), plainFactory())
		require.Error(t, err, yaml)
		wantError(t, err, words...)
	}
	f("exporter: {nosuchthing: }", "`exporter`", "nosuchthing")
	f("exporter: {queued: {endpoit: x}}", "`exporter::queued`", "endpoit")
	f("exporter: {queued/a: {tls: {ca: x}}}", "`exporter::queued/a`", "tls", "ca")
	f("exporter: {queued: {endpoint: [x]}}", "`exporter::queued`", "endpoint")
	f("exporter: {queued: {endpoint: ''}}", "exporter::queued: `endpoint` is missing")
	f("exporter: {queued/a: {tls: {ca_file: gone}}}", "exporter::queued/a::tls: `ca_file` is gone")
	f("exporter: {plain: {sending_queue: {queue_size: 5}}}", "`exporter::plain`", "invalid keys", "sending_queue")
	f("exporter: {plain: {retry_on_failure: {enabled: true}}}", "`exporter::plain`", "invalid keys", "retry_on_failure")
}

// The error of an inner value does not show it.
func TestWrapped_ErrorsShowNoValue(t *testing.T) {
	for _, yaml := range []string{
		"exporter: {queued: {endpoint: [s3cret]}}", "exporter: {queued: {tls: s3cret}}",
		"exporter: {queued: {sending_queue: s3cret}}", "exporter: {queued: {s3: s3cret}}",
	} {
		_, err := resolveWith(t, yaml, queuedFactory())
		require.Error(t, err, yaml)
		assert.NotContains(t, err.Error(), "s3cret", yaml)
	}
}

func TestWrapped_Lookup(t *testing.T) {
	queued, plain := component.MustNewType("queued"), component.MustNewType("plain")
	own := queuedFactory()
	given := map[component.Type]exporter.Factory{queued: own}

	got, err := lookupFrom(hostOf(queuedFactory(), plainFactory()), given)(queued)
	require.NoError(t, err)
	assert.Same(t, own, got, "given ones come first")

	got, err = lookupFrom(hostOf(plainFactory()), given)(plain)
	require.NoError(t, err)
	assert.Equal(t, plain, got.Type(), "then those of the host")

	got, err = lookupFrom(nil, given)(queued)
	require.NoError(t, err)
	assert.Same(t, own, got, "no host is needed for a given one")

	_, err = lookupFrom(hostOf(), given)(plain)
	wantError(t, err, "`exporter`", "plain", "this collector has no exporter of that type")
	for _, host := range []component.Host{nil, componenttest.NewNopHost()} {
		_, err = lookupFrom(host, given)(plain)
		wantError(t, err, "`exporter`", "plain", "serves no factories", "NewFactory")
	}
}

// A type that was renamed is found by its old name too, as in the collector.
func TestWrapped_LookupByOldName(t *testing.T) {
	old := component.MustNewType("old_name")
	renamed := xexporter.NewFactory(component.MustNewType("new_name"), func() component.Config { return &plainConfig{} },
		xexporter.WithDeprecatedTypeAlias(old))
	got, err := lookupFrom(nil, map[component.Type]exporter.Factory{renamed.Type(): renamed})(old)
	require.NoError(t, err)
	assert.Same(t, renamed, got)
}

// A factory whose default configuration cannot be decoded into is an error.
func TestWrapped_OddConfigurations(t *testing.T) {
	for _, config := range []component.Config{nil, plainConfig{}, 5} {
		_, err := resolveWith(t, "exporter: {odd: {path: x}}", factoryOf("odd", func() component.Config { return config }))
		wantError(t, err, "`exporter::odd`")
	}
	r := mustResolve(t, "exporter: {empty: }", factoryOf("empty", func() component.Config { return &struct{}{} }))
	assert.Equal(t, &struct{}{}, r.wrapped.config)
}

// With a factory given by code, Validate sees the wrapped block.
func TestWrapped_ValidateWithGivenFactories(t *testing.T) {
	validate := func(yaml string) error {
		c := createDefaultConfig().(*Config)
		c.setFactories(map[component.Type]exporter.Factory{component.MustNewType("queued"): queuedFactory()})
		require.NoError(t, confOf(t, yaml).Unmarshal(c))
		return confmap.Validate(c)
	}
	require.NoError(t, validate("exporter: {queued: {endpoint: x}}"))
	require.NoError(t, validate("exporter: {other: {endpoit: x}}"), "the host may have it")
	wantError(t, validate("exporter: {queued: {endpoit: x}}"), "`exporter::queued`", "endpoit")
	wantError(t, validate("exporter: {queued: {endpoint: ''}}"), "exporter::queued: `endpoint` is missing")
	wantError(t, validate("exporter: {queued: {sending_queue: {queue_size: 0}}}"), "`exporter::queued::sending_queue::queue_size` is 0")
	wantError(t, validate("exporter: {}"), "`exporter`")
}

// resolve changes nothing: the kept block can be resolved again.
func TestWrapped_ResolveIsPure(t *testing.T) {
	c := loadConfig(t, "exporter: {queued: {endpoint: x, sending_queue: {queue_size: 7, batch: {max_size: 5}}, retry_on_failure: {enabled: false}}}")
	before, block := *c, c.Exporter.conf.ToStringMap()
	first, err := c.resolve(lookupFrom(hostOf(queuedFactory()), nil))
	require.NoError(t, err)
	second, err := c.resolve(lookupFrom(hostOf(queuedFactory()), nil))
	require.NoError(t, err)
	assert.Equal(t, before, *c)
	assert.Equal(t, block, c.Exporter.conf.ToStringMap())
	assert.Equal(t, first.effective, second.effective)
	assert.Equal(t, first.wrapped.config, second.wrapped.config)
	assert.NotSame(t, first.wrapped.config, second.wrapped.config)
}

// texts is a configuration provider that serves fixed texts.
type texts struct {
	scheme string
	texts  map[string]string
}

func (p texts) Retrieve(_ context.Context, uri string, _ confmap.WatcherFunc) (*confmap.Retrieved, error) {
	return confmap.NewRetrievedFromYAML([]byte(p.texts[strings.TrimPrefix(uri, p.scheme+":")]))
}

func (p texts) Scheme() string { return p.scheme }

func (p texts) Shutdown(context.Context) error { return nil }

func (p texts) factory() confmap.ProviderFactory {
	return confmap.NewProviderFactory(func(confmap.ProviderSettings) confmap.Provider { return p })
}

// Values from the environment keep their text, so that 0123 is not 83, wherever
// they stand in the block.
func TestWrapped_EnvironmentValues(t *testing.T) {
	environment := texts{"env", map[string]string{
		"CODE": "0123", "SIZE": "77", "TRUE": "true", "TIME": "200",
		"BLOCK": "{endpoint: x, code: '0123'}",
		"QUEUE": "{queue_size: 77, batch: {max_size: 5}}",
	}}
	load := func(yaml string) (*Config, error) {
		resolver, err := confmap.NewResolver(confmap.ResolverSettings{
			URIs:              []string{"doc:main"},
			ProviderFactories: []confmap.ProviderFactory{environment.factory(), texts{"doc", map[string]string{"main": yaml}}.factory()},
		})
		require.NoError(t, err)
		conf, err := resolver.Resolve(t.Context())
		require.NoError(t, err)
		block, err := conf.Sub("batcher")
		require.NoError(t, err)
		return decodeConfig(block)
	}
	f := func(yaml, code string, queueSize int64) {
		t.Helper()
		c, err := load("batcher: " + yaml)
		require.NoError(t, err)
		r, err := c.resolve(lookupFrom(hostOf(queuedFactory()), nil))
		require.NoError(t, err, yaml)
		assert.Equal(t, code, r.wrapped.config.(*queuedConfig).Code, yaml)
		assert.Equal(t, queueSize, r.effective.SendingQueue.Get().QueueSize, yaml)
	}
	f("{exporter: {queued: {code: '${env:CODE}'}}}", "0123", 1000)
	f("{exporter: {queued: {code: 'a${env:CODE}b'}}}", "a0123b", 1000)
	f("{exporter: {queued: {code: '${env:CODE}', sending_queue: {queue_size: '${env:SIZE}'}}}}", "0123", 77)
	f("{exporter: {queued: {code: '${env:CODE}', sending_queue: '${env:QUEUE}'}}}", "0123", 77)
	f("{exporter: {queued: '${env:BLOCK}'}}", "0123", 1000)
	f("{exporter: {queued: {code: '${env:TRUE}'}}, sending_queue: {queue_size: '${env:SIZE}', batch: {merge_resources: '${env:TRUE}'}}}", "true", 77)
	f("{exporter: {queued: {code: '${env:SIZE}'}}, sending_queue: '${env:QUEUE}'}", "77", 77)

	_, err := load("batcher: {exporter: {queued: }, sending_queue: {batch: {flush_timeout: '${env:TIME}'}}}")
	wantError(t, err, "`sending_queue::batch::flush_timeout` is 200 without a unit")
}
