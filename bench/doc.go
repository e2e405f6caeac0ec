// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench compares the batcher with its peers: exporterhelper's queue and
// batches, and the batch processor. It is a module of its own, so that the batcher
// does not depend on what it is compared with.
//
// The pieces are
//
//   - internal/input: the requests, the same in every run;
//   - internal/subject: what is compared, behind one interface;
//   - internal/testbed: a whole collector as a child process, with its load and its
//     backend; testbed has its manifest;
//   - internal/measure: runs in turn, what they took, and how sure that is;
//   - internal/scenario: the comparisons, one function and one section each;
//   - internal/report: markdown and charts;
//   - cmd/bench: the command.
//
// A new comparison is a function in internal/scenario, listed there by All.
package bench
