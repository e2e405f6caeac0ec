// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter"
)

// instances are the running batchers of one factory, by their decoded
// configuration: the collector makes one exporter per signal from it.
type instances struct {
	// Fixed after construction.
	factories map[component.Type]exporter.Factory

	mu struct {
		sync.Mutex
		running map[*Config]*instance
		stop    stopRound
	}
}

func newInstances(factories map[component.Type]exporter.Factory) *instances {
	all := &instances{factories: factories}
	all.mu.running = map[*Config]*instance{}
	return all
}

// instance is what the signals of one batcher share, from the first Start to the
// last Shutdown: the wrapped exporter's decoded configuration, so that exporters
// which share one resource per configuration (a file, a connection) still do.
type instance struct {
	// Fixed after construction.
	cfg      *Config
	resolved *resolved

	// Guarded by the mutex of instances.
	users   int                   // signals that are started
	stopped []component.Component // wrapped exporters of signals that have shut down

	mu struct {
		sync.Mutex
		warned  bool
		members map[stopper]struct{}
	}
}

// stopper is a signal that can be told that a stop has begun which will come to it:
// it sends what it has queued.
type stopper interface{ beginStop() }

// acquire returns the instance of cfg, a new one at the first Start. The caller
// must release it.
func (all *instances) acquire(cfg *Config, host component.Host) (*instance, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	in := all.mu.running[cfg]
	if in == nil {
		r, err := cfg.resolve(lookupFrom(host, all.factories))
		if err != nil {
			return nil, err
		}
		in = &instance{cfg: cfg, resolved: r}
		in.mu.members = map[stopper]struct{}{}
		all.mu.running[cfg] = in
	}
	in.users++
	if all.mu.stop.running == 0 {
		all.mu.stop = stopRound{} // what begins now has the whole time to stop
	}
	return in, nil
}

// release ends one use of an instance, and the instance with the last: only then
// it returns the wrapped exporters, for the caller to stop. Those that share a
// resource (the file exporter has one writer for all signals) close it at the
// first Shutdown, while other signals still send.
func (all *instances) release(in *instance, wrapped component.Component) []component.Component {
	all.mu.Lock()
	defer all.mu.Unlock()
	if wrapped != nil {
		in.stopped = append(in.stopped, wrapped)
	}
	if in.users--; in.users > 0 {
		return nil
	}
	delete(all.mu.running, in.cfg)
	return in.stopped
}

// takeWarnings returns what the configuration deserves to be warned of, to the
// first who asks.
func (in *instance) takeWarnings() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.mu.warned {
		return nil
	}
	in.mu.warned = true
	return in.resolved.warnings
}

func (in *instance) join(f stopper) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.mu.members[f] = struct{}{}
}

func (in *instance) leave(f stopper) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.mu.members, f)
}

// beginStop lets the signals that still run send what they have queued. The
// collector stops exporters one after the other: what the others hold leaves
// while the first drains, and shares the time that all have.
func (in *instance) beginStop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for f := range in.mu.members {
		f.beginStop()
	}
}
