// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package settle

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"time"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// answer is what is known of the backend's answer.
type answer struct {
	http  int            // 0 if not known
	grpc  *status.Status // nil if not known
	loose bool           // the HTTP status was read from words that may be another's
	text  string
}

// hasStatus says whether a node itself carries a status, which decides for all
// below it.
func hasStatus(err error) bool {
	switch e := err.(type) { //nolint:errorlint // the node alone
	case *consumererror.Error:
		http, grpc := ownStatus(e)
		return http != 0 || grpc != nil
	case grpcStatuser:
		return true
	}
	return false
}

// answerOf reads the backend's answer from the node that has a status, or is a
// leaf, and the text of all that is around it. otlp_http leaves the HTTP status in
// the text only, and the gRPC code that it puts around it does not tell it: 400
// becomes InvalidArgument, 413 Unknown and 429 ResourceExhausted.
func answerOf(whole, node error) answer {
	a := answer{text: excerpt(whole.Error())}
	if typed, ok := node.(*consumererror.Error); ok { //nolint:errorlint // the node alone
		if a.http, a.grpc = ownStatus(typed); a.grpc != nil {
			a.text += ": " + excerpt(a.grpc.Message())
		}
		return a
	}
	if a.http = httpStatusIn(a.text); a.http != 0 {
		return a
	}
	if s, ok := node.(grpcStatuser); ok {
		a.grpc = s.GRPCStatus()
		return a
	}
	if a.grpc = grpcStatusIn(a.text); a.grpc == nil {
		a.http, a.loose = looseStatusIn(a.text), true
	}
	return a
}

func (a answer) code() codes.Code {
	if a.grpc == nil {
		return codes.OK
	}
	return a.grpc.Code()
}

// verdict returns what the answer means. A status decides before the numbers in a
// text, and those before words; a text that is not known decides nothing.
func (a answer) verdict(err error, c claim) Verdict {
	v := Verdict{Class: Permanent}
	size, tooLarge := a.tooLarge(c.final)
	switch {
	case a.ended():
		return Verdict{Class: Unknown}
	case tooLarge:
		v = size
	case isTLS(err), a.distrusted():
		v.Class = Destination
	case says(a.text, noRedirect):
		v.Class, v.Address = Destination, true
	case !c.final, a.cut(), a.http == 0 && a.grpc == nil && anywhere(err, isNetworkNode):
		v.Class, v.Delay = Retryable, max(c.delay, a.retryDelay())
	case a.refusesUs():
		v.Class = Destination
	case a.refusesAddress():
		v.Class, v.Address = Destination, true
	case a.refused():
		v.Class, v.Kept = Refused, says(a.text, keptRest)
		v.Undecoded = !v.Kept && says(a.text, undecoded)
	default:
		v.Kept = says(a.text, keptRest)
	}
	v = v.under(c)
	if !v.Retry() {
		v.cause = withoutNumbers(a.text)
	}
	return v
}

// under lets the outermost wrapper overrule what one below it, without a status,
// calls permanent.
func (v Verdict) under(c claim) Verdict {
	if c.outer == claimsRetry {
		if v.Class == Permanent || v.Class == Refused && c.delay > 0 {
			v = Verdict{Class: Retryable}
		}
		v.Delay = max(v.Delay, c.delay)
	}
	if v.Class == Retryable && v.Delay > 0 {
		v.Class = Throttled
	}
	return v
}

// ended says whether there was no answer in time. The words count where nothing
// else is known: a backend that refuses may quote another's deadline.
func (a answer) ended() bool {
	switch a.code() {
	case codes.DeadlineExceeded, codes.Canceled:
		return true
	case codes.OK, codes.Unknown, codes.Internal:
		return (a.http == 0 || a.http >= http.StatusInternalServerError) && says(a.text, deadline)
	}
	return false
}

