// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package payload sizes, cuts and merges the pdata of every signal. It knows
// nothing of queues, time or errors: one algorithm over a small tree, with one
// thin adapter per signal.
//
// Vocabulary: a request is the data of one incoming call, an item is a span, a
// log record, a data point or a profile sample, a batch is what leaves in one
// call.
package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

// Signal is all that the queue, the batcher and the sender know of one
// signal's data; T is plog.Logs, ptrace.Traces, pmetric.Metrics or
// pprofile.Profiles.
//
// Implementations hold nothing but scratch space: any number of goroutines may
// use them at a time. One value of T belongs to one goroutine at a time, but for
// Cut.
type Signal[T any] interface {
	// Items counts the items of data.
	Items(data T) int

	// Bytes is the exact protobuf size of data as an export request, which is
	// the number that a gRPC receiver compares to its limit.
	Bytes(data T) int

	// Cost is the number of bytes by which data can make a batch larger at the
	// most. It is Bytes, but for profiles, whose indices may need more bytes in
	// the dictionary of a batch than in their own. limit is the bound of the
	// batch in bytes, and 0 if there is none.
	Cost(data T, limit int) int

	// ExactCost says whether Cost is Bytes, so that who needs both computes one.
	ExactCost() bool

	// Index describes the positions of data's items, so that it can be cut. With
	// bytes it also holds what each item adds to a batch, and Fit may be called
	// with a limit. data must not be changed as long as the index is used, but
	// through Cut. With bytes, data that is not read-only is changed for a moment,
	// so nobody else may read it; so it is with Cost and a limit for profiles.
	Index(data T, bytes bool, limit int) *Index

	// Cut moves the items [from, to) of data, with the resource, scope and metric
	// or profile that they belong to, into a value of their own. Disjoint ranges
	// of the same data may be cut at the same time, and in any order, but cost
	// least one after the other from the front. All cuts must use the same index,
	// and data serves for nothing else any more. Groups without items are in no
	// cut.
	Cut(data T, ix *Index, from, to int) T

	// NewMerger returns a merger for the batches of one exporter. With
	// mergeResources it joins what has an equal resource and scope.
	NewMerger(mergeResources bool) Merger[T]

	// Clone is a deep copy of data that may be changed.
	Clone(data T) T

	// IsReadOnly says whether data is shared and must not be changed.
	IsReadOnly(data T) bool

	// Ref keeps data alive beyond the Consume call that brought it, and Unref
	// ends that, when the feature gate pdata.useProtoPooling is on.
	Ref(data T)
	Unref(data T)

	// Remainder is the part of a batch that the wrapped exporter reports as not
	// delivered, if err itself carries one (consumererror.Traces and its kind),
	// whatever it wraps. It may be empty.
	Remainder(err error) (T, bool)
}

// Merger makes batches. It may be used by any number of goroutines at a time.
type Merger[T any] interface {
	// Begin returns an empty batch. With ordered it takes note of which data each
	// item came with, and Order may be called.
	Begin(ordered bool) Batch[T]
}

// Batch is one batch in the making. It belongs to one goroutine.
type Batch[T any] interface {
	// Add moves all of data to the end of the batch, or next to what has an equal
	// resource and scope; data must not be used afterwards. The first data added
	// becomes the batch, so Unref must wait until the batch is done with.
	Add(data T)

	// Saved is the number of bytes by which the batch is at least smaller than
	// the sum of its parts, because equal resources and scopes were joined or
	// dictionary entries were shared. It is an estimate from below.
	Saved() int

	// Data is the batch. Add must not be called afterwards.
	Data() T

	// Order says which Add, counted from 0, brought which items, in the order in
	// which Data holds them: where resources are joined that is not the order in
	// which they were added.
	Order() []Run
}

// Run is a number of items next to each other that came with the same data.
type Run struct{ Source, Items int }
