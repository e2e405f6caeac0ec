// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package batcherexporter

import (
	"sync"
)

type mutex struct {
	sync.Mutex
	taken int // how often Lock was called; guarded by itself
}

func (m *mutex) Lock() {
	m.Mutex.Lock()
	m.taken++
}
