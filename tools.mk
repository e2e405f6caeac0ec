# Copyright The Batcher Exporter Authors
# SPDX-License-Identifier: Apache-2.0

# Generating, formatting and linting. Included by the Makefile.

# A tool is built into TOOLS_BIN when a target that needs it names
# $(TOOLS_BIN)/<tool>; its version is pinned in internal/tools/go.mod.
TOOLS_BIN := $(CURDIR)/internal/tools/bin
TOOLS := benchstat builder goimports golangci-lint mdatagen telemetrygen

$(addprefix $(TOOLS_BIN)/,$(TOOLS)): internal/tools/go.mod internal/tools/go.sum
	go -C internal/tools build -o $@ "$$(go -C internal/tools list -f '{{.ImportPath}}' tool | grep '/$(@F)$$')"

# Go modules below the root, which `./...` does not reach.
MODULES := $(patsubst ./%/go.mod,%,$(shell find . -mindepth 2 -name go.mod -not -path './internal/tools/*' -not -path './distro/*' -not -path './bench/testbed/*' -not -path '*/testdata/*' | sort))

.PHONY: generate check-generate fmt lint lint-sleep tools

tools: $(addprefix $(TOOLS_BIN)/,$(TOOLS)) ## Build all tools.

generate: ## Generate code and documentation from metadata.yaml.
	go generate ./...

check-generate: ## Fail if generating would change a file.
	internal/tools/generate.sh --check

fmt: $(TOOLS_BIN)/golangci-lint ## Format all Go files.
	$< fmt

lint: $(TOOLS_BIN)/golangci-lint lint-sleep ## Check the Go files of every module.
	@set -e; for module in . $(MODULES); do echo "lint $$module"; (cd $$module && $< run ./...); done

# A linter cannot tell a sleep of fake time from a real one.
lint-sleep:
	@slow=$$(grep -rl --include='*_test.go' --exclude-dir=e2e 'time\.Sleep' . | xargs -r grep -L '"testing/synctest"'); \
	if [ -n "$$slow" ]; then echo "tests that sleep without testing/synctest: $$slow" >&2; exit 1; fi
