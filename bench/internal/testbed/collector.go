// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = time.Minute
	// stopTimeout is more than the longest backlog needs.
	stopTimeout = time.Minute

	// closeOutput bounds the wait for the output of a child that has ended.
	closeOutput = 30 * time.Second

	// tailBytes is how much of the end of the output is kept.
	tailBytes = 16 << 10

	// configVariable holds the configuration, so that there is no file to remove.
	configVariable = "TESTBED_CONFIG"
)

// What a collector logs once its receivers accept data, and where one does.
var (
	readyLine   = []byte("Everything is ready.")
	addressLine = regexp.MustCompile(`Starting GRPC server.*"endpoint": "([^"]+)"`)
)

// Collector is a collector that runs as a child process.
type Collector struct {
	cmd    *exec.Cmd
	output *output

	ended chan struct{} // closed when the child has ended
	err   error         // how, written before ended is closed
}

// StartCollector runs a collector and waits until it accepts data. The child is
// killed when the context ends.
func StartCollector(ctx context.Context, path, config string) (*Collector, error) {
	cmd := exec.CommandContext(ctx, path, "--config=env:"+configVariable)
	c := &Collector{cmd: cmd, output: &output{ready: make(chan struct{})}, ended: make(chan struct{})}
	cmd.Env = append(os.Environ(), configVariable+"="+config)
	cmd.Stderr, cmd.WaitDelay, cmd.SysProcAttr = c.output, closeOutput, attributes()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the collector: %w", err)
	}
	go func() {
		c.err = cmd.Wait()
		close(c.ended)
	}()
	if err := c.waitReady(ctx); err != nil {
		c.Kill()
		return nil, fmt.Errorf("%w\n%s", err, c.output)
	}
	return c, nil
}

func (c *Collector) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-c.output.ready:
		return nil
	case <-c.ended:
		return fmt.Errorf("the collector ended before it was ready: %w", c.end())
	case <-ctx.Done():
		return fmt.Errorf("the collector was not ready in time: %w", ctx.Err())
	}
}

// end is how the child has ended, never nil.
func (c *Collector) end() error {
	if c.err == nil {
		return errors.New("exit status 0")
	}
	return c.err
}

// Address is where the collector takes OTLP over gRPC.
func (c *Collector) Address() (string, error) {
	found := addressLine.FindStringSubmatch(c.output.String())
	if found == nil {
		return "", fmt.Errorf("the collector does not say where it listens:\n%s", c.output)
	}
	return found[1], nil
}

// PID is that of the child.
func (c *Collector) PID() int { return c.cmd.Process.Pid }

// errEnded is the cause of contexts that end because the child did. Stop says how.
var errEnded = errors.New("the collector ended under load")

// WhileAlive returns a context that ends when the child does.
func (c *Collector) WhileAlive(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-c.ended:
			cancel(errEnded)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Stop asks the collector to stop, as a service manager does, and waits until it
// has delivered what it holds. An exit status other than zero is an error.
func (c *Collector) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	c.signal(syscall.SIGTERM)
	select {
	case <-c.ended:
	case <-ctx.Done():
		c.Kill()
		return fmt.Errorf("the collector did not stop in time and was killed: %w\n%s", ctx.Err(), c.output)
	}
	if c.err != nil {
		return fmt.Errorf("the collector: %w\n%s", c.err, c.output)
	}
	return nil
}

// CPU is what the child has used in all. It is known once Stop has returned.
func (c *Collector) CPU() time.Duration {
	return c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime()
}

// Kill ends the collector at once if it still runs, and waits until it is gone.
func (c *Collector) Kill() {
	c.signal(syscall.SIGKILL)
	<-c.ended
}

func (c *Collector) signal(s syscall.Signal) {
	select {
	case <-c.ended:
		// Its process ID may belong to another process by now.
	default:
		// An error means that it ended just now, which is what was asked for.
		_ = c.cmd.Process.Signal(s)
	}
}

// output keeps the end of what a child prints, and looks for the line that says
// that it is ready.
type output struct {
	ready chan struct{} // closed when that line was seen

	mu   sync.Mutex
	last []byte
	seen bool
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = append(o.last, p...)
	if !o.seen && bytes.Contains(o.last, readyLine) {
		o.seen = true
		close(o.ready)
	}
	if surplus := len(o.last) - tailBytes; surplus > 0 {
		o.last = append(o.last[:0], o.last[surplus:]...)
	}
	return len(p), nil
}

// String is the end of the output.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimRight(string(o.last), "\n")
}
