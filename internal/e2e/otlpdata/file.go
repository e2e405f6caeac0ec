// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package otlpdata

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// lineStart tells the signal of a line.
var lineStart = map[Signal][]byte{
	Traces:  []byte(`{"resourceSpans"`),
	Logs:    []byte(`{"resourceLogs"`),
	Metrics: []byte(`{"resourceMetrics"`),
}

// ReadFile counts what the file exporter wrote of one signal: each line is one
// request. Lines of other signals are passed over, since signals may share a file.
func ReadFile(signal Signal, path string) (*Tally, error) {
	tally := &Tally{}
	rest, err := tally.addFile(signal, path)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("the last line of %s does not end", path)
	}
	return tally, err
}

// AddKilled counts what a file exporter wrote that was killed: its last line may
// be cut off. One that lacks nothing but its end was taken, and nobody was told.
func (t *Tally) AddKilled(signal Signal, path string) error {
	rest, err := t.addFile(signal, path)
	if err == nil && bytes.HasPrefix(rest, lineStart[signal]) {
		_ = t.addLine(signal, rest) // an error says that it is cut off
	}
	return err
}

// addFile counts the lines of a file, and returns what follows the last of them.
func (t *Tally) addFile(signal Signal, path string) (rest []byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewReaderSize(file, 1<<20)
	for n := 1; ; n++ {
		// Not a Scanner: a line has no bound, it is as long as the batch.
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return line, nil
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of %s: %w", n, path, err)
		}
		if !bytes.HasPrefix(line, []byte("{")) {
			return nil, fmt.Errorf("line %d of %s is not a request: %.40q", n, path, line)
		}
		if !bytes.HasPrefix(line, lineStart[signal]) {
			continue
		}
		if err := t.addLine(signal, line); err != nil {
			return nil, fmt.Errorf("line %d of %s: %w", n, path, err)
		}
	}
}

func (t *Tally) addLine(signal Signal, line []byte) error {
	switch signal {
	case Traces:
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
		if err != nil {
			return err
		}
		t.AddTraces(td)
	case Logs:
		ld, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(line)
		if err != nil {
			return err
		}
		t.AddLogs(ld)
	case Metrics:
		md, err := (&pmetric.JSONUnmarshaler{}).UnmarshalMetrics(line)
		if err != nil {
			return err
		}
		t.AddMetrics(md)
	}
	return nil
}
