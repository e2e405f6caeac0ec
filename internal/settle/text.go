// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package settle

import (
	"errors"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.uber.org/multierr"
)

// httpStatusText is how exporters tell the HTTP status that they got: otlp_http
// ("responded with HTTP Status Code 413"), the remote-write exporter ("remote
// write returned HTTP status 413 Request Entity Too Large"), and grpc-go of a
// proxy in between ("unexpected HTTP status code received from server: 413").
var httpStatusText = regexp.MustCompile(
	`(?:responded with HTTP Status Code |remote write returned HTTP status |unexpected HTTP status code received from server: )([1-5][0-9]{2})\b`)

// anyHTTPStatusText is how others may tell it. A backend's own words look like
// that too, so it counts only where no other status is known.
var anyHTTPStatusText = regexp.MustCompile(`(?i)\bhttp status(?: code)?[ :=]+([1-5][0-9]{2})\b`)

// httpStatusIn returns the HTTP status that a text tells, 0 if none.
func httpStatusIn(text string, pattern *regexp.Regexp) int {
	m := pattern.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	code, _ := strconv.Atoi(m[1])
	return code
}

// messageTooLarge are the texts of grpc-go: a message received or sent above the
// limit, before or after decompression.
var messageTooLarge = regexp.MustCompile(`(?i)message (?:after decompression )?larger than max`)

func saysMessageTooLarge(text string) bool { return messageTooLarge.MatchString(text) }

// saysUntrusted says whether the text is of a certificate that is not trusted.
// grpc-go leaves only a status with that text ("transport: authentication
// handshake failed: tls: failed to verify certificate: x509: ...").
func saysUntrusted(text string) bool {
	return strings.Contains(text, "x509: ") || strings.Contains(text, "tls: failed to verify certificate")
}

// bodyTooLarge is the text of net/http's MaxBytesError and its like.
var bodyTooLarge = regexp.MustCompile(`(?i)(?:body|payload|entity) (?:is )?too large`)

func saysBodyTooLarge(text string) bool { return bodyTooLarge.MatchString(text) }

// namedLimit is the limit in a text of grpc-go: "(5242880 vs. 4194304)", where the
// second is the limit, or "larger than max 4194304".
var namedLimit = regexp.MustCompile(`larger than max \(?(?:\d+ vs\. )?(\d+)`)

// limitIn returns the limit in bytes that a text names, 0 if none.
func limitIn(text string) int {
	m := namedLimit.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	limit, err := strconv.Atoi(m[1])
	if err != nil {
		return 0 // more digits than an int has: no limit that matters
	}
	return limit
}

// withoutNumbers makes two texts equal that differ in numbers only: positions,
// sizes, request IDs.
func withoutNumbers(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
}

// joins are the types of errors that stand for several at once. An error of
// fmt.Errorf with two %w is none: there one says what the other is.
var joins = map[reflect.Type]bool{
	reflect.TypeOf(errors.Join(errors.New(""))):                      true,
	reflect.TypeOf(multierr.Combine(errors.New(""), errors.New(""))): true,
}

// Branches returns the errors that err stands for: those that it joins, however
// deep, or err itself.
func Branches(err error) []error {
	parts := joined(err)
	if parts == nil {
		return []error{err}
	}
	var all []error
	for _, e := range parts {
		all = append(all, Branches(e)...)
	}
	return all
}

// joined returns the errors that err joins, below wrappers that add a text only;
// nil if it is not a join. A permanent wrapper around a join makes all of it
// permanent.
func joined(err error) []error {
	for err != nil && !isOwnClass(err) {
		if joins[reflect.TypeOf(err)] {
			if many, ok := err.(interface{ Unwrap() []error }); ok {
				return many.Unwrap()
			}
		}
		err = errors.Unwrap(err)
	}
	return nil
}

// The types of errors that say of all that they wrap what it is.
var (
	permanentType = reflect.TypeOf(consumererror.NewPermanent(errors.New("probe")))
	typedType     = reflect.TypeOf(consumererror.NewRetryableError(errors.New("probe")))
)

// isOwnClass says whether err itself, whatever it wraps, says what it is.
func isOwnClass(err error) bool {
	t := reflect.TypeOf(err)
	return t == permanentType || t == throttleType || t == typedType
}
