// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package settle decides what an error of the wrapped exporter means for the
// data that was sent. It is the only place that tells retryable from permanent.
package settle // import "github.com/pullbatch/batcherexporter/internal/settle"

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"reflect"
	"time"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

	// TooLarge is a refusal for the size of the request. The same request is
	// refused again for ever, a smaller one is not.
	TooLarge Class = "too_large"

	// Refused is a refusal for the content, by a status that protocols use which
	// take all of a request or nothing. One item may be the cause of it all.
	Refused Class = "refused"

	// Destination is a refusal of the sender or of the address, not of the data: a
	// key was rotated, a permission or a service is missing. The data is good.
	Destination Class = "destination"

	// Permanent is everything else that must not be sent again.
	Permanent Class = "permanent"
)

// Classes are all classes.
var Classes = []Class{Retryable, Throttled, Unknown, TooLarge, Refused, Destination, Permanent}

// Verdict is what an error means.
type Verdict struct {
	Class Class
	Delay time.Duration // the least time until the next attempt; 0 if nobody asked for one
	Limit int           // of TooLarge: the limit in bytes that the text names; 0 if none
	cause string        // what the backend said, without its numbers
}

// Retry says whether the same data may be sent again.
func (v Verdict) Retry() bool {
	switch v.Class {
	case Retryable, Throttled, Unknown, Destination:
		return true
	}
	return false
}

// Alike says whether two refusals have the same cause, as far as their text tells.
func (v Verdict) Alike(o Verdict) bool { return v.Class == o.Class && v.cause == o.cause }

// Of returns what err means, the result of an attempt. cancelled says that the
// attempt's own context had ended. err must not be nil.
func Of(err error, cancelled bool) Verdict {
	if cancelled {
		return Verdict{Class: Unknown}
	}
	if parts := joined(err); parts != nil {
		return ofJoined(parts)
	}
	var v Verdict
	s := statusOf(err)
	final := IsPermanent(err)
	switch {
	case s.tooLarge(final):
		v.Class, v.Limit = TooLarge, s.limit()
	case isTLS(err), s.code() == codes.Unavailable && saysUntrusted(s.text):
		v.Class = Destination
	case !final:
		v.Class, v.Delay = Retryable, max(throttleDelay(err), s.retryDelay())
		if v.Delay > 0 {
			v.Class = Throttled
		}
	case s.destination():
		v.Class = Destination
	case s.refused():
		v.Class = Refused
	default:
		v.Class = Permanent
	}
	if !v.Retry() {
		v.cause = withoutNumbers(s.text)
	}
	return v
}

// rank orders the classes of joined errors: what must not be lost comes first. A
// join with one permanent part is permanent to consumererror.IsPermanent, and
// its retryable part would be thrown away.
var rank = map[Class]int{TooLarge: 1, Throttled: 2, Retryable: 3, Destination: 4, Refused: 5, Permanent: 6}

// ofJoined returns what a join means: the class that loses the least, and the
// longest delay.
func ofJoined(parts []error) Verdict {
	var best Verdict
	var delay time.Duration
	for _, e := range parts {
		v := Of(e, false)
		delay = max(delay, v.Delay)
		if best.Class == "" || rank[v.Class] < rank[best.Class] {
			best = v
		}
	}
	best.Delay = delay
	return best
}

// IsPermanent says whether err, or an error that it wraps, is permanent. An OTLP
// status (consumererror.Error) that is not retryable counts as permanent, which
// consumererror.IsPermanent does not see.
func IsPermanent(err error) bool {
	if consumererror.IsPermanent(err) {
		return true
	}
	var typed *consumererror.Error
	return errors.As(err, &typed) && !typed.IsRetryable()
}

// backendStatus is what is known of the backend's answer.
type backendStatus struct {
	http int            // 0 if not known
	grpc *status.Status // nil if not known
	text string
}

// statusOf finds the backend's answer in err. A typed OTLP error tells it; else a
// gRPC status anywhere in the chain; otlp_http leaves the HTTP status in the text
// only, and the gRPC code that it puts around it does not tell it: 400 becomes
// InvalidArgument, 413 Unknown and 429 ResourceExhausted.
func statusOf(err error) backendStatus {
	s := backendStatus{text: err.Error()}
	if _, typed := errors.AsType[*consumererror.Error](err); typed {
		// ToGRPCStatus panics without a typed error, and both derive one status
		// from the other, so they are asked only here.
		s.http, s.grpc = consumererror.ToHTTPStatus(err), consumererror.ToGRPCStatus(err)
		s.text += ": " + s.grpc.Message()
		return s
	}
	st, ok := status.FromError(err)
	switch s.http = httpStatusIn(s.text, httpStatusText); {
	case s.http != 0:
	case ok:
		s.grpc = st
	default:
		s.http = httpStatusIn(s.text, anyHTTPStatusText)
	}
	return s
}

func (s backendStatus) code() codes.Code {
	if s.grpc == nil {
		return codes.OK
	}
	return s.grpc.Code()
}

// tooLarge: 413 is meant for it. A 400 is one only if its text says so, which is
// what an OTLP receiver with max_request_body_size answers. gRPC has no code of
// its own: ResourceExhausted is also a quota, and only the text of the gRPC
// library tells which; that counts whatever the exporter calls it, an HTTP status
// only if nobody wants to try the same again.
func (s backendStatus) tooLarge(final bool) bool {
	switch s.http {
	case http.StatusRequestEntityTooLarge:
		return final
	case http.StatusBadRequest:
		return final && saysBodyTooLarge(s.text)
	}
	return s.code() == codes.ResourceExhausted && saysMessageTooLarge(s.text)
}

// destination: who we are, or where we knocked, was refused.
func (s backendStatus) destination() bool {
	switch s.http {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusProxyAuthRequired, http.StatusNotImplemented:
		return true
	}
	switch s.code() {
	case codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return true
	}
	return false
}

// refused: the backend has read the data and does not want it.
func (s backendStatus) refused() bool {
	switch s.http {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return true
	case 0:
		return s.code() == codes.InvalidArgument || s.code() == codes.FailedPrecondition
	}
	return false
}

// limit is the number of bytes that the text names as the most.
func (s backendStatus) limit() int { return limitIn(s.text) }

// retryDelay is the delay of a gRPC RetryInfo.
func (s backendStatus) retryDelay() time.Duration {
	if s.grpc == nil {
		return 0
	}
	for _, d := range s.grpc.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// isTLS says whether the connection was not trusted.
func isTLS(err error) bool {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var alert tls.AlertError
	return errors.As(err, &verification) || errors.As(err, &authority) ||
		errors.As(err, &host) || errors.As(err, &invalid) || errors.As(err, &alert)
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

// notPermanentError hides from errors.As what err is called, and keeps its identity for
// errors.Is.
type notPermanentError struct{ err error }

func (e notPermanentError) Error() string        { return e.err.Error() }
func (e notPermanentError) Is(target error) bool { return errors.Is(e.err, target) }

// NotPermanent returns err such that nobody takes it for permanent. Some exporters
// call it so when we end an attempt.
func NotPermanent(err error) error {
	if !IsPermanent(err) {
		return err
	}
	return notPermanentError{err}
}
