// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"time"
)

// mostPairs bounds how many pairs a short run is repeated for.
const mostPairs = 64

// Turns says how often subjects run, in turn.
type Turns struct {
	// Pairs is how many results of each subject there are at least.
	Pairs int

	// CPU is about what the subject that is named last uses in all pairs together:
	// there are as many as that takes. What disturbs on a shared machine comes and
	// goes within seconds. So many short runs, each next to those of the others, are
	// surer than a few long ones; and than the same runs summed in groups, since a
	// median leaves out those that were disturbed, and a sum does not.
	CPU time.Duration
}

// Run is RunWarm after a turn that is thrown away: the first of a process pays for
// what the others find ready.
func Run(pairs int, names []string, run func(name string) (Result, error)) (Series, error) {
	return Turns{Pairs: pairs}.Run(names, run)
}

// Run is RunWarm with as many pairs as are needed, after some turns that are thrown
// away. The garbage collector runs only where run itself calls for it, so that no
// collection is done twice.
func (t Turns) Run(names []string, run func(name string) (Result, error)) (Series, error) {
	defer Quiet()()
	pairs, err := t.warmUp(names, run)
	if err != nil {
		return Series{}, err
	}
	return RunWarm(pairs, names, run)
}

// warmUp returns how many pairs are needed. Where those are more than the least, it
// takes a second turn: the first one says little about that.
func (t Turns) warmUp(names []string, run func(name string) (Result, error)) (pairs int, err error) {
	last := names[len(names)-1]
	for range 2 {
		s, err := RunWarm(1, names, run)
		if err != nil {
			return 0, err
		}
		took := max(s.results[last][0].CPU, 1)
		pairs = max(int(min(t.CPU/took, mostPairs)), t.Pairs)
		if pairs == t.Pairs {
			break
		}
	}
	return pairs, nil
}

// RunWarm calls run for each subject in turn, `pairs` times.
func RunWarm(pairs int, names []string, run func(name string) (Result, error)) (Series, error) {
	s := Series{Names: names, results: map[string][]Result{}, estimate: estimate}
	for range pairs {
		for _, name := range names {
			r, err := run(name)
			if err != nil {
				return s, fmt.Errorf("%s: %w", name, err)
			}
			s.results[name] = append(s.results[name], r)
		}
	}
	return s, nil
}
