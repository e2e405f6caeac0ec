// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
	"github.com/pullbatch/batcherexporter/internal/e2e/process"
	"github.com/pullbatch/batcherexporter/internal/e2e/selfmetrics"
)

const (
	startTimeout = 2 * time.Minute
	// drainTimeout is the batcher's `drain_timeout`. Its default is too short for a
	// backend on the same machine if that is busy.
	drainTimeout = 2 * time.Minute
	// stopTimeout is above drainTimeout, after which the batcher gives up by itself.
	stopTimeout = 150 * time.Second
)

// session is one run: two collectors, and the server that the batching one reports to.
type session struct {
	set       settings
	maxItems  int // of a batch, by the configuration
	addresses map[string]string
	watch     *selfmetrics.Server
	backend   *process.Process
	batching  *process.Process
}

// run returns nil if every item that was accepted arrived once, in batches within
// their bound. The load ends with its context, the collectors are killed with ctx.
func run(ctx, loadCtx context.Context, set settings) error {
	s, err := newSession(set)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.start(ctx); err != nil {
		return err
	}
	s.printSetup()
	view := newView(os.Stdout, time.Now())
	if err := s.sendLoad(loadCtx, view); err != nil {
		return err
	}
	err = s.stop(ctx)
	if ctx.Err() != nil {
		return errKilled
	}
	if err != nil {
		return err
	}
	last := readReport(s.watch.Latest())
	view.printLine("stop", last)
	results, err := s.results(last)
	if err != nil {
		return err
	}
	printSummary(os.Stdout, results)
	if err := check(results, s.maxItems); err != nil {
		return err
	}
	printVerdict(os.Stdout, results, s.maxItems)
	if loadCtx.Err() != nil {
		return errInterrupted
	}
	return nil
}

func newSession(set settings) (*session, error) {
	s := &session{set: set, addresses: map[string]string{}}
	if err := os.MkdirAll(set.outDir, 0o750); err != nil {
		return nil, err
	}
	var err error
	if s.maxItems, err = readMaxSize(s.config("batching.yaml")); err != nil {
		return nil, err
	}
	for _, name := range []string{"BACKEND_GRPC", "BACKEND_HTTP", "BATCHING_GRPC", "BATCHING_HTTP"} {
		if s.addresses[name], err = process.FreeAddress(); err != nil {
			return nil, err
		}
	}
	s.watch, err = selfmetrics.Listen()
	return s, err
}

var maxSizeKey = regexp.MustCompile(`(?m)^\s*max_size:\s*(\d+)\s*$`)

// readMaxSize returns the bound of a batch from the configuration of the batching
// collector, so that the check cannot differ from it.
func readMaxSize(path string) (int, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	found := maxSizeKey.FindSubmatch(content)
	if found == nil {
		return 0, fmt.Errorf("%s has no `max_size` to check batches against", path)
	}
	return strconv.Atoi(string(found[1]))
}

func (s *session) config(name string) string { return filepath.Join(s.set.configDir, name) }

func (s *session) output(name string) string { return filepath.Join(s.set.outDir, name) }

// start starts the backend first: what the batching collector sends arrives.
func (s *session) start(ctx context.Context) error {
	var err error
	if s.backend, err = s.startCollector(ctx, "backend", s.config("backend.yaml")); err != nil {
		return err
	}
	s.batching, err = s.startCollector(ctx, "batching", s.config("batching.yaml"), s.config("watch.yaml"),
		fmt.Sprintf("yaml:exporters::batcher::drain_timeout: %v", drainTimeout))
	return err
}

func (s *session) startCollector(ctx context.Context, name string, configs ...string) (*process.Process, error) {
	set := process.Settings{
		Name:    name + " collector",
		Command: []string{s.set.collector},
		Env:     []string{"BACKEND_DIR=" + s.set.outDir, "WATCH_URL=" + s.watch.URL()},
		LogPath: s.output(name + ".log"),
		Ready:   process.CollectorReady,
	}
	for _, config := range configs {
		set.Command = append(set.Command, "--config="+config)
	}
	for name, address := range s.addresses {
		set.Env = append(set.Env, name+"="+address)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return process.Start(ctx, set)
}

// stop stops the batching collector first: what it still holds goes to the backend.
func (s *session) stop(ctx context.Context) error {
	return errors.Join(stopOne(ctx, s.batching), stopOne(ctx, s.backend))
}

func stopOne(ctx context.Context, p *process.Process) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return p.Stop(ctx)
}

// close ends what still runs, whatever went wrong before.
func (s *session) close() {
	if s.batching != nil {
		s.batching.Kill()
	}
	if s.backend != nil {
		s.backend.Kill()
	}
	_ = s.watch.Close() // nothing is sent to it any more
}

func (s *session) results(last report) ([]result, error) {
	var results []result
	for _, signal := range otlpdata.Signals() {
		tally, err := otlpdata.ReadFile(signal, s.output(string(signal)+".json"))
		if err != nil {
			return nil, fmt.Errorf("what the backend wrote: %w", err)
		}
		results = append(results, newResult(signal, last.signals[signal], tally, s.maxItems))
	}
	return results, nil
}

func (s *session) printSetup() {
	fmt.Printf("backend   %s  OTLP to files in %s\n", s.addresses["BACKEND_GRPC"], s.set.outDir)
	fmt.Printf("batching  %s  %s, batches of at most %s items\n",
		s.addresses["BATCHING_GRPC"], s.config("batching.yaml"), grouped(s.maxItems))
	fmt.Printf("load      %v of traces, logs and metrics by telemetrygen, in requests of %d items\n\n",
		s.set.duration, s.set.requestItems)
}
