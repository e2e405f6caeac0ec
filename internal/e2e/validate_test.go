// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pullbatch/batcherexporter/internal/e2e/process"
)

// validate checks a collector's configuration whose batcher has these keys, as a
// user does. It returns the exit code and what was printed.
func validate(t *testing.T, batcher string) (int, string) {
	t.Helper()
	config := `
receivers:
  otlp:
    protocols:
      grpc:
exporters:
  batcher:
` + indent(batcher, "    ") + `
service:
  pipelines:
    logs:
      receivers: [otlp]
      exporters: [batcher]
`
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	return runValidate(t, path)
}

func runValidate(t *testing.T, configs ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	args := []string{"validate"}
	for _, config := range configs {
		args = append(args, "--config="+config)
	}
	output, err := exec.CommandContext(ctx, collectorBinary, args...).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), string(output)
	}
	require.NoError(t, err)
	return 0, string(output)
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+by)
}

func TestValidateAccepts(t *testing.T) {
	accepts := func(batcher string) {
		t.Helper()
		code, output := validate(t, batcher)
		assert.Zero(t, code, "%s\n%s", batcher, output)
	}
	accepts(`exporter: {nop: {}}`)
	accepts(`exporter: {otlp_grpc/backend: {endpoint: "backend:4317"}}`)
	accepts(`
exporter: {nop: {}}
sending_queue: {sizer: items, queue_size: 100000, num_consumers: 20, block_on_overflow: true, wait_for_result: true}
retry_on_failure: {max_elapsed_time: 0s}
timeout: 3s
drain_timeout: 1m`)
	accepts(`
exporter: {nop: {}}
sending_queue:
  batch: {sizer: bytes, min_size: 100000, max_size: 4000000, flush_timeout: 1s, oversize: drop, merge_resources: false}`)
	accepts(`
exporter: {nop: {}}
sending_queue:
  batch: {max_bytes: 4000000}`)
	// As upstream, 0 and 0 only split.
	accepts(`
exporter: {nop: {}}
sending_queue:
  batch: {min_size: 0, max_size: 100, flush_timeout: 0}`)
	accepts(`
exporter: {nop: {}}
sending_queue: {enabled: false}
retry_on_failure: {enabled: false}`)
	// Upstream's defaults with a smaller queue load, so they load here.
	accepts(`
exporter: {nop: {}}
sending_queue: {sizer: items, queue_size: 10}`)
}

func TestValidateRefuses(t *testing.T) {
	refuses := func(batcher string, named ...string) {
		t.Helper()
		code, output := validate(t, batcher)
		assert.Equal(t, 1, code, batcher)
		for _, text := range named {
			assert.Contains(t, output, text, batcher)
		}
	}
	refuses(`drain_timeout: 1s`, "`exporter`")
	refuses(`exporter: {}`, "`exporter`")
	refuses(`exporter: {nop: {}, debug: {}}`, "`exporter`", "debug", "nop")
	refuses(`exporter: {batcher: {exporter: {nop: {}}}}`, "`exporter", "batcher")
	refuses(`
exporter: {nop: {}}
sending_queues: {}`, "sending_queues")
	refuses(`
exporter: {nop: {}}
sending_queue:
  batch: {flush_timeout: 200}`, "flush_timeout", "200")
	refuses(`
exporter: {nop: {}}
drain_timeout: 20`, "drain_timeout", "20")
	refuses(`
exporter: {nop: {}}
sending_queue:
  batch: {min_size: 200, max_size: 100}`, "min_size", "200", "max_size", "100")
	refuses(`
exporter: {nop: {}}
sending_queue:
  sizer: items
  queue_size: 100
  batch: {min_size: 200}`, "min_size", "200", "queue_size", "100")
	refuses(`
exporter: {nop: {}}
sending_queue: {queue_size: 0}`, "queue_size", "0")
	refuses(`
exporter: {nop: {}}
sending_queue: {num_consumers: -1}`, "num_consumers", "-1")
	refuses(`
exporter: {nop: {}}
sending_queue:
  batch: {max_bytes: -1}`, "max_bytes", "-1")
	refuses(`
exporter: {nop: {}}
sending_queue:
  batch: {oversize: keep}`, "oversize", "keep")
	refuses(`
exporter: {nop: {}}
sending_queue: {storage: file_storage}`, "storage", "not yet supported")
	refuses(`
exporter: {nop: {}}
sending_queue:
  batch:
    partition: {metadata_keys: [x-tenant]}`, "partition", "not yet supported")
}

// TestStartRefuses has what only a started collector knows: what the wrapped exporter
// makes of its block.
func TestStartRefuses(t *testing.T) {
	refuses := func(wrapped string, named ...string) {
		t.Helper()
		r := newRig(t)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := process.Start(ctx, r.collector("batching", "testdata/batching.yaml",
			"yaml:exporters::batcher::exporter: "+wrapped))
		require.ErrorContains(t, err, "exit status 1", wrapped)
		for _, text := range named {
			assert.ErrorContains(t, err, text, wrapped)
		}
	}
	refuses(`{kafka: {}}`, "`exporter` is of type kafka")
	refuses(`{otlp_grpc: {endpoints: "backend:4317"}}`, "exporter::otlp_grpc", "endpoints")
	refuses(`{otlp_grpc: {endpoint: ""}}`, "exporter::otlp_grpc", "endpoint")
	refuses(`{otlp_grpc: {endpoint: "backend:4317", sending_queue: {queue_size: 5}}}`,
		"`exporter::otlp_grpc::sending_queue`", "`sending_queue`")
	refuses(`{otlp_grpc: {endpoint: "backend:4317", retry_on_failure: {max_interval: 5s}}}`,
		"`exporter::otlp_grpc::retry_on_failure`", "`retry_on_failure`")
}

// TestExampleConfigurations checks the files that users are told to start with,
// with the defaults that they have for everything.
func TestExampleConfigurations(t *testing.T) {
	for _, name := range []string{"batching.yaml", "backend.yaml"} {
		code, output := runValidate(t, filepath.Join(configDir, name))
		assert.Zero(t, code, "%s\n%s", name, output)
	}
}
