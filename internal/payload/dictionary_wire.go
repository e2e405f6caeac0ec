// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

import (
	"encoding/binary"
	"iter"
)

// What the API of pdata does not show is to be found in what it marshals. This
// reads the fields of a protobuf message that pdata wrote.

// The fields of AnyValue and of KeyValue that matter here.
const (
	valueList      = 5
	valueMap       = 6
	valueReference = 8

	entryKey       = 1
	entryValue     = 2
	entryReference = 3
)

// anyField is for all fields of a message.
const anyField = 0

// field is one of a message: a number, or bytes.
type field struct {
	number  int
	varint  uint64
	content []byte
}

// index is the number as a reference.
func (f field) index() int32 { return int32(f.varint) }

// fields yields the fields of a message that have the given number, up to the
// first that makes no sense.
func fields(message []byte, number int) iter.Seq[field] {
	return func(yield func(field) bool) {
		for len(message) > 0 {
			f, rest, ok := readField(message)
			if !ok || (number == anyField || f.number == number) && !yield(f) {
				return
			}
			message = rest
		}
	}
}

func readField(b []byte) (f field, rest []byte, ok bool) {
	tag, n := binary.Uvarint(b)
	if n <= 0 {
		return f, nil, false
	}
	f.number, b = int(tag>>3), b[n:]
	length := uint64(0)
	switch tag & 7 {
	case 0:
		if f.varint, n = binary.Uvarint(b); n <= 0 {
			return f, nil, false
		}
		return f, b[n:], true
	case 1:
		length = 8
	case 2:
		if length, n = binary.Uvarint(b); n <= 0 {
			return f, nil, false
		}
		b = b[n:]
	case 5:
		length = 4
	default:
		return f, nil, false
	}
	if length > uint64(len(b)) {
		return f, nil, false
	}
	f.content = b[:length]
	return f, b[length:], true
}
