# Copyright The Batcher Exporter Authors
# SPDX-License-Identifier: Apache-2.0

# Measuring against the peers. Included by the Makefile.

BENCH_FLAGS ?= -short

TESTBED_BUILD := bench/testbed/build
TESTBED := $(TESTBED_BUILD)/otelcol-testbed

.PHONY: bench testbed clean-testbed

bench: testbed ## Measure against the peers, into bench/report (BENCH_FLAGS= for the full run).
	go -C bench run ./cmd/bench -out report -collector $(CURDIR)/$(TESTBED) $(BENCH_FLAGS)

$(TESTBED_BUILD)/go.sum: bench/testbed/manifest.yaml go.mod go.sum $(TOOLS_BIN)/builder
	@echo 'resolve the modules of bench/testbed/manifest.yaml'
	@mkdir -p $(@D)
	@cd bench/testbed && $(TOOLS_BIN)/builder --config=manifest.yaml --skip-compilation >build/builder.log 2>&1 || { cat build/builder.log; exit 1; }
	@touch $@

# Always: go knows whether the batcher has changed since.
testbed: $(TESTBED_BUILD)/go.sum ## Build the collector that bench loads.
	@echo 'build $(TESTBED) (the first time takes some minutes)'
	@CGO_ENABLED=0 go -C $(TESTBED_BUILD) build -trimpath -ldflags='-s -w' -o $(notdir $(TESTBED)) .

clean: clean-testbed

clean-testbed:
	rm -rf $(TESTBED_BUILD)
