#!/bin/sh
# Copyright The Batcher Exporter Authors
# SPDX-License-Identifier: Apache-2.0

# Generates documentation.md, internal/metadata, internal/metadatatest and the
# generated tests from metadata.yaml. With --check it changes nothing, shows what
# generating would change, and fails if that is anything.
#
# mdatagen names the package of the tests after the folder of metadata.yaml, and
# a checkout may have any name. So it works in a copy, in a folder that is named
# like the package; doc.go and go.mod are there because it asks `go list` for the
# import path.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# generated prints the files of folder $1 that are mdatagen's, one a line.
generated() {
	(cd "$1" && find . -path ./internal/tools -prune -o -type f \
		\( -path './generated_*.go' -o -path './internal/metadata*/generated_*.go' -o -path ./documentation.md \) \
		-print | sort)
}

# copy copies the files named on its input from folder $1 to folder $2.
copy() {
	while read -r file; do
		mkdir -p "$2/$(dirname "$file")"
		cp "$1/$file" "$2/$file"
	done
}

new=$tmp/batcherexporter
mkdir "$new"
printf '%s\n' metadata.yaml doc.go go.mod go.sum | copy "$root" "$new"
go -C "$root/internal/tools" tool mdatagen "$new/metadata.yaml"
# mdatagen leaves imports unsorted, and for exporters of profiles one unused.
go -C "$root/internal/tools" tool goimports -local github.com/pullbatch/batcherexporter -w "$new"

if [ "${1-}" = --check ]; then
	mkdir "$tmp/committed" "$tmp/generated"
	generated "$root" | copy "$root" "$tmp/committed"
	generated "$new" | copy "$new" "$tmp/generated"
	if ! (cd "$tmp" && diff -ruN committed generated); then
		echo 'generated files differ from metadata.yaml: run `go generate` and commit the result' >&2
		exit 1
	fi
	exit 0
fi

generated "$root" | while read -r file; do rm "$root/$file"; done
generated "$new" | copy "$new" "$root"
