// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package process runs collectors and load generators as child processes. Each
// is ended by its own process ID, and none outlives the program that started it.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// CollectorReady is what a collector logs once its receivers accept data.
const CollectorReady = "Everything is ready."

// closeOutput bounds the wait for the rest of the output of a process that has
// ended, in case something it started holds the pipe open.
const closeOutput = 30 * time.Second

// Settings says what to run.
type Settings struct {
	Name    string   // in errors
	Command []string // program and arguments
	Env     []string // added to the environment of this process
	LogPath string   // where the output goes
	Ready   string   // output that says that Start may return; empty: at once

	KeepOutput bool // all of it, for Output
}

// Process is a child that was started.
type Process struct {
	// Fixed after construction.
	name    string
	logPath string
	cmd     *exec.Cmd
	output  *output

	ended chan struct{} // closed when the child has ended
	err   error         // how, written before ended is closed
}

// Start starts the child and waits until it is ready. If it ends before, or the
// context does, the child is gone and the error holds the end of its output.
func Start(ctx context.Context, set Settings) (*Process, error) {
	out, err := newOutput(set)
	if err != nil {
		return nil, fmt.Errorf("output of %s: %w", set.Name, err)
	}
	// Not CommandContext: the context bounds the start, not the life of the child.
	cmd := exec.Command(set.Command[0], set.Command[1:]...)
	cmd.Env = append(os.Environ(), set.Env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = closeOutput
	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		out.close()
		return nil, fmt.Errorf("start %s: %w", set.Name, err)
	}
	p := &Process{name: set.Name, logPath: set.LogPath, cmd: cmd, output: out, ended: make(chan struct{})}
	go p.wait()
	if err := p.waitReady(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Process) wait() {
	p.err = p.cmd.Wait()
	p.output.close()
	close(p.ended)
}

func (p *Process) waitReady(ctx context.Context) error {
	select {
	case <-p.output.ready:
		return nil
	case <-p.ended:
		return fmt.Errorf("%s ended before it was ready: %w\n%s", p.name, p.result(), p.output.tail())
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("%s was not ready in time: %w\n%s", p.name, ctx.Err(), p.output.tail())
	}
}

// result returns how the child ended, never nil.
func (p *Process) result() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

// Ended is closed when the child has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Wait waits until the child ends by itself. It returns an error if the child
// failed, or if the context ended first; the child goes on then.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.ended:
		return p.outcome()
	case <-ctx.Done():
		return fmt.Errorf("%s still runs: %w", p.name, ctx.Err())
	}
}

// outcome is nil if the child has ended with the exit status 0.
func (p *Process) outcome() error {
	if p.err != nil {
		return fmt.Errorf("%s: %w%s", p.name, p.err, p.seeLog())
	}
	return nil
}

func (p *Process) seeLog() string {
	if p.logPath == "" {
		return ""
	}
	return fmt.Sprintf(" (its output is in %s)", p.logPath)
}

// Terminate asks the child to stop, as a service manager does.
func (p *Process) Terminate() { p.signal(syscall.SIGTERM) }

// Reload asks the child to read its configuration again.
func (p *Process) Reload() { p.signal(syscall.SIGHUP) }

// Stop asks the child to stop and waits until it has. When the context ends first
// the child is killed, which is an error, as is an exit status other than zero.
func (p *Process) Stop(ctx context.Context) error {
	p.Terminate()
	select {
	case <-p.ended:
		return p.outcome()
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("%s did not stop in time and was killed: %w%s", p.name, ctx.Err(), p.seeLog())
	}
}

// Kill ends the child at once if it still runs, and waits until it is gone.
func (p *Process) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

func (p *Process) signal(s syscall.Signal) {
	select {
	case <-p.ended:
		// Its process ID may belong to another process by now.
	default:
		// An error means that it ended just now, which is what was asked for.
		_ = p.cmd.Process.Signal(s)
	}
}

// Output returns the end of what the child has printed, or all of it.
func (p *Process) Output() string { return p.output.tail() }
