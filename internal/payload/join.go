// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

// maxPrefixGrowth is the number of bytes by which the length prefix of a group
// may grow while others are joined with it: from one byte to five, which is as
// long as it gets for what fits into memory.
const maxPrefixGrowth = 4

// joiner joins resources with an equal one that the batch holds already, and
// scopes with an equal one in that resource.
type joiner[T any, RL list[RL, R], R resourceGroup, SL list[SL, S], S scopeGroup] struct {
	adapter[T, RL, R, SL, S]
	registry  registry
	resources []*joinedResource[R, S] // by their numbers in registry
	target    *joinedResource[R, S]   // the one that joinScope looks into
	saved     int                     // bytes
	order     *order[T, RL, R, SL, S] // nil if nobody asks for it
	end       int                     // where in the batch the next resource goes that is not joined
	endScope  int                     // where in target the next scope goes that is not joined

	// The methods of these names as values, which are made once, not for each
	// request.
	joinResourceFunc func(R) bool
	joinScopeFunc    func(S) bool
}

// joinedResource is a resource of the batch.
type joinedResource[R any, S scopeGroup] struct {
	resource R
	place    int              // in the batch
	scopes   *joinedScopes[S] // nil until one is joined with it
	header   int              // what each of those saves
}

// joinedScopes are the scopes of such a resource.
type joinedScopes[S scopeGroup] struct {
	registry registry
	scopes   []joinedScope[S] // by their numbers in registry
}

type joinedScope[S scopeGroup] struct {
	scope  S
	place  int // in its resource
	header int // what each scope joined with it saves; 0 until there is one
}

func newJoiner[T any, RL list[RL, R], R resourceGroup, SL list[SL, S], S scopeGroup](
	a adapter[T, RL, R, SL, S],
) *joiner[T, RL, R, SL, S] {
	j := &joiner[T, RL, R, SL, S]{adapter: a}
	j.joinResourceFunc, j.joinScopeFunc = j.joinResource, j.joinScope
	return j
}

// begin takes note of the resources that the batch begins with. Equal ones among
// them stay as they are; what comes later is joined with the last of them, so
// that it stays behind what all of them hold.
func (j *joiner[T, RL, R, SL, S]) begin(resources RL) {
	for i := range resources.Len() {
		if earlier := j.findResource(resources.At(i), i); earlier != nil {
			earlier.resource, earlier.place = resources.At(i), i
		}
	}
}

// join moves what is in src and has an equal resource to that. The rest stays,
// and is from now on a part of the batch, which holds `end` resources so far.
func (j *joiner[T, RL, R, SL, S]) join(src RL, end int) {
	j.end = end
	src.RemoveIf(j.joinResourceFunc)
}

func (j *joiner[T, RL, R, SL, S]) joinResource(r R) bool {
	into := j.findResource(r, j.end)
	if into == nil {
		j.end++
		j.order.addResource(r)
		return false
	}
	src, dst := j.scopes(r), j.scopes(into.resource)
	if into.scopes == nil {
		into.scopes = &joinedScopes[S]{}
		j.beginScopes(into.scopes, dst)
	}
	j.target, j.endScope = into, dst.Len()
	src.RemoveIf(j.joinScopeFunc)
	appendAll(src, dst)
	if into.header == 0 {
		into.header = j.firstHeader(j.resourceSize(r))
	}
	j.saved += into.header
	return true
}

// beginScopes is begin for scopes.
func (j *joiner[T, RL, R, SL, S]) beginScopes(into *joinedScopes[S], scopes SL) {
	for i := range scopes.Len() {
		if earlier := into.find(scopes.At(i), i); earlier != nil {
			earlier.scope, earlier.place = scopes.At(i), i
		}
	}
}

func (j *joiner[T, RL, R, SL, S]) joinScope(s S) bool {
	into := j.target.scopes.find(s, j.endScope)
	if into == nil {
		j.endScope++
		j.order.addScope(j.target.place, s)
		return false
	}
	j.order.join(j.target.place, into.place, s)
	j.moveScope(s, into.scope)
	if into.header == 0 {
		into.header = j.firstHeader(j.scopeSize(s))
	}
	j.saved += into.header
	return true
}

// firstHeader is what a group saves that was joined, whose size is what is left
// of it: the header. Where it is the first, the growth of the group that it was
// joined with goes off.
func (j *joiner[T, RL, R, SL, S]) firstHeader(size int) int {
	j.saved -= maxPrefixGrowth
	return framed(size)
}

// findResource returns the resource that equals r, or nil if there is none, in
// which case others will find r, at that place in the batch.
func (j *joiner[T, RL, R, SL, S]) findResource(r R, place int) *joinedResource[R, S] {
	j.registry.probe.setResource(r.Resource(), r.SchemaUrl())
	if i := j.registry.find(); i >= 0 {
		return j.resources[i]
	}
	j.registry.add()
	j.resources = append(j.resources, &joinedResource[R, S]{resource: r, place: place})
	return nil
}

// find is findResource for scopes.
func (js *joinedScopes[S]) find(s S, place int) *joinedScope[S] {
	js.registry.probe.setScope(s.Scope(), s.SchemaUrl())
	if i := js.registry.find(); i >= 0 {
		return &js.scopes[i]
	}
	js.registry.add()
	js.scopes = append(js.scopes, joinedScope[S]{scope: s, place: place})
	return nil
}
