// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package settle

import (
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Of a text at most so much is read, from the front and from the end: a backend
// may echo what it got.
const (
	excerptHead = 4096
	excerptTail = 1024
)

func excerpt(text string) string {
	if len(text) <= excerptHead+excerptTail {
		return text
	}
	return text[:excerptHead] + " … " + text[len(text)-excerptTail:]
}

// httpStatusText is how exporters tell the HTTP status that they got: otlp_http
// ("responded with HTTP Status Code 413"), the remote-write exporter ("remote
// write returned HTTP status 413 Request Entity Too Large"), grpc-go of a proxy in
// between ("unexpected HTTP status code received from server: 413"), elasticsearch
// ("flush failed (413): ") and splunk_hec ("HTTP 413 \"Request Entity Too Large\"").
var httpStatusText = regexp.MustCompile(
	`(?:responded with HTTP Status Code |remote write returned HTTP status |unexpected HTTP status code received from server: |\bflush failed \()([1-5][0-9]{2})\b` +
		`|\bHTTP ([1-5][0-9]{2}) "`)

// looseStatusText is how others may tell it. A backend's own words look like that
// too, so it counts only where no other status is known.
var looseStatusText = regexp.MustCompile(`(?i)` +
	`\bhttp(?:/[0-9.]+)?(?: response)?(?: error)?(?: status)?(?: code)?[ :=]+"?([3-5][0-9]{2})\b` + // HTTP 413 "…", http status: 413
	`|\bstatus[ _-]?(?:code)?"?[ :=]+[("]?([3-5][0-9]{2})\b` + // status code 413, status=413, "statusCode":413
	`|\b(?:failed|error|responded|response|returned|code|server)(?: with)?(?: code)?[ :=]*[( "]([3-5][0-9]{2})\b` + // flush failed (413), returned 413
	`|\b([345][0-9]{2})[ :,"'-]+(?:bad request|unauthorized|forbidden|not found|method not allowed|proxy authentication required|gone\b|` +
	`(?:request entity|payload|content) too large|unsupported media type|misdirected request|unprocessable|not implemented|` +
	`moved permanently|temporary redirect|permanent redirect|too many requests|internal server error|bad gateway|service unavailable|gateway timeout)`)

// counted is what a number counts that is no status.
var counted = regexp.MustCompile(`^ ?(?i:bytes|items|records|logs?|spans|points|samples|metrics|events|entries|documents|messages|ms|seconds|times|%)`)

// permanentPrefix is what a permanent error puts in front of its cause. "error: 404"
// is none of the backend's words.
const permanentPrefix = "Permanent error: "

// httpStatusIn returns the HTTP status that a text tells in a known way, 0 if none.
func httpStatusIn(text string) int {
	m := httpStatusText.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	code, _ := strconv.Atoi(m[1] + m[2]) // one of them is empty
	return code
}

// looseStatusIn returns the first HTTP status that a text seems to tell, 0 if none.
func looseStatusIn(text string) int {
	text = strings.ReplaceAll(text, permanentPrefix, "")
	for _, at := range looseStatusText.FindAllStringSubmatchIndex(text, -1) {
		for g := 2; g < len(at); g += 2 {
			if at[g] >= 0 && !counted.MatchString(text[at[g+1]:]) {
				code, _ := strconv.Atoi(text[at[g]:at[g+1]])
				return code
			}
		}
	}
	return 0
}

// grpcStatusText is what the error of a gRPC status leaves of it in a text.
var grpcStatusText = regexp.MustCompile(`rpc error: code = (\w+) desc = `)

// grpcStatusIn returns the gRPC status that a text tells, nil if none.
func grpcStatusIn(text string) *status.Status {
	m := grpcStatusText.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		if c.String() == m[1] {
			return status.New(c, text)
		}
	}
	return nil
}

// says whether a text has words of a meaning.
func says(text string, m meaning) bool {
	for _, w := range wordsOf[m] {
		if w.pattern.MatchString(text) {
			return true
		}
	}
	return false
}

// sizeIn returns what a text tells of a request that is too large. Words that no
// library or server is known by may be about one item, and do not count if they
// name one.
func sizeIn(text string) (Verdict, bool) {
	if v, found := sizeBy(requestTooLarge, text); found {
		return v, true
	}
	v, found := sizeBy(maybeTooLarge, text)
	v.Ambiguous = v.Found == 0 || v.Limit == 0
	return v, found && !says(text, oneItem)
}

// sizeBy goes on until a row has found a limit: several know the same text.
func sizeBy(m meaning, text string) (v Verdict, found bool) {
	for _, w := range wordsOf[m] {
		if at := w.pattern.FindStringSubmatchIndex(text); at != nil && v.Limit == 0 {
			found, v.Class = true, TooLarge
			v.Found, v.Limit = w.numbers(text, at)
		}
	}
	return v, found
}

// countsItems is what follows a number that is none of bytes.
var countsItems = regexp.MustCompile(`^ ?(?:\w+ )?(?i:items|records|logs?|spans|(?:data )?points|samples|metrics|events|entries|documents|series|messages|rows|lines)\b`)

// numbers returns the size and the limit, in bytes, of a match; 0 if it has none.
// A size below its limit was no reason to refuse: neither is believed. Neither are
// those of a batch without a unit: they count items more often than bytes.
func (w words) numbers(text string, at []int) (found, limit int) {
	group := func(i int) string {
		if at[2*i] < 0 {
			return ""
		}
		return text[at[2*i]:at[2*i+1]]
	}
	for i, name := range w.pattern.SubexpNames() {
		number := group(i)
		if name == "" || number == "" {
			continue
		}
		if countsItems.MatchString(text[at[2*i+1]:]) {
			return 0, 0
		}
		if name == "found" {
			found = inBytes(number, "")
		} else { // the limit, whose unit follows
			limit = inBytes(number, group(i+1))
		}
	}
	if match := text[at[0]:at[1]]; w.meaning == maybeTooLarge && batchWord.MatchString(match) && !bytesWord.MatchString(match) {
		return 0, 0
	}
	if found > 0 && found <= limit {
		return 0, 0
	}
	return found, limit
}

var (
	batchWord = regexp.MustCompile(`(?i)\bbatch`)
	bytesWord = regexp.MustCompile(`(?i)bytes|\b[kmg]i?b\b|\d[kmg]i?b\b`)
)

// inBytes returns a number of a text, 0 if it is none or more than an int holds.
func inBytes(number, unit string) int {
	n, err := strconv.ParseInt(strings.NewReplacer(",", "", "_", "").Replace(number), 10, 64)
	if err != nil {
		return 0
	}
	scale := int64(1)
	if unit != "" {
		base := int64(1000)
		if strings.Contains(strings.ToLower(unit), "i") {
			base = 1024
		}
		switch unit[0] {
		case 'k', 'K':
			scale = base
		case 'm', 'M':
			scale = base * base
		case 'g', 'G':
			scale = base * base * base
		}
	}
	if n > (1<<62)/scale || int64(int(n*scale)) != n*scale {
		return 0
	}
	return int(n * scale)
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
