// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package settle

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.uber.org/multierr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"
)

// logsAt is what payload does: it looks at one node. The number of records stands
// for what is left.
func logsAt(err error) (int, bool) {
	partial, ok := err.(consumererror.Logs) //nolint:errorlint // the node alone
	if !ok {
		return 0, false
	}
	return partial.Data().LogRecordCount(), true
}

func left(cause error, n int) error {
	data := plog.NewLogs()
	records := data.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	for range n {
		records.AppendEmpty()
	}
	return consumererror.NewLogs(cause, data)
}

func TestRemainders(t *testing.T) {
	plain := errors.New("away")
	permanent := consumererror.NewPermanent
	gone := permanent(errors.New("bad"))
	for name, c := range map[string]struct {
		err   error
		rests []int // negative: for good
	}{
		"alone":                          {left(plain, 3), []int{3}},
		"wrapped":                        {fmt.Errorf("sending: %w", left(plain, 3)), []int{3}},
		"errors.Join":                    {errors.Join(left(plain, 1), left(plain, 2)), []int{1, 2}},
		"multierr":                       {multierr.Combine(left(plain, 1), left(plain, 2)), []int{1, 2}},
		"several %w":                     {fmt.Errorf("shard 1: %w; shard 2: %w", left(plain, 1), left(plain, 2)), []int{1, 2}},
		"own type":                       {own{left(plain, 1), nil, left(plain, 2)}, []int{1, 2}},
		"throttle around a join":         {exporterhelper.NewThrottleRetry(errors.Join(left(gone, 1), left(plain, 2)), time.Second), []int{1, 2}},
		"retryable around a join":        {consumererror.NewRetryableError(errors.Join(left(gone, 1), left(plain, 2))), []int{1, 2}},
		"permanent around a join":        {permanent(errors.Join(left(plain, 1), left(plain, 2))), []int{-1, -2}},
		"permanent around retryable":     {permanent(consumererror.NewRetryableError(left(plain, 1))), []int{-1}},
		"some for good":                  {errors.Join(left(gone, 1), left(plain, 2), permanent(left(plain, 3))), []int{-1, 2, -3}},
		"joins in joins":                 {errors.Join(own{left(plain, 1), errors.Join(left(gone, 2))}, left(plain, 3)), []int{1, -2, 3}},
		"status around a join":           {consumererror.NewOTLPHTTPError(errors.Join(left(gone, 1), left(plain, 2)), 503), []int{1, 2}},
		"too large is not for good":      {errors.Join(left(consumererror.NewOTLPHTTPError(plain, 413), 1), left(gone, 2)), []int{1, -2}},
		"a cause that joins":             {left(errors.Join(plain, plain), 3), []int{3}},
		"nested: the outermost holds":    {left(left(plain, 1), 3), []int{3}},
		"a leaf that says nothing":       {errors.Join(left(plain, 1), plain), nil},
		"a leaf that says nothing first": {own{gone, left(plain, 1)}, nil},
		"a sentinel":                     {fmt.Errorf("%w: %w", errors.New("export"), left(plain, 1)), nil},
		"nothing":                        {plain, nil},
		"an empty join":                  {own{}, nil},
	} {
		parts, ok := Remainders(c.err, logsAt, false)
		assert.Equal(t, c.rests != nil, ok, name)
		if ok {
			assert.Equal(t, c.rests, signed(parts), name)
		}
		parts, ok = Remainders(c.err, logsAt, true)
		assert.Equal(t, c.rests != nil, ok, name)
		for _, p := range parts {
			assert.False(t, p.Final || p.Verdict.Class != Unknown, "%s: final in an attempt that was cancelled", name)
		}
	}
}

// signed are the rests, negative if they are lost for good.
func signed(parts []Remainder[int]) (all []int) {
	for _, p := range parts {
		if p.Final {
			p.Rest = -p.Rest
		}
		all = append(all, p.Rest)
	}
	return all
}

