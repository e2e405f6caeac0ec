// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package settle decides what an error of the wrapped exporter means for the
// data that was sent. It is the only place that tells retryable from permanent.
package settle // import "github.com/pullbatch/batcherexporter/internal/settle"

import (
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/collector/consumer/consumererror"
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

	// Unknown is any error after the attempt was cancelled or timed out, by us or by
	// the wrapped exporter. Some call that permanent; it says nothing about the data.
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

	Limit     int  // of TooLarge: the limit in bytes that the text names; 0 if none
	Found     int  // of TooLarge: the size in bytes that the text says was found; 0 if none
	Ambiguous bool // of TooLarge: only words say so, and they may be about one item's content

	Address   bool // of Destination: what refuses is the address, not who we are
	Undecoded bool // of Refused: an encoder or decoder refused it, before anything was kept
	Kept      bool // of Refused and Permanent: what is good of the request was kept

	cause string // what the backend said, without its numbers
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
//
// An attempt has one verdict: if anything in the tree of err ended by a deadline,
// nothing of it is judged.
func Of(err error, cancelled bool) Verdict {
	if cancelled || ended(err) {
		return Verdict{Class: Unknown}
	}
	return judge(err, claim{})
}

// judge returns what err means below wrappers that make a claim.
func judge(err error, c claim) Verdict {
	above := error(nil)
	for e := err; ; {
		c = c.under(e, above)
		if hasStatus(e) {
			return answerOf(err, e).verdict(err, c)
		}
		switch below := branches(e); len(below) {
		case 0:
			return answerOf(err, e).verdict(err, c)
		case 1:
			above, e = e, below[0]
		default:
			return ofJoined(below, c)
		}
	}
}

// rank orders the classes of joined errors: what must not be lost comes first. A
// join with one permanent part is permanent to consumererror.IsPermanent, and
// its retryable part would be thrown away.
var rank = map[Class]int{Unknown: 1, TooLarge: 2, Throttled: 3, Retryable: 4, Destination: 5, Refused: 6, Permanent: 7}

// ofJoined returns what a join means: the class that loses the least, and the
// longest delay. Where some parts tell what is left and one tells nothing, all of
// it has to be sent again: a permanent wrapper around them cannot mean that one.
func ofJoined(parts []error, c claim) (best Verdict) {
	partial := slices.ContainsFunc(parts, func(e error) bool { return anywhere(e, isRemainder) })
	for i, e := range parts {
		own := c
		if partial && c.outer == claimsFinal && silent(e) {
			own = claim{}
		}
		v := judge(e, own)
		switch {
		case i == 0:
			best = v
		case rank[v.Class] < rank[best.Class]:
			best = v.beside(best)
		default:
			best = best.beside(v)
		}
	}
	return best
}

// beside returns v, which is not after o in rank, as the verdict of a join with o.
func (v Verdict) beside(o Verdict) Verdict {
	v.Delay = max(v.Delay, o.Delay)
	v.Kept = v.Kept || o.Kept && !v.Retry() && v.Class != TooLarge
	if v.Class != o.Class {
		return v
	}
	v.Ambiguous = v.Ambiguous && o.Ambiguous
	v.Address = v.Address && o.Address
	v.Undecoded = v.Undecoded && o.Undecoded
	if v.Limit == 0 || o.Limit > 0 && o.Limit < v.Limit {
		v.Limit, v.Found = o.Limit, o.Found
	}
	return v
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
