// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package payloadtest makes data for tests and tells what became of it.
//
// Every item has an identity of its own, an attribute with the key `id`, and for
// each signal there are four functions:
//
//   - Simple: one resource, one scope, items of a hundred bytes or so.
//   - Random: a few resources and scopes out of a small number of variants, so
//     that those of two requests are often equal, or almost; groups without
//     items; every field that the protocol has.
//   - IDs: the identities, in order.
//   - Flatten: one line for each item, in order, with all that is said of it,
//     by its resource and scope, then after a bar by its metric and by itself.
//     Two lines are the same if and only if a reader learns the same from both.
package payloadtest // import "github.com/pullbatch/batcherexporter/internal/payload/payloadtest"

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/xpdata/entity"
)

// idKey is the key of the attribute that is the identity of an item.
const idKey = "id"

func idOf(attrs pcommon.Map) int64 {
	id, ok := attrs.Get(idKey)
	if !ok {
		return -1
	}
	return id.Int()
}

// simpleResource fills in what most resources have.
func simpleResource(res pcommon.Resource) {
	for i, key := range []string{
		"service.name", "service.namespace", "service.instance.id", "host.name", "k8s.pod.name", "k8s.namespace.name",
	} {
		res.Attributes().PutStr(key, "value of some length "+strconv.Itoa(i))
	}
}

// variants of resources and of scopes. Each differs from the first in one field,
// and some from each other by an attribute of another type or order.
const variants = 12

// randomResource makes one of the variants, its attributes in random order, and
// returns the schema URL that goes with it.
func randomResource(rnd *rand.Rand, res pcommon.Resource) string {
	variant := rnd.IntN(variants)
	randomAttributes(rnd, res.Attributes(), variant)
	switch variant {
	case variants - 1:
		return "https://opentelemetry.io/schemas/1.26.0"
	case variants - 2:
		res.SetDroppedAttributesCount(3)
	case variants - 3:
		ref := entity.ResourceEntityRefs(res).AppendEmpty()
		ref.SetType("service")
		ref.SetSchemaUrl("https://entity.example")
		ref.IdKeys().Append("service.name")
		ref.DescriptionKeys().Append("host")
	}
	return ""
}

// randomScope is randomResource for scopes.
func randomScope(rnd *rand.Rand, scope pcommon.InstrumentationScope) string {
	variant := rnd.IntN(variants)
	if variant < variants/2 {
		variant = 0
	}
	scope.SetName("library")
	randomAttributes(rnd, scope.Attributes(), variant)
	switch variant {
	case variants - 1:
		return "https://opentelemetry.io/schemas/1.26.0"
	case variants - 2:
		scope.SetDroppedAttributesCount(3)
	case variants - 3:
		scope.SetVersion("v1")
	case variants - 4:
		scope.SetName("")
	}
	return ""
}

func randomAttributes(rnd *rand.Rand, m pcommon.Map, variant int) {
	puts := []func(){
		func() { m.PutStr("service.name", "checkout") },
		func() { m.PutInt("pid", 12345) },
		func() { m.PutDouble("share", math.Copysign(0, float64(variant%2)-0.5)) },
	}
	rnd.Shuffle(len(puts), func(i, j int) { puts[i], puts[j] = puts[j], puts[i] })
	for _, put := range puts {
		put()
	}
	switch variant {
	case 2:
		m.PutDouble("extra", math.NaN())
	case 3:
		nested := m.PutEmptyMap("extra")
		nested.PutBool("yes", true)
		nested.PutEmptySlice("list").AppendEmpty().SetEmptyMap().PutEmptyBytes("bytes").FromRaw([]byte{0, 255})
	case 4:
		m.PutEmpty("extra")
	case 5:
		Duplicate(m, "extra", "first", "second")
	case 6:
		Duplicate(m, "extra", "second", "first")
	case 7:
		m.Clear()
	}
}

// Duplicate adds the same key once for each value, which the API does not offer
// but the protocol does not exclude: other keys are put in, and replaced in the
// marshalled data. The key must not be too short for that.
func Duplicate(m pcommon.Map, key string, values ...string) {
	data := plog.NewLogs()
	attrs := data.ResourceLogs().AppendEmpty().Resource().Attributes()
	m.CopyTo(attrs)
	other := func(i int) string { return strings.Repeat(string([]byte{0xf5 + byte(i)}), len(key)) }
	for i, value := range values {
		attrs.PutStr(other(i), value)
	}
	buf, _ := (&plog.ProtoMarshaler{}).MarshalLogs(data)
	for i := range values {
		buf = bytes.ReplaceAll(buf, []byte(other(i)), []byte(key))
	}
	data, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(buf)
	if err != nil {
		panic(err)
	}
	data.ResourceLogs().At(0).Resource().Attributes().CopyTo(m)
}

// split cuts n into the given number of parts, some of which may be zero.
func split(rnd *rand.Rand, n, parts int) []int {
	cuts := make([]int, parts+1)
	cuts[parts] = n
	for i := 1; i < parts; i++ {
		cuts[i] = rnd.IntN(n + 1)
	}
	slices.Sort(cuts)
	sizes := make([]int, parts)
	for i := range sizes {
		sizes[i] = cuts[i+1] - cuts[i]
	}
	return sizes
}

func formatResource(res pcommon.Resource, schemaURL string) string {
	var refs []string
	for _, ref := range entity.ResourceEntityRefs(res).All() {
		refs = append(refs, fmt.Sprintf("%q %q %q %q", ref.Type(), ref.SchemaUrl(), ref.IdKeys().AsRaw(), ref.DescriptionKeys().AsRaw()))
	}
	return fmt.Sprintf("resource %s dropped=%d schema=%q entities=%q",
		formatMap(res.Attributes()), res.DroppedAttributesCount(), schemaURL, refs)
}

func formatScope(scope pcommon.InstrumentationScope, schemaURL string) string {
	return fmt.Sprintf("scope %q %q %s dropped=%d schema=%q",
		scope.Name(), scope.Version(), formatMap(scope.Attributes()), scope.DroppedAttributesCount(), schemaURL)
}

// formatMap sorts by key, but keeps the order of values with the same key.
func formatMap(m pcommon.Map) string {
	type entry struct{ key, value string }
	var entries []entry
	for k, v := range m.All() {
		entries = append(entries, entry{k, formatValue(v)})
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%q:%s ", e.key, e.value)
	}
	return "{" + b.String() + "}"
}

func formatValue(v pcommon.Value) string {
	switch v.Type() {
	case pcommon.ValueTypeMap:
		return formatMap(v.Map())
	case pcommon.ValueTypeSlice:
		var parts []string
		for _, e := range v.Slice().All() {
			parts = append(parts, formatValue(e))
		}
		return "[" + strings.Join(parts, " ") + "]"
	case pcommon.ValueTypeDouble:
		return fmt.Sprintf("double(%x)", math.Float64bits(v.Double()))
	case pcommon.ValueTypeBytes:
		return "bytes(" + hex.EncodeToString(v.Bytes().AsRaw()) + ")"
	}
	return fmt.Sprintf("%s(%q)", v.Type(), v.AsString())
}

func randomTime(rnd *rand.Rand) pcommon.Timestamp { return pcommon.Timestamp(rnd.Uint64N(1000)) }

// randomText is up to max letters long.
func randomText(rnd *rand.Rand, maxLen int) string {
	text := make([]byte, rnd.IntN(maxLen+1))
	for i := range text {
		text[i] = 'a' + byte(rnd.IntN(26))
	}
	return string(text)
}
