# Copyright The Batcher Exporter Authors
# SPDX-License-Identifier: Apache-2.0

# Measuring against the peers. Included by the Makefile.

BENCH_FLAGS ?= -short

.PHONY: bench

bench: ## Measure against the peers, into bench/report (BENCH_FLAGS= for the full run).
	go -C bench run ./cmd/bench -out report $(BENCH_FLAGS)
