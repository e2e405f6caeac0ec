// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package settle decides what an error of the wrapped exporter means for the
// data that was sent. It is the only place that tells retryable from permanent.
package settle // import "github.com/pullbatch/batcherexporter/internal/settle"

import (
	"errors"
	"reflect"
	"time"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
)

// Class is a kind of failure. Its text is the attribute `class` of the metric
// for failed attempts.
type Class string

const (
	// Retryable is every error that nobody called permanent: networks fail, and
	// backends restart.
	Retryable Class = "retryable"

	// Throttled is a retryable error with which the backend asked for a delay.
	Throttled Class = "throttled"

	// Unknown is any error after the attempt was cancelled or timed out by us.
	// Some exporters call that permanent; it says nothing about the data.
	Unknown Class = "unknown"

	// Permanent is what the wrapped exporter said must not be sent again.
	Permanent Class = "permanent"
)

// Verdict is what an error means.
type Verdict struct {
	Class Class
	Delay time.Duration // the least time until the next attempt; 0 if nobody asked for one
}

// Final says whether the data must not be sent again.
func (v Verdict) Final() bool { return v.Class == Permanent }

// Of returns what err means, the result of an attempt. cancelled says that the
// attempt's own context had ended. err must not be nil.
func Of(err error, cancelled bool) Verdict {
	if cancelled {
		return Verdict{Class: Unknown}
	}
	if IsPermanent(err) {
		return Verdict{Class: Permanent}
	}
	if d := throttleDelay(err); d > 0 {
		return Verdict{Class: Throttled, Delay: d}
	}
	return Verdict{Class: Retryable}
}

// IsPermanent says whether err, or an error that it wraps, is permanent. An OTLP
// status (consumererror.Error) that is not retryable counts as permanent, which
// consumererror.IsPermanent does not see.
func IsPermanent(err error) bool {
	if consumererror.IsPermanent(err) {
		return true
	}
	var status *consumererror.Error
	return errors.As(err, &status) && !status.IsRetryable()
}

// throttleType is the type of exporterhelper's throttle error, which is not
// exported and has no method that tells the delay.
var throttleType = reflect.TypeOf(exporterhelper.NewThrottleRetry(errors.New("probe"), time.Second))

// throttleDelay returns the delay that the backend asked for, 0 if it asked for
// none.
func throttleDelay(err error) time.Duration {
	switch wrapped := err.(type) { //nolint:errorlint // walks the tree itself, since errors.As needs the type
	case nil:
		return 0
	case interface{ Unwrap() error }:
		if d := delayOf(err); d > 0 {
			return d
		}
		return throttleDelay(wrapped.Unwrap())
	case interface{ Unwrap() []error }:
		var longest time.Duration
		for _, e := range wrapped.Unwrap() {
			longest = max(longest, throttleDelay(e))
		}
		return longest
	}
	return 0
}

// delayOf reads the delay of err itself, if it is a throttle error.
func delayOf(err error) time.Duration {
	v := reflect.ValueOf(err)
	if v.Type() != throttleType {
		return 0
	}
	if f := v.FieldByName("delay"); f.IsValid() && f.CanInt() {
		return time.Duration(f.Int())
	}
	return 0
}
