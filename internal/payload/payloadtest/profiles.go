// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payloadtest // import "github.com/pullbatch/batcherexporter/internal/payload/payloadtest"

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

// SimpleProfiles makes samples numbered from firstID of one profile, with eight
// stacks among them.
func SimpleProfiles(items int, firstID int64) pprofile.Profiles {
	data := pprofile.NewProfiles()
	d := newTables(data.Dictionary())
	r := data.ResourceProfiles().AppendEmpty()
	simpleResource(r.Resource())
	s := r.ScopeProfiles().AppendEmpty()
	s.Scope().SetName("profiler")
	p := s.Profiles().AppendEmpty()
	p.SampleType().SetTypeStrindex(d.text("cpu"))
	p.SampleType().SetUnitStrindex(d.text("nanoseconds"))
	var stacks []int32
	for n := range 8 {
		d.StackTable().AppendEmpty().LocationIndices().FromRaw([]int32{
			d.simpleLocation("main"), d.simpleLocation("serve"), d.simpleLocation(fmt.Sprint("handle-", n)),
		})
		stacks = append(stacks, int32(d.StackTable().Len()-1))
	}
	thread := d.attribute("thread.name", pcommon.NewValueStr("worker"))
	p.Samples().EnsureCapacity(items)
	for i := range items {
		x := p.Samples().AppendEmpty()
		x.Values().Append(firstID + int64(i))
		x.TimestampsUnixNano().Append(1_700_000_000_000_000_000)
		x.SetStackIndex(stacks[i%len(stacks)])
		x.AttributeIndices().Append(thread)
	}
	return data
}

// RandomProfiles makes samples numbered from firstID, with a dictionary in which
// some entries are there twice, and some for nothing.
func RandomProfiles(rnd *rand.Rand, items int, firstID int64) pprofile.Profiles {
	data := pprofile.NewProfiles()
	d := newTables(data.Dictionary())
	d.fill(rnd, func(length int) int32 { return int32(rnd.IntN(length)) })
	fillProfiles(rnd, data, items, firstID, func(length int) int32 { return int32(rnd.IntN(length)) })
	return data
}

// MalformedProfiles is RandomProfiles with a dictionary that may lack the null
// entries or whole tables, and with references to what is not there.
func MalformedProfiles(rnd *rand.Rand, items int, firstID int64) pprofile.Profiles {
	data := pprofile.NewProfiles()
	d := tables{data.Dictionary(), map[string]int32{}}
	if rnd.IntN(2) == 0 {
		d = newTables(data.Dictionary())
	}
	wild := func(length int) int32 {
		if rnd.IntN(8) == 0 {
			return int32(rnd.Uint32()) // also below zero
		}
		return int32(rnd.IntN(length+3) - 1)
	}
	d.fill(rnd, wild)
	dic := d.ProfilesDictionary
	for _, drop := range []func(){
		func() { dic.StringTable().FromRaw(nil) },
		func() { dic.AttributeTable().RemoveIf(func(pprofile.KeyValueAndUnit) bool { return true }) },
		func() { dic.FunctionTable().RemoveIf(func(pprofile.Function) bool { return true }) },
		func() { dic.LinkTable().RemoveIf(func(pprofile.Link) bool { return true }) },
		func() { dic.MappingTable().RemoveIf(func(pprofile.Mapping) bool { return true }) },
		func() { dic.LocationTable().RemoveIf(func(pprofile.Location) bool { return true }) },
		func() { dic.StackTable().RemoveIf(func(pprofile.Stack) bool { return true }) },
	} {
		if rnd.IntN(12) == 0 {
			drop()
		}
	}
	fillProfiles(rnd, data, items, firstID, wild)
	return data
}