// tooLarge: 413 is meant for it. Everywhere else the text has to tell, since gRPC
// has no code of its own (ResourceExhausted is also a quota) and an OTLP receiver
// with max_request_body_size answers 400. A text of a library counts whatever the
// exporter calls it.
func (a answer) tooLarge(final bool) (Verdict, bool) {
	v, found := sizeIn(a.text)
	sure := found && !v.Ambiguous
	switch a.http {
	case http.StatusRequestEntityTooLarge:
		v.Class, v.Ambiguous = TooLarge, false
		return v, !a.loose || final || sure || says(a.text, gotStatus413)
	case 0, http.StatusBadRequest, http.StatusUnprocessableEntity:
		return v, a.codeAllows(v, sure, found && final)
	case http.StatusTooManyRequests, http.StatusInternalServerError:
		// A gateway makes these of a gRPC status, and leaves its text.
		return v, sure && v.Limit > 0
	}
	return v, a.loose && a.codeAllows(v, sure, found && final)
}

// codeAllows says whether a gRPC code, or none, goes with a size that a text tells:
// for sure, or maybe and the exporter will not try again.
func (a answer) codeAllows(v Verdict, sure, maybe bool) bool {
	switch a.code() {
	case codes.OK, codes.ResourceExhausted, codes.OutOfRange, codes.InvalidArgument:
		return sure || maybe
	case codes.Unknown, codes.FailedPrecondition:
		return sure
	case codes.Internal:
		return sure && v.Limit > 0
	}
	return false
}

// distrusted says whether the connection was not trusted, where the error is a text
// only: that of grpc-go, or an alert of crypto/tls.
func (a answer) distrusted() bool {
	return a.http == 0 && (a.grpc == nil || a.code() == codes.Unavailable) && says(a.text, untrusted)
}

// cut says whether a connection ended before there was an answer, where the code
// does not tell: gRPC libraries call that Internal or Unknown.
func (a answer) cut() bool {
	switch a.code() {
	case codes.Internal, codes.Unknown, codes.Unavailable:
		return a.http == 0 && !says(a.text, undecoded) && says(a.text, cutStream)
	}
	return a.http == http.StatusRequestTimeout
}

// refusesUs says whether it is the sender who is refused.
func (a answer) refusesUs() bool {
	switch a.http {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusNetworkAuthenticationRequired:
		return true
	}
	return a.code() == codes.Unauthenticated || a.code() == codes.PermissionDenied
}

// refusesAddress says whether nobody is there who takes such data. Redirects come
// as errors where they cannot be followed.
func (a answer) refusesAddress() bool {
	switch a.http {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
		http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusUnsupportedMediaType,
		http.StatusMisdirectedRequest, http.StatusUpgradeRequired, http.StatusNotImplemented:
		return true
	case 0:
		return a.code() == codes.Unimplemented || a.code() != codes.OK && says(a.text, noGRPC)
	}
	return a.code() == codes.Unimplemented
}

// refused: the backend has read the data and does not want it, or an encoder or
// decoder could not.
func (a answer) refused() bool {
	switch a.http {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return true
	}
	switch a.code() {
	case codes.InvalidArgument, codes.FailedPrecondition:
		return a.http == 0
	case codes.OK, codes.Internal, codes.Unknown:
		return (a.http == 0 || a.http == http.StatusInternalServerError) && says(a.text, undecoded)
	}
	return false
}

// retryDelay is the delay of a gRPC RetryInfo.
func (a answer) retryDelay() time.Duration {
	if a.grpc == nil {
		return 0
	}
	for _, d := range a.grpc.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// isNetworkNode says whether a node is a failure of a connection of ours, which
// some exporters call permanent.
func isNetworkNode(err error) bool {
	switch err.(type) { //nolint:errorlint // the node alone
	case *net.OpError, *net.DNSError:
		return true
	}
	return false
}

// isTLS says whether the connection was not trusted.
func isTLS(err error) bool { return anywhere(err, isTLSNode) }

func isTLSNode(err error) bool {
	switch err.(type) { //nolint:errorlint // the node alone
	case *tls.CertificateVerificationError, tls.AlertError,
		x509.UnknownAuthorityError, x509.HostnameError, x509.CertificateInvalidError:
		return true
	}
	return false
}
