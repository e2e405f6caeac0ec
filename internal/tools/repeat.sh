#!/usr/bin/env bash
# Copyright The Batcher Exporter Authors
# SPDX-License-Identifier: Apache-2.0

# Runs `make test` so many times, every second time beside busy processes, and fails
# if one of them fails: tests that depend on the load of the machine show here.
#
#   internal/tools/repeat.sh 10 8    # ten times, five of them beside eight processes
set -euo pipefail
cd "$(dirname "$0")/../.."

count=${1:?how often}
processes=${2:?how many busy processes}
make=${MAKE:-make}
logs=distro/build/repeat
load=()
run=

# busy keeps a core busy until it is stopped, or until this script is gone, however
# that came.
busy() {
	trap - EXIT INT TERM HUP
	while kill -0 $$ 2>/dev/null; do
		for ((i = 0; i < 100000; i++)); do :; done
	done
}

start_load() {
	for ((n = 0; n < processes; n++)); do
		busy &
		load+=($!)
	done
}

stop() {
	for pid in "$@"; do
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
}

# Ended early, it leaves nothing behind that runs.
trap 'stop ${run:+"$run"} ${load[@]+"${load[@]}"}' EXIT
trap 'exit 130' INT TERM HUP

mkdir -p "$logs"
passed=0
for ((i = 1; i <= count; i++)); do
	log=$logs/run-$i.log beside=
	if ((i % 2 == 0)); then
		start_load
		beside=", beside $processes busy processes"
	fi
	began=$SECONDS status=0
	# In the background, so that a signal is not kept waiting for it. Nothing is taken
	# from the cache.
	"$make" test TEST_FLAGS=-count=1 >"$log" 2>&1 &
	run=$!
	wait "$run" || status=$?
	run=
	stop ${load[@]+"${load[@]}"}
	load=()
	if ((status == 0)); then
		passed=$((passed + 1))
		rm "$log"
		echo "run $i of $count: passed in $((SECONDS - began)) s$beside"
	else
		echo "run $i of $count: FAILED in $((SECONDS - began)) s$beside: see $log"
	fi
done
echo "$passed of $count passed"
((passed == count))