// fillProfiles makes everything but the dictionary. index picks an entry of a
// table of a given length.
func fillProfiles(rnd *rand.Rand, data pprofile.Profiles, items int, firstID int64, index func(int) int32) {
	for _, n := range split(rnd, items, 1+rnd.IntN(3)) {
		r := data.ResourceProfiles().AppendEmpty()
		r.SetSchemaUrl(randomResource(rnd, r.Resource()))
		for _, n := range split(rnd, n, 1+rnd.IntN(3)) {
			s := r.ScopeProfiles().AppendEmpty()
			s.SetSchemaUrl(randomScope(rnd, s.Scope()))
			for _, n := range split(rnd, n, 1+rnd.IntN(3)) {
				p := s.Profiles().AppendEmpty()
				randomProfile(rnd, p, data.Dictionary(), index)
				for range n {
					randomSample(rnd, p.Samples().AppendEmpty(), data.Dictionary(), index)
					p.Samples().At(p.Samples().Len() - 1).Values().FromRaw([]int64{firstID, rnd.Int64N(1000) - 1})
					firstID++
				}
			}
		}
	}
}

func randomProfile(rnd *rand.Rand, p pprofile.Profile, dic pprofile.ProfilesDictionary, index func(int) int32) {
	strs := dic.StringTable().Len()
	p.SampleType().SetTypeStrindex(index(strs))
	p.SampleType().SetUnitStrindex(index(strs))
	p.PeriodType().SetTypeStrindex(index(strs))
	p.PeriodType().SetUnitStrindex(index(strs))
	p.SetTime(randomTime(rnd))
	p.SetDurationNano(rnd.Uint64N(1000))
	p.SetPeriod(rnd.Int64N(1000) - 500)
	p.SetDroppedAttributesCount(rnd.Uint32N(3))
	if rnd.IntN(4) > 0 {
		p.SetProfileID(pprofile.ProfileID{byte(rnd.Uint32()), 15: 1})
	}
	if rnd.IntN(3) == 0 {
		p.SetOriginalPayloadFormat("pprof")
		p.OriginalPayload().FromRaw(make([]byte, rnd.IntN(300)))
	}
	randomIndices(rnd, p.AttributeIndices(), dic.AttributeTable().Len(), index)
}

func randomSample(rnd *rand.Rand, x pprofile.Sample, dic pprofile.ProfilesDictionary, index func(int) int32) {
	x.SetStackIndex(index(dic.StackTable().Len()))
	if rnd.IntN(2) == 0 {
		x.SetLinkIndex(index(dic.LinkTable().Len()))
	}
	randomIndices(rnd, x.AttributeIndices(), dic.AttributeTable().Len(), index)
	for range rnd.IntN(3) {
		x.TimestampsUnixNano().Append(rnd.Uint64())
	}
}

func randomIndices(rnd *rand.Rand, list pcommon.Int32Slice, length int, index func(int) int32) {
	for range rnd.IntN(4) {
		if length > 0 {
			list.Append(index(length))
		}
	}
}

// tables is a dictionary in the making.
type tables struct {
	pprofile.ProfilesDictionary
	texts map[string]int32
}

// newTables gives each table its null entry.
func newTables(dic pprofile.ProfilesDictionary) tables {
	dic.StringTable().Append("")
	dic.AttributeTable().AppendEmpty()
	dic.FunctionTable().AppendEmpty()
	dic.LinkTable().AppendEmpty()
	dic.MappingTable().AppendEmpty()
	dic.LocationTable().AppendEmpty()
	dic.StackTable().AppendEmpty()
	return tables{dic, map[string]int32{"": 0}}
}

func (d tables) text(s string) int32 {
	if i, ok := d.texts[s]; ok {
		return i
	}
	d.StringTable().Append(s)
	d.texts[s] = int32(d.StringTable().Len() - 1)
	return d.texts[s]
}

func (d tables) attribute(key string, v pcommon.Value) int32 {
	a := d.AttributeTable().AppendEmpty()
	a.SetKeyStrindex(d.text(key))
	v.CopyTo(a.Value())
	return int32(d.AttributeTable().Len() - 1)
}

