// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package input

import (
	"runtime"
	"sync"
)

// distinctItems is after about how many items requests come again: more than most
// batches hold, and little enough to be collected around quickly before each run.
const distinctItems = 32_768

// Supply hands out the requests of a Spec, new ones each time.
type Supply struct {
	templates []any
	requests  int
	rest      any // the last request, if it is smaller than the others
}

// Supply makes what the requests are copied from.
func (s Spec) Supply() *Supply {
	whole := s.Total / s.Items
	templates := s
	templates.Total = s.Items * s.distinct(whole)
	supply := &Supply{templates: templates.Requests(), requests: whole}
	if rest := s.Total % s.Items; rest > 0 {
		supply.rest = s.Signal.request(0, s.Total-rest, rest)
	}
	return supply
}

// distinct is how many of so many requests are different. The resources have their
// turns all the same when the requests come again.
func (s Spec) distinct(requests int) int {
	if s.Resources == AllDifferent {
		return requests
	}
	turns := max(1, distinctItems/s.Items/s.Resources)
	return min(requests, turns*s.Resources)
}

// New returns new requests. All cores copy, as this takes longer than most of what
// is measured.
func (s *Supply) New() []any {
	all := make([]any, s.requests, s.requests+1)
	cores := runtime.GOMAXPROCS(0)
	var wg sync.WaitGroup
	for core := range cores {
		wg.Go(func() {
			for i := core * len(all) / cores; i < (core+1)*len(all)/cores; i++ {
				all[i] = Clone(s.templates[i%len(s.templates)])
			}
		})
	}
	wg.Wait()
	if s.rest != nil {
		all = append(all, Clone(s.rest))
	}
	return all
}
