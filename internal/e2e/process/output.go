// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"os"
	"strings"
	"sync"
)

// tailBytes is how much of the end of the output is kept for errors.
const tailBytes = 16 << 10

// output takes what a child prints: it writes it to a file, keeps the end of it (all
// of it if that is asked for), and looks for the line that says that the child is ready.
type output struct {
	want  []byte
	ready chan struct{} // closed when want was seen
	all   bool

	mu struct {
		sync.Mutex
		file *os.File // nil: only the end is kept
		last []byte
		seen bool
	}
}

func newOutput(set Settings) (*output, error) {
	o := &output{want: []byte(set.Ready), ready: make(chan struct{}), all: set.KeepOutput}
	if set.LogPath != "" {
		file, err := os.Create(set.LogPath)
		if err != nil {
			return nil, err
		}
		o.mu.file = file
	}
	o.lookLocked()
	return o, nil
}

// Write implements io.Writer. It never fails: a full disk must not stop the child.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.file != nil {
		_, _ = o.mu.file.Write(p)
	}
	o.mu.last = append(o.mu.last, p...)
	o.lookLocked()
	if surplus := len(o.mu.last) - tailBytes; surplus > 0 && !o.all {
		o.mu.last = append(o.mu.last[:0], o.mu.last[surplus:]...)
	}
	return len(p), nil
}

func (o *output) lookLocked() {
	if !o.mu.seen && bytes.Contains(o.mu.last, o.want) {
		o.mu.seen = true
		close(o.ready)
	}
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimRight(string(o.mu.last), "\n")
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.file != nil {
		_ = o.mu.file.Close()
		o.mu.file = nil
	}
}
