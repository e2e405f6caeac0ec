// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/pullbatch/batcherexporter/internal/e2e/otlpdata"
	"github.com/pullbatch/batcherexporter/internal/e2e/process"
	"github.com/pullbatch/batcherexporter/internal/e2e/selfmetrics"
)

// loadGrace is how long a generator may take to send the rest of its load.
const loadGrace = 2 * time.Minute

// sendLoad runs one generator for each signal, and prints a line for each report
// of the batching collector meanwhile. When the context ends the generators are
// asked to stop, which is no error.
func (s *session) sendLoad(ctx context.Context, view *view) error {
	watching, stopWatching := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.printReports(watching, view)
	}()
	err := s.runGenerators(ctx)
	stopWatching()
	<-watched
	return err
}

func (s *session) printReports(ctx context.Context, view *view) {
	last := time.Now()
	for {
		snapshot, err := s.watch.Wait(ctx, func(s selfmetrics.Snapshot) bool { return s.At.After(last) })
		if err != nil {
			return
		}
		last = snapshot.At
		view.printLine(view.elapsed(last), readReport(snapshot))
	}
}

func (s *session) runGenerators(ctx context.Context) error {
	var generators []*process.Process
	defer func() {
		for _, g := range generators {
			g.Kill()
		}
	}()
	for _, signal := range otlpdata.Signals() {
		g, err := process.Start(ctx, s.generator(signal))
		if err != nil {
			return err
		}
		generators = append(generators, g)
	}
	var errs []error
	for _, g := range generators {
		errs = append(errs, s.waitGenerator(ctx, g))
	}
	return errors.Join(errs...)
}

// waitGenerator waits until the generator has sent its load.
func (s *session) waitGenerator(ctx context.Context, g *process.Process) error {
	bounded, cancel := context.WithTimeout(ctx, s.set.duration+loadGrace)
	defer cancel()
	err := g.Wait(bounded)
	if ctx.Err() != nil {
		// Interrupted: what it has sent counts, what it would have sent does not.
		g.Kill()
		return nil
	}
	return err
}

func (s *session) generator(signal otlpdata.Signal) process.Settings {
	return process.Settings{
		Name: "telemetrygen " + string(signal),
		Command: []string{
			s.set.telemetrygen, string(signal),
			"--otlp-endpoint", s.addresses["BATCHING_GRPC"], "--otlp-insecure",
			"--duration", s.set.duration.String(),
			"--rate", strconv.Itoa(s.set.rate),
			"--workers", strconv.Itoa(s.set.workers),
			"--batch-size", strconv.Itoa(s.set.requestItems),
			"--allow-export-failures", // a refused request is told to the client, and not lost
		},
		LogPath: s.output("telemetrygen-" + string(signal) + ".log"),
	}
}
