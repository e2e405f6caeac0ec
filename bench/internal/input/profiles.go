// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package input

import (
	"fmt"

	"go.opentelemetry.io/collector/pdata/pprofile"
)

// The program of which profiles are taken. Its stacks share what is near their
// root, and some of them are seen far more often than others.
const (
	programStacks    = 256
	programLocations = 1024
	programFunctions = programLocations / 2
	programFiles     = 64
	programThreads   = 8
	commonFrames     = 4
	leastFrames      = 8
	mostFrames       = 24
	samplePeriod     = 50_000_000 // nanoseconds: twenty samples a second
)

// profiles makes samples of one profile, as a profiler sends them: with a
// dictionary that has all that these samples need, and nothing else.
func profiles(resource, first, items int) pprofile.Profiles {
	data := pprofile.NewProfiles()
	d := newDictionary(data.Dictionary())
	rp := data.ResourceProfiles().AppendEmpty()
	fillResource(rp.Resource(), resource)
	sp := rp.ScopeProfiles().AppendEmpty()
	sp.Scope().SetName("go.opentelemetry.io/ebpf-profiler")
	sp.Scope().SetVersion("0.0.202611")
	p := sp.Profiles().AppendEmpty()
	p.SetProfileID(pprofile.ProfileID{3, byte(first >> 24), byte(first >> 16), byte(first >> 8), byte(first)})
	p.SetTime(timestamp(first))
	p.SetDurationNano(samplePeriod * uint64(items)) //nolint:gosec // a number of items is not negative
	p.SetPeriod(samplePeriod)
	d.fillType(p.SampleType(), "samples", "count")
	d.fillType(p.PeriodType(), "cpu", "nanoseconds")
	p.Samples().EnsureCapacity(items)
	for i := first; i < first+items; i++ {
		x := p.Samples().AppendEmpty()
		x.SetStackIndex(d.stack(stackOf(i)))
		x.Values().Append(int64(1 + i%3))
		x.TimestampsUnixNano().Append(uint64(timestamp(i)))
		x.AttributeIndices().Append(d.thread(i % programThreads))
	}
	return data
}

// stackOf is the stack of a sample. The square makes a few of them hot.
func stackOf(i int) int {
	const steps = 1000
	at := i * 7919 % steps
	return at * at * programStacks / (steps * steps)
}

// kind is a table of a dictionary whose entries are numbered by the program.
type kind int

const (
	stackKind kind = iota
	locationKind
	functionKind
	mappingKind
	threadKind
)

type entry struct {
	kind   kind
	number int
}

// dictionary is the dictionary of one request in the making.
type dictionary struct {
	pprofile.ProfilesDictionary
	texts   map[string]int32
	entries map[entry]int32
}

// newDictionary gives each table the null entry that it has to begin with.
func newDictionary(d pprofile.ProfilesDictionary) dictionary {
	d.StringTable().Append("")
	d.AttributeTable().AppendEmpty()
	d.FunctionTable().AppendEmpty()
	d.LinkTable().AppendEmpty()
	d.MappingTable().AppendEmpty()
	d.LocationTable().AppendEmpty()
	d.StackTable().AppendEmpty()
	return dictionary{d, map[string]int32{"": 0}, map[entry]int32{}}
}

// once is the index of an entry, which add appends to a table if it is new.
func (d dictionary) once(k kind, number int, add func() (length int)) int32 {
	i, known := d.entries[entry{k, number}]
	if !known {
		i = last(add())
		d.entries[entry{k, number}] = i
	}
	return i
}

// last is the index of the last entry of a table.
func last(length int) int32 { return int32(length - 1) } //nolint:gosec // tables are small

func (d dictionary) text(s string) int32 {
	i, known := d.texts[s]
	if !known {
		d.StringTable().Append(s)
		i = last(d.StringTable().Len())
		d.texts[s] = i
	}
	return i
}

func (d dictionary) fillType(v pprofile.ValueType, name, unit string) {
	v.SetTypeStrindex(d.text(name))
	v.SetUnitStrindex(d.text(unit))
}

func (d dictionary) thread(n int) int32 {
	return d.once(threadKind, n, func() int {
		a := d.AttributeTable().AppendEmpty()
		a.SetKeyStrindex(d.text("thread.name"))
		a.Value().SetStr(fmt.Sprintf("worker-%d", n))
		return d.AttributeTable().Len()
	})
}

// stack has its leaf first.
func (d dictionary) stack(n int) int32 {
	return d.once(stackKind, n, func() int {
		frames := leastFrames + n%(mostFrames-leastFrames+1)
		indices := make([]int32, 0, frames)
		for depth := frames - 1; depth >= 0; depth-- {
			location := depth
			if depth >= commonFrames {
				location = (n*211 + depth*37) % programLocations
			}
			indices = append(indices, d.location(location))
		}
		d.StackTable().AppendEmpty().LocationIndices().FromRaw(indices)
		return d.StackTable().Len()
	})
}

// location is a call, of which every function of the program has two.
func (d dictionary) location(n int) int32 {
	return d.once(locationKind, n, func() int {
		function := n % programFunctions
		l := d.LocationTable().AppendEmpty()
		l.SetAddress(uint64(0x400000 + 64*n)) //nolint:gosec // a location's number is not negative
		l.SetMappingIndex(d.mapping(function % 8 / 7))
		line := l.Lines().AppendEmpty()
		line.SetFunctionIndex(d.function(function))
		line.SetLine(int64(20 + n))
		return d.LocationTable().Len()
	})
}

func (d dictionary) function(n int) int32 {
	return d.once(functionKind, n, func() int {
		f := d.FunctionTable().AppendEmpty()
		f.SetNameStrindex(d.text(fmt.Sprintf("github.com/example/shop/orders.(*Service%d).handle%d", n%programFiles, n)))
		f.SetFilenameStrindex(d.text(fmt.Sprintf("/src/shop/orders/service%d.go", n%programFiles)))
		f.SetStartLine(int64(10 + n))
		return d.FunctionTable().Len()
	})
}

// mapping is the program or its library.
func (d dictionary) mapping(n int) int32 {
	return d.once(mappingKind, n, func() int {
		m := d.MappingTable().AppendEmpty()
		m.SetMemoryStart(uint64(0x400000 * (n + 1))) //nolint:gosec // a mapping's number is not negative
		m.SetMemoryLimit(uint64(0x400000 * (n + 2))) //nolint:gosec // as above
		m.SetFilenameStrindex(d.text([]string{"/usr/bin/orders", "/usr/lib/x86_64-linux-gnu/libc.so.6"}[n]))
		return d.MappingTable().Len()
	})
}
