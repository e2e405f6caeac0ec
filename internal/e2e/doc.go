// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the batcher in real collectors: OTLP goes in from a client that
// knows every item, and what comes out at the backend is compared with it.
//
// The tests use the collector that `make distro` builds; E2E_COLLECTOR names
// another. E2E_SCALE multiplies the amount of data.
package e2e