func (d tables) simpleLocation(function string) int32 {
	f := d.FunctionTable().AppendEmpty()
	f.SetNameStrindex(d.text(function))
	f.SetFilenameStrindex(d.text(function + ".go"))
	l := d.LocationTable().AppendEmpty()
	l.SetAddress(0xc0ffee)
	l.Lines().AppendEmpty().SetFunctionIndex(int32(d.FunctionTable().Len() - 1))
	return int32(d.LocationTable().Len() - 1)
}

// fill makes entries of every kind, from few values, so that some are equal.
// They refer to entries that are there already.
func (d tables) fill(rnd *rand.Rand, index func(int) int32) {
	strs := func() int32 { return index(d.StringTable().Len()) }
	for range 12 {
		d.StringTable().Append(randomText(rnd, 1+rnd.IntN(12)))
	}
	for range 10 {
		a := d.AttributeTable().AppendEmpty()
		a.SetKeyStrindex(strs())
		a.SetUnitStrindex(strs())
		values := pcommon.NewMap()
		randomAttributes(rnd, values, rnd.IntN(variants-7))
		for _, v := range values.All() {
			v.CopyTo(a.Value())
		}
	}
	for range 10 {
		f := d.FunctionTable().AppendEmpty()
		f.SetNameStrindex(strs())
		f.SetSystemNameStrindex(strs())
		f.SetFilenameStrindex(strs())
		f.SetStartLine(int64(rnd.IntN(3) - 1))
		l := d.LinkTable().AppendEmpty()
		l.SetTraceID(randomTraceID(rnd))
		l.SetSpanID(randomSpanID(rnd))
	}
	d.fillStacks(rnd, index)
}

func (d tables) fillStacks(rnd *rand.Rand, index func(int) int32) {
	for range 6 {
		m := d.MappingTable().AppendEmpty()
		m.SetMemoryStart(rnd.Uint64N(3))
		m.SetMemoryLimit(rnd.Uint64N(1 << 40))
		m.SetFileOffset(rnd.Uint64N(3))
		m.SetFilenameStrindex(index(d.StringTable().Len()))
		randomIndices(rnd, m.AttributeIndices(), d.AttributeTable().Len(), index)
	}
	for range 15 {
		l := d.LocationTable().AppendEmpty()
		l.SetAddress(rnd.Uint64N(3))
		l.SetMappingIndex(index(d.MappingTable().Len()))
		randomIndices(rnd, l.AttributeIndices(), d.AttributeTable().Len(), index)
		for range rnd.IntN(3) {
			line := l.Lines().AppendEmpty()
			line.SetFunctionIndex(index(d.FunctionTable().Len()))
			line.SetLine(rnd.Int64N(300) - 1)
			line.SetColumn(rnd.Int64N(2))
		}
	}
	for range 10 {
		randomIndices(rnd, d.StackTable().AppendEmpty().LocationIndices(), d.LocationTable().Len(), index)
	}
}

// IDsProfiles returns the identities of the samples: their first values.
func IDsProfiles(data pprofile.Profiles) []int64 {
	var ids []int64
	eachSample(data, func(_ pprofile.ResourceProfiles, _ pprofile.ScopeProfiles, _ pprofile.Profile, x pprofile.Sample) {
		ids = append(ids, sampleID(x))
	})
	return ids
}

func sampleID(x pprofile.Sample) int64 {
	if x.Values().Len() == 0 {
		return -1
	}
	return x.Values().At(0)
}

