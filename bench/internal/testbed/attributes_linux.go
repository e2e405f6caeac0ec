// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import "syscall"

// attributes puts the child in a process group of its own, so that Ctrl-C reaches
// this program only, which ends the child; and has the kernel kill it if this
// program is killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
