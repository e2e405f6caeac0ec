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
	pick := picker{rnd, func(length int) int32 { return int32(rnd.IntN(length)) }}
	d.fill(pick)
	fillProfiles(pick, data, items, firstID)
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
	pick := picker{rnd, func(length int) int32 {
		if rnd.IntN(8) == 0 {
			return int32(rnd.Uint32()) // also below zero
		}
		return int32(rnd.IntN(length+3) - 1)
	}}
	d.fill(pick)
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
	fillProfiles(pick, data, items, firstID)
	return data
}

// picker also picks entries of tables of a given length.
type picker struct {
	*rand.Rand
	index func(length int) int32
}

// indices adds some to a list.
func (pick picker) indices(list pcommon.Int32Slice, length int) {
	for range pick.IntN(4) {
		if length > 0 {
			list.Append(pick.index(length))
		}
	}
}

// fillProfiles makes everything but the dictionary.
func fillProfiles(pick picker, data pprofile.Profiles, items int, firstID int64) {
	rnd := pick.Rand
	for _, n := range split(rnd, items, 1+rnd.IntN(3)) {
		r := data.ResourceProfiles().AppendEmpty()
		r.SetSchemaUrl(randomResource(rnd, r.Resource()))
		for _, n := range split(rnd, n, 1+rnd.IntN(3)) {
			s := r.ScopeProfiles().AppendEmpty()
			s.SetSchemaUrl(randomScope(rnd, s.Scope()))
			for _, n := range split(rnd, n, 1+rnd.IntN(3)) {
				p := s.Profiles().AppendEmpty()
				pick.profile(p, data.Dictionary())
				for range n {
					x := p.Samples().AppendEmpty()
					pick.sample(x, data.Dictionary())
					x.Values().FromRaw([]int64{firstID, rnd.Int64N(1000) - 1})
					firstID++
				}
			}
		}
	}
}

func (pick picker) profile(p pprofile.Profile, dic pprofile.ProfilesDictionary) {
	texts := dic.StringTable().Len()
	p.SampleType().SetTypeStrindex(pick.index(texts))
	p.SampleType().SetUnitStrindex(pick.index(texts))
	p.PeriodType().SetTypeStrindex(pick.index(texts))
	p.PeriodType().SetUnitStrindex(pick.index(texts))
	p.SetTime(randomTime(pick.Rand))
	p.SetDurationNano(pick.Uint64N(1000))
	p.SetPeriod(pick.Int64N(1000) - 500)
	p.SetDroppedAttributesCount(pick.Uint32N(3))
	if pick.IntN(4) > 0 {
		p.SetProfileID(pprofile.ProfileID{byte(pick.Uint32()), 15: 1})
	}
	if pick.IntN(3) == 0 {
		p.SetOriginalPayloadFormat("pprof")
		p.OriginalPayload().FromRaw(make([]byte, pick.IntN(300)))
	}
	pick.indices(p.AttributeIndices(), dic.AttributeTable().Len())
}

func (pick picker) sample(x pprofile.Sample, dic pprofile.ProfilesDictionary) {
	x.SetStackIndex(pick.index(dic.StackTable().Len()))
	if pick.IntN(2) == 0 {
		x.SetLinkIndex(pick.index(dic.LinkTable().Len()))
	}
	pick.indices(x.AttributeIndices(), dic.AttributeTable().Len())
	for range pick.IntN(3) {
		x.TimestampsUnixNano().Append(pick.Uint64())
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
func (d tables) fill(pick picker) {
	rnd := pick.Rand
	text := func() int32 { return pick.index(d.StringTable().Len()) }
	for range 12 {
		d.StringTable().Append(randomText(rnd, 1+rnd.IntN(12)))
	}
	for range 10 {
		a := d.AttributeTable().AppendEmpty()
		a.SetKeyStrindex(text())
		a.SetUnitStrindex(text())
		values := pcommon.NewMap()
		randomAttributes(rnd, values, rnd.IntN(variants-7))
		for _, v := range values.All() {
			v.CopyTo(a.Value())
		}
	}
	for range 10 {
		f := d.FunctionTable().AppendEmpty()
		f.SetNameStrindex(text())
		f.SetSystemNameStrindex(text())
		f.SetFilenameStrindex(text())
		f.SetStartLine(int64(rnd.IntN(3) - 1))
		l := d.LinkTable().AppendEmpty()
		l.SetTraceID(randomTraceID(rnd))
		l.SetSpanID(randomSpanID(rnd))
	}
	d.fillStacks(pick)
}

func (d tables) fillStacks(pick picker) {
	for range 6 {
		m := d.MappingTable().AppendEmpty()
		m.SetMemoryStart(pick.Uint64N(3))
		m.SetMemoryLimit(pick.Uint64N(1 << 40))
		m.SetFileOffset(pick.Uint64N(3))
		m.SetFilenameStrindex(pick.index(d.StringTable().Len()))
		pick.indices(m.AttributeIndices(), d.AttributeTable().Len())
	}
	for range 15 {
		l := d.LocationTable().AppendEmpty()
		l.SetAddress(pick.Uint64N(3))
		l.SetMappingIndex(pick.index(d.MappingTable().Len()))
		pick.indices(l.AttributeIndices(), d.AttributeTable().Len())
		for range pick.IntN(3) {
			line := l.Lines().AppendEmpty()
			line.SetFunctionIndex(pick.index(d.FunctionTable().Len()))
			line.SetLine(pick.Int64N(300) - 1)
			line.SetColumn(pick.Int64N(2))
		}
	}
	for range 10 {
		pick.indices(d.StackTable().AppendEmpty().LocationIndices(), d.LocationTable().Len())
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