// FlattenProfiles returns a line for each sample, with every index looked up. An
// index that points nowhere looks like one to a null entry. The original payload
// of a profile is not in it: it belongs to no sample.
func FlattenProfiles(data pprofile.Profiles) []string {
	var lines []string
	v := view{data.Dictionary()}
	eachSample(data, func(r pprofile.ResourceProfiles, s pprofile.ScopeProfiles, p pprofile.Profile, x pprofile.Sample) {
		lines = append(lines, fmt.Sprintf("%s %s | profile %s %s %d %d %d %d %s %q %s sample %d %s %s %s %v %v",
			formatResource(r.Resource(), r.SchemaUrl()), formatScope(s.Scope(), s.SchemaUrl()),
			v.valueType(p.SampleType()), v.valueType(p.PeriodType()), p.Period(), p.Time(), p.DurationNano(),
			p.DroppedAttributesCount(), p.ProfileID(), p.OriginalPayloadFormat(), v.attributes(p.AttributeIndices()),
			sampleID(x), v.stack(x.StackIndex()), v.link(x.LinkIndex()), v.attributes(x.AttributeIndices()),
			x.Values().AsRaw(), x.TimestampsUnixNano().AsRaw()))
	})
	return lines
}

func eachSample(
	data pprofile.Profiles,
	f func(pprofile.ResourceProfiles, pprofile.ScopeProfiles, pprofile.Profile, pprofile.Sample),
) {
	for _, r := range data.ResourceProfiles().All() {
		for _, s := range r.ScopeProfiles().All() {
			for _, p := range s.Profiles().All() {
				for _, x := range p.Samples().All() {
					f(r, s, p, x)
				}
			}
		}
	}
}

// view looks up indices.
type view struct{ pprofile.ProfilesDictionary }

func (v view) text(i int32) string {
	if i < 0 || int(i) >= v.StringTable().Len() {
		return ""
	}
	return v.StringTable().At(int(i))
}

func (v view) valueType(t pprofile.ValueType) string {
	return fmt.Sprintf("%q/%q", v.text(t.TypeStrindex()), v.text(t.UnitStrindex()))
}

func (v view) attributes(list pcommon.Int32Slice) string {
	var parts []string
	for _, i := range list.All() {
		a, v := lookUp(v, v.AttributeTable(), i, pprofile.NewKeyValueAndUnit)
		parts = append(parts, fmt.Sprintf("%q=%s %q", v.text(a.KeyStrindex()), formatValue(a.Value()), v.text(a.UnitStrindex())))
	}
	return "{" + strings.Join(parts, " ") + "}"
}

func (v view) link(i int32) string {
	l, _ := lookUp(v, v.LinkTable(), i, pprofile.NewLink)
	return fmt.Sprintf("link %s/%s", l.TraceID(), l.SpanID())
}

func (v view) stack(i int32) string {
	stack, v := lookUp(v, v.StackTable(), i, pprofile.NewStack)
	var b strings.Builder
	for _, i := range stack.LocationIndices().All() {
		l, v := lookUp(v, v.LocationTable(), i, pprofile.NewLocation)
		fmt.Fprintf(&b, "[%x %s in %s", l.Address(), v.attributes(l.AttributeIndices()), v.mapping(l.MappingIndex()))
		for _, line := range l.Lines().All() {
			f, v := lookUp(v, v.FunctionTable(), line.FunctionIndex(), pprofile.NewFunction)
			fmt.Fprintf(&b, " %q(%q) in %q:%d at %d:%d", v.text(f.NameStrindex()), v.text(f.SystemNameStrindex()),
				v.text(f.FilenameStrindex()), f.StartLine(), line.Line(), line.Column())
		}
		b.WriteString("]")
	}
	return b.String()
}

func (v view) mapping(i int32) string {
	m, v := lookUp(v, v.MappingTable(), i, pprofile.NewMapping)
	return fmt.Sprintf("%q %x-%x+%x %s", v.text(m.FilenameStrindex()), m.MemoryStart(), m.MemoryLimit(), m.FileOffset(),
		v.attributes(m.AttributeIndices()))
}

// lookUp returns the entry of a table, and the view for what it refers to: a null
// entry that refers to nothing if the index points nowhere.
func lookUp[E any](v view, table interface {
	Len() int
	At(int) E
}, i int32, null func() E,
) (E, view) {
	if i < 0 || int(i) >= table.Len() {
		return null(), view{pprofile.NewProfilesDictionary()}
	}
	return table.At(int(i)), v
}
