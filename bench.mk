# Copyright The Batcher Exporter Authors
# SPDX-License-Identifier: Apache-2.0

# Measuring against the peers. Included by the Makefile.

BENCH_FLAGS ?=

TESTBED_BUILD := bench/testbed/build
TESTBED := $(TESTBED_BUILD)/otelcol-testbed

BENCH_RUN = go -C bench run ./cmd/bench -collector $(CURDIR)/$(TESTBED)

.PHONY: bench bench-full testbed clean-testbed

bench: testbed ## Measure against the peers in short, into bench/report (BENCH_FLAGS='-only trickle').
	$(BENCH_RUN) -short -out report $(BENCH_FLAGS)

bench-full: testbed ## Measure in full, for more than an hour, into docs/performance.
	$(BENCH_RUN) -out $(CURDIR)/docs/performance $(BENCH_FLAGS)

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
