// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package payload // import "github.com/pullbatch/batcherexporter/internal/payload"

// order knows with which Add each item of a batch came. It keeps the lengths of
// the runs that each scope was filled with: 16 bytes for each scope of each
// request, and nothing for an item. All its methods may be called on nil, which
// does nothing.
type order[T any, RL list[RL, R], R resourceGroup, SL list[SL, S], S scopeGroup] struct {
	adapter[T, RL, R, SL, S]
	counter *Index    // of items, and what else comes with them
	source  int       // the number of the Add that runs
	filled  [][][]Run // of each resource and scope of the batch, in their order
}

// next begins the next Add.
func (o *order[T, RL, R, SL, S]) next() {
	if o != nil {
		o.source++
	}
}

// add notes resources that go to the end of the batch.
func (o *order[T, RL, R, SL, S]) add(resources RL) {
	if o == nil {
		return
	}
	for i := range resources.Len() {
		o.addResource(resources.At(i))
	}
}

// addResource notes a resource that goes to the end of the batch.
func (o *order[T, RL, R, SL, S]) addResource(r R) {
	if o == nil {
		return
	}
	o.filled = append(o.filled, nil)
	scopes := o.scopes(r)
	for i := range scopes.Len() {
		o.addScope(len(o.filled)-1, scopes.At(i))
	}
}

// addScope notes a scope that goes to the end of a resource.
func (o *order[T, RL, R, SL, S]) addScope(resource int, s S) {
	if o != nil {
		o.filled[resource] = append(o.filled[resource], []Run{o.run(s)})
	}
}

// join notes that the items of s go to the end of a scope.
func (o *order[T, RL, R, SL, S]) join(resource, scope int, s S) {
	if o != nil {
		runs := &o.filled[resource][scope]
		*runs = append(*runs, o.run(s))
	}
}

func (o *order[T, RL, R, SL, S]) run(s S) Run {
	before := o.counter.items
	o.indexScope(o.counter, s)
	o.counter.levels[innerLevel] = o.counter.levels[innerLevel][:0] // nobody asks where they are
	return Run{o.source, o.counter.items - before}
}

// runs are all runs in the order of the batch.
func (o *order[T, RL, R, SL, S]) runs() []Run {
	if o == nil {
		return nil
	}
	var all []Run
	for _, scopes := range o.filled {
		for _, runs := range scopes {
			all = append(all, runs...)
		}
	}
	return all
}
