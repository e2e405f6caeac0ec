# Copyright The Batcher Exporter Authors
# SPDX-License-Identifier: Apache-2.0

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

include tools.mk
include bench.mk

BUILD := distro/build
COLLECTOR := $(BUILD)/otelcol-batcher
COLLECTOR_RACE := $(BUILD)/otelcol-batcher-race
RUNNER := $(BUILD)/runner
TAGS := invariants

.PHONY: all distro run collector test repeat vet unit e2e smoke stress fuzz bench-go clean help

all: generate fmt lint test ## Generate, format, lint and test: what a change needs.

help: ## List the targets.
	@sed -n 's/^\([a-z][a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

## The distribution

# What the collector is compiled from, apart from the modules in go.sum.
COMPONENT_SOURCES := go.mod go.sum $(shell find . -name '*.go' -not -name '*_test.go' \
	-not -path './distro/*' -not -path './internal/e2e/*' -not -path './internal/tools/*' -not -path './bench/*')
RUNNER_SOURCES := $(shell find internal/e2e -name '*.go' -not -name '*_test.go') internal/e2e/go.mod internal/e2e/go.sum

distro: $(COLLECTOR) ## Build a collector that has the batcher in it.

# The builder only writes the sources: compiling them is go's, which knows what is
# up to date.
$(BUILD)/go.sum: distro/manifest.yaml go.mod go.sum $(TOOLS_BIN)/builder
	@echo 'resolve the modules of distro/manifest.yaml'
	@mkdir -p $(BUILD)
	@cd distro && $(TOOLS_BIN)/builder --config=manifest.yaml --skip-compilation >build/builder.log 2>&1 || { cat build/builder.log; exit 1; }
	@touch $@

$(COLLECTOR): $(BUILD)/go.sum $(COMPONENT_SOURCES)
	@echo 'build $@ (the first time takes some minutes)'
	@CGO_ENABLED=0 go -C $(BUILD) build -trimpath -ldflags='-s -w' -o $(@F) .

$(COLLECTOR_RACE): $(BUILD)/go.sum $(COMPONENT_SOURCES)
	@echo 'build $@ (the first time takes some minutes)'
	@CGO_ENABLED=1 go -C $(BUILD) build -race -tags $(TAGS) -o $(@F) .

$(RUNNER): $(RUNNER_SOURCES)
	@mkdir -p $(BUILD)
	@go -C internal/e2e build -o $(CURDIR)/$@ ./cmd/run

run: $(COLLECTOR) $(RUNNER) $(TOOLS_BIN)/telemetrygen ## Send real load through two collectors, and check that all of it arrives (RUN_FLAGS=-help).
	@exec $(RUNNER) $(RUN_FLAGS)

CONFIG ?= distro/config/batching.yaml
collector: $(COLLECTOR) ## Run the collector with your configuration until Ctrl-C (CONFIG=file).
	@exec $(COLLECTOR) --config='$(CONFIG)'

## Tests

# phase runs a target and says how long it took.
define phase
	@start=$$SECONDS; $(MAKE) $(1); echo "== $(1): $$((SECONDS - start)) s"

endef

test: ## Run every test that a change must pass.
	$(foreach target,check-generate vet unit distro e2e smoke,$(call phase,$(target)))

COUNT ?= 10
LOAD ?= 8
repeat: ## Run all of `make test` COUNT times, every second time beside LOAD busy processes.
	@MAKE='$(MAKE)' internal/tools/repeat.sh $(COUNT) $(LOAD)

vet:
	go vet -tags $(TAGS) ./...
	go -C internal/e2e vet ./...
	go -C bench vet ./...

# A bound for what hangs. The default of ten minutes for each package would be one for
# what is slow, on a busy machine.
TEST_TIMEOUT := 1h
TEST_FLAGS ?=

unit: ## Run the unit and property tests.
	go test -race -tags $(TAGS) -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) ./...
	go -C bench test -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) ./...

# Never from the cache: the collector is not among the files that go knows of. More
# tests at the same time than there are processors, because those that are parallel
# mostly wait.
E2E_FLAGS := -race -count=1 -parallel 8
e2e: $(COLLECTOR) ## Run the end-to-end tests.
	E2E_COLLECTOR=$(CURDIR)/$(COLLECTOR) go -C internal/e2e test $(E2E_FLAGS) -timeout $(TEST_TIMEOUT) ./...

smoke:
	@$(MAKE) run RUN_FLAGS='-duration 2s'

FUZZTIME ?= 20s
STRESS_FUZZTIME ?= 2m
STRESS_COUNT ?= 1000
STRESS_RACE_COUNT ?= 10
STRESS_CHECKS ?= 10000
STRESS_SCALE ?= 20

# What must hold whenever it happens: the tests of stopping and flushing.
STOP_TESTS := Shutdown|Stop|Flush|Drain
# A rapid flag is known only to tests that use rapid.
PROPERTY_PACKAGES = $(shell go list -tags $(TAGS) -f '{{range .TestImports}}{{if eq . "pgregory.net/rapid"}}{{$$.ImportPath}}{{end}}{{end}}' ./...)

stress: $(COLLECTOR_RACE) ## Run the tests at full size: hours, not minutes, on a small machine.
	go test -tags $(TAGS) -timeout 6h -run '$(STOP_TESTS)' -count $(STRESS_COUNT) ./...
	go test -race -tags $(TAGS) -timeout 6h -count $(STRESS_RACE_COUNT) ./...
	go test -tags $(TAGS) -timeout 6h -rapid.checks $(STRESS_CHECKS) $(PROPERTY_PACKAGES)
	$(MAKE) fuzz FUZZTIME=$(STRESS_FUZZTIME)
	E2E_COLLECTOR=$(CURDIR)/$(COLLECTOR_RACE) E2E_SCALE=$(STRESS_SCALE) go -C internal/e2e test $(E2E_FLAGS) -timeout 6h ./...

# Shrinking each input that finds something new takes a minute by default, and is most
# of what a short run does then.
FUZZ_FLAGS := -fuzzminimizetime 10x
fuzz: ## Fuzz every target for FUZZTIME.
	@for package in $$(go list ./...); do \
		for target in $$(go test -tags $(TAGS) -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "fuzz $$target in $$package for $(FUZZTIME)"; \
			go test -tags $(TAGS) -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $(FUZZ_FLAGS) $$package; \
		done; \
	done

BENCH ?= .
bench-go: ## Run the Go benchmarks (BENCH=pattern).
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...

clean: ## Remove what was built.
	rm -rf $(BUILD) $(TOOLS_BIN)
