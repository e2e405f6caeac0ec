// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Command run shows the batcher at work, and proves that nothing is lost: it puts a
// batching collector in front of a backend collector, sends many small requests,
// prints what happens, and compares what the backend wrote with what was accepted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

var (
	errInterrupted = errors.New("interrupted before the load was complete")
	errKilled      = errors.New("interrupted again: the collectors were killed, and nothing was checked")
)

// settings are the flags.
type settings struct {
	collector    string
	telemetrygen string
	configDir    string
	outDir       string
	duration     time.Duration
	requestItems int
	workers      int
	rate         int
}

func main() {
	set := settings{}
	flag.StringVar(&set.collector, "collector", "distro/build/otelcol-batcher", "collector `binary` with the batcher in it")
	flag.StringVar(&set.telemetrygen, "telemetrygen", "internal/tools/bin/telemetrygen", "load generator `binary`")
	flag.StringVar(&set.configDir, "config", "distro/config", "`directory` of the collectors' configurations")
	flag.StringVar(&set.outDir, "out", "distro/build/run", "`directory` for what the backend writes, and for logs")
	flag.DurationVar(&set.duration, "duration", 10*time.Second, "how long to send load")
	flag.IntVar(&set.requestItems, "request", 10, "`items` of each request")
	flag.IntVar(&set.workers, "workers", 4, "senders of each signal")
	flag.IntVar(&set.rate, "rate", 5000, "`items` a second of each sender; 0: as fast as the collector takes them")
	flag.Parse()

	ctx, loadCtx := interruptible()
	switch err := run(ctx, loadCtx, set); {
	case errors.Is(err, errInterrupted), errors.Is(err, errKilled):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(128 + int(syscall.SIGINT))
	case err != nil:
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(1)
	}
}

// interruptible returns two contexts. The first signal ends that of the load, and
// what was accepted by then is still delivered and checked. The second signal ends
// both, and the collectors are killed.
func interruptible() (ctx, loadCtx context.Context) {
	ctx, abort := context.WithCancel(context.Background())
	loadCtx, interrupt := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		interrupt()
		<-signals
		abort()
	}()
	return ctx, loadCtx
}
