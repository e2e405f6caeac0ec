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
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	tally := &Tally{}
	lines := bufio.NewReaderSize(file, 1<<20)
	for n := 1; ; n++ {
		// Not a Scanner: a line has no bound, it is as long as the batch.
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return tally, nil
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of %s does not end: %w", n, path, err)
		}
		if !bytes.HasPrefix(line, []byte("{")) {
			return nil, fmt.Errorf("line %d of %s is not a request: %.40q", n, path, line)
		}
		if !bytes.HasPrefix(line, lineStart[signal]) {
			continue
		}
		if err := tally.addLine(signal, line); err != nil {
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
