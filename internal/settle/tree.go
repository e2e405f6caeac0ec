// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package settle

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"time"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumererror/xconsumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The types of errors that say of all that they wrap what it is, and are not
// exported.
var (
	permanentType = reflect.TypeOf(consumererror.NewPermanent(errors.New("probe")))
	throttleType  = reflect.TypeOf(exporterhelper.NewThrottleRetry(errors.New("probe"), time.Second))
)

// wrapsType is the type of an error of fmt.Errorf with several %w. It may be a
// join, or one of them only says what the other is.
var wrapsType = reflect.TypeOf(fmt.Errorf("%w %w", errors.New(""), errors.New("")))

// grpcStatuser is an error that is a gRPC status itself.
type grpcStatuser interface{ GRPCStatus() *status.Status }

// unwrapped returns what err itself wraps. Several are a join, or at least look
// like one.
func unwrapped(err error) []error {
	var all []error
	switch w := err.(type) { //nolint:errorlint // walks the tree itself
	case interface{ Unwrap() error }:
		all = []error{w.Unwrap()}
	case interface{ Unwrap() []error }:
		all = w.Unwrap()
	}
	some := make([]error, 0, len(all))
	for _, e := range all {
		if e != nil {
			some = append(some, e)
		}
	}
	return some
}

// anywhere says whether f is true of err, or of anything below it.
func anywhere(err error, f func(error) bool) bool {
	if f(err) {
		return true
	}
	for _, e := range unwrapped(err) {
		if anywhere(e, f) {
			return true
		}
	}
	return false
}

// branches returns what follows below a node: nothing below a leaf, one error
// below a wrapper, several below a join. An error of fmt.Errorf with several %w is
// a join only if several of them say something of themselves, or one says what is
// left: the text of a sentinel is no failure of its own.
func branches(err error) []error {
	below := unwrapped(err)
	if len(below) < 2 || reflect.TypeOf(err) != wrapsType {
		return below
	}
	var saying []error
	for _, e := range below {
		if anywhere(e, isRemainder) {
			return below
		}
		if anywhere(e, speaks) {
			saying = append(saying, e)
		}
	}
	return saying
}

// speaks says whether a node itself tells what happened, beyond its text.
func speaks(err error) bool {
	switch reflect.TypeOf(err) {
	case permanentType, throttleType:
		return true
	}
	switch err.(type) { //nolint:errorlint // the node alone
	case *consumererror.Error, grpcStatuser:
		return true
	}
	return isRemainder(err) || isTLSNode(err) || endedNode(err)
}

// isRemainder says whether a node itself carries data that was not delivered.
func isRemainder(err error) bool {
	switch err.(type) { //nolint:errorlint // the node alone
	case consumererror.Logs, consumererror.Traces, consumererror.Metrics, xconsumererror.Profiles,
		*consumererror.Logs, *consumererror.Traces, *consumererror.Metrics, *xconsumererror.Profiles:
		return true
	}
	return false
}

// silent says whether a leaf tells nothing of what is left.
func silent(err error) bool {
	if isRemainder(err) {
		return false
	}
	below := unwrapped(err)
	return len(below) == 0 || slices.ContainsFunc(below, silent)
}

// ended says whether the attempt ended before there was an answer: by a deadline
// of the exporter, or because its call was cancelled. That says nothing about the
// data, whatever the exporter calls it.
func ended(err error) bool { return anywhere(err, endedNode) }

func endedNode(err error) bool {
	switch err { //nolint:errorlint // the node alone
	case context.DeadlineExceeded, context.Canceled, os.ErrDeadlineExceeded:
		return true
	}
	switch e := err.(type) { //nolint:errorlint // the node alone
	case grpcStatuser:
		return endedCode(e.GRPCStatus().Code())
	case *consumererror.Error:
		_, s := ownStatus(e)
		return s != nil && endedCode(s.Code())
	case net.Error:
		return e.Timeout()
	}
	return false
}

func endedCode(c codes.Code) bool { return c == codes.DeadlineExceeded || c == codes.Canceled }

// ownStatus returns the status that e itself carries, in the protocol in which it
// came: none if e only says that something may be retried. consumererror does not
// tell: it makes one up.
func ownStatus(e *consumererror.Error) (http int, grpc *status.Status) {
	v := reflect.ValueOf(e).Elem()
	if f := v.FieldByName("httpStatus"); f.IsValid() && f.CanInt() && f.Int() != 0 {
		return int(f.Int()), nil
	}
	if f := v.FieldByName("grpcStatus"); f.IsValid() && f.Kind() == reflect.Pointer && !f.IsNil() {
		return 0, consumererror.ToGRPCStatus(e)
	}
	return 0, nil
}

// delayOf reads the delay of err itself, if it is a throttle error: it has no
// method that tells it.
func delayOf(err error) time.Duration {
	v := reflect.ValueOf(err)
	if v.Type() != throttleType {
		return 0
	}
	if f := v.FieldByName("delay"); f.IsValid() && f.CanInt() {
		return max(0, time.Duration(f.Int()))
	}
	return 0
}

// claim is what the wrappers above an error say of it.
type claim struct {
	outer claimed // by the outermost that says anything
	final bool    // one of them calls it permanent
	delay time.Duration
}

type claimed int

const (
	claimsNothing claimed = iota
	claimsFinal
	claimsRetry
)

// under adds what the node err says of all below it. above is the node over it:
// the wrapper that NewLogs and its like put around every error claims nothing.
func (c claim) under(err, above error) claim {
	says := claimsNothing
	switch reflect.TypeOf(err) {
	case permanentType:
		says = claimsFinal
	case throttleType:
		says = claimsRetry
		c.delay = max(c.delay, delayOf(err))
	}
	if e, ok := err.(*consumererror.Error); ok { //nolint:errorlint // the node alone
		switch {
		case !e.IsRetryable():
			says = claimsFinal
		case above == nil || !isRemainder(above):
			says = claimsRetry
		}
	}
	c.final = c.final || says == claimsFinal
	if c.outer == claimsNothing {
		c.outer = says
	}
	return c
}