// One deadline in the tree, and nothing of it is final.
func TestRemaindersOfEndedAttempt(t *testing.T) {
	gone := consumererror.NewPermanent(errors.New("bad"))
	parts, ok := Remainders(errors.Join(left(gone, 1), left(context.DeadlineExceeded, 2)), logsAt, false)
	assert.True(t, ok)
	assert.Equal(t, []int{1, 2}, signed(parts))
}

// What a part's error says to its callers includes the wrappers that are about it
// alone.
func TestRemainderError(t *testing.T) {
	parts, _ := Remainders(errors.Join(left(errors.New("a"), 1), consumererror.NewPermanent(left(errors.New("b"), 2))), logsAt, false)
	assert.False(t, consumererror.IsPermanent(parts[0].Err))
	assert.True(t, consumererror.IsPermanent(parts[1].Err))
	assert.Equal(t, Permanent, parts[1].Verdict.Class)
}

// tree is an error with what is known of it.
type tree struct {
	err    error
	rests  []int
	silent bool // a leaf says nothing of what is left
}

var causes = []error{
	errors.New("away"),
	status.Error(codes.Unavailable, "away"),
	status.Error(codes.ResourceExhausted, "grpc: received message larger than max (9 vs. 4)"),
	status.Error(codes.DeadlineExceeded, "late"),
	consumererror.NewOTLPHTTPError(errors.New("x"), 401),
	consumererror.NewOTLPHTTPError(errors.New("x"), 413),
	consumererror.NewOTLPGRPCError(nil, nil),
	status.Error(codes.Internal, "grpc: error unmarshalling request"),
	context.Canceled,
}

func drawTree(t *rapid.T, depth int) tree {
	kinds := 9
	if depth == 0 {
		kinds = 2
	}
	kind := rapid.IntRange(0, kinds-1).Draw(t, "kind")
	switch kind {
	case 0:
		return tree{err: rapid.SampledFrom(causes).Draw(t, "cause"), silent: true}
	case 1:
		n := rapid.IntRange(1, 9).Draw(t, "left")
		return tree{err: left(rapid.SampledFrom(causes).Draw(t, "cause"), n), rests: []int{n}}
	case 2, 3, 4, 5:
		one := drawTree(t, depth-1)
		one.err = []func(error) error{
			consumererror.NewPermanent,
			consumererror.NewRetryableError,
			func(e error) error { return exporterhelper.NewThrottleRetry(e, time.Second) },
			func(e error) error { return fmt.Errorf("sending: %w", e) },
		}[kind-2](one.err)
		return one
	}
	all := tree{}
	var errs []error
	for range rapid.IntRange(2, 3).Draw(t, "branches") {
		one := drawTree(t, depth-1)
		errs = append(errs, one.err)
		all.rests, all.silent = append(all.rests, one.rests...), all.silent || one.silent
	}
	switch kind {
	case 6:
		all.err = errors.Join(errs...)
	case 7:
		all.err = own(errs)
	default:
		all.err = fmt.Errorf("%w and %w", errs[0], errors.Join(errs[1:]...))
	}
	return all
}

// For any tree of errors: a verdict, no part of it forgotten, none that a silent
// leaf could contradict, and nothing final once the attempt had no answer.
func TestAnyTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTree(t, rapid.IntRange(0, 4).Draw(t, "depth"))
		v := Of(tr.err, false)
		assert.Contains(t, Classes, v.Class)
		assert.Equal(t, Unknown, Of(tr.err, true).Class)
		assert.Equal(t, ended(tr.err), v.Class == Unknown)
		for _, cancelled := range []bool{false, true} {
			parts, ok := Remainders(tr.err, logsAt, cancelled)
			assert.Equal(t, !tr.silent, ok)
			if !ok {
				continue
			}
			var rests []int
			for _, p := range parts {
				rests = append(rests, p.Rest)
				assert.False(t, p.Final && (cancelled || v.Class == Unknown))
				assert.False(t, !cancelled && v.Class == Permanent && !p.Final, "all of it is permanent")
			}
			assert.Equal(t, tr.rests, rests)
		}
	})
}
