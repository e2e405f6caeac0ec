// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package testbed

import "syscall"

// attributes puts the child in a process group of its own, so that Ctrl-C reaches
// this program only, which ends the child.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
