// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"

	"github.com/pullbatch/batcherexporter"
)

var (
	allSubjects = []Subject{None, NoneQueue, Processor, ProcessorQueue, Helper, Batcher, BatcherMerging}
	allChains   = []Chain{NoProcessors, Transform, Heavy}
)

func config(t *testing.T, c Cell) *confmap.Conf {
	t.Helper()
	retrieved, err := confmap.NewRetrievedFromYAML([]byte(c.Config("127.0.0.1:4317")))
	require.NoError(t, err)
	conf, err := retrieved.AsConf()
	require.NoError(t, err)
	return conf
}

// stringsAt are a list of the configuration.
func stringsAt(conf *confmap.Conf, key string) []string {
	all := []string{}
	list, _ := conf.Get(key).([]any)
	for _, v := range list {
		all = append(all, v.(string))
	}
	return all
}

// TestConfigOfEachCell checks that pipelines name only what the configuration has.
func TestConfigOfEachCell(t *testing.T) {
	const pipeline = "service::pipelines::logs::"
	for _, subject := range allSubjects {
		for _, chain := range allChains {
			t.Run(subject.Name+"/"+chain.Name, func(t *testing.T) {
				conf := config(t, Cell{Subject: subject, Chain: chain})
				for _, kind := range []string{"receivers", "processors", "exporters"} {
					for _, id := range stringsAt(conf, pipeline+kind) {
						assert.True(t, conf.IsSet(kind+"::"+id), id)
					}
				}
				assert.Equal(t, []string{"otlp"}, stringsAt(conf, pipeline+"receivers"))
				assert.Len(t, stringsAt(conf, pipeline+"exporters"), 1)
				want := len(chain.first) + len(chain.rest)
				if subject.processor {
					want++
				}
				assert.Len(t, stringsAt(conf, pipeline+"processors"), want)
			})
		}
	}
}

func TestConfigBatchesBetweenFilterAndTransform(t *testing.T) {
	conf := config(t, Cell{Subject: Processor, Chain: Transform})
	assert.Equal(t, []string{"filter", "batch", "transform"}, stringsAt(conf, "service::pipelines::logs::processors"))
	assert.Equal(t, false, conf.Get("exporters::otlp_grpc::sending_queue::enabled"))
}

func TestConfigOfTheHelper(t *testing.T) {
	conf := config(t, Cell{Subject: Helper, Chain: NoProcessors, Consumers: 3})
	queue, err := conf.Sub("exporters::otlp_grpc::sending_queue")
	require.NoError(t, err)
	assert.Equal(t, map[string]any{
		"sizer": "items", "queue_size": queueItems, "num_consumers": 3,
		"batch": map[string]any{"sizer": "items", "min_size": BatchItems, "max_size": BatchItems, "flush_timeout": "1s"},
	}, queue.ToStringMap())
}

// TestConfigOfTheBatcher checks that the batcher takes its block.
func TestConfigOfTheBatcher(t *testing.T) {
	for _, subject := range []Subject{Batcher, BatcherMerging} {
		conf := config(t, Cell{Subject: subject, Chain: NoProcessors})
		block, err := conf.Sub("exporters::batcher")
		require.NoError(t, err)
		cfg := batcherexporter.NewFactory().CreateDefaultConfig().(*batcherexporter.Config)
		require.NoError(t, block.Unmarshal(cfg))
		require.NoError(t, cfg.Validate())
		assert.Equal(t, subject.merge, block.Get("sending_queue::batch::merge_resources"))
		assert.Equal(t, usualConsumers, block.Get("sending_queue::num_consumers"))
	}
}
