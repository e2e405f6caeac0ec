// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !invariants

package batcherexporter

import (
	"sync"
)

// mutex is the queue's lock. Under the build tag invariants it counts how often
// it is taken.
type mutex struct{ sync.Mutex }
