// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Addresses are chosen below the ports that systems hand out by themselves (Linux
// from 32768, macOS from 49152): one of those could be taken by some outgoing
// connection between the choice and its use.
const (
	firstPort = 20000
	lastPort  = 32000
	tries     = 100
)

// given holds the ports that FreeAddress returned: their users may not listen yet.
var given struct {
	sync.Mutex
	ports map[int]bool
}

// FreeAddress returns a loopback address on which nothing listens.
func FreeAddress() (string, error) {
	given.Lock()
	defer given.Unlock()
	if given.ports == nil {
		given.ports = map[int]bool{}
	}
	var err error
	for range tries {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if given.ports[port] {
			continue
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		var listener net.Listener
		if listener, err = net.Listen("tcp", address); err != nil {
			continue
		}
		given.ports[port] = true
		return address, listener.Close()
	}
	return "", fmt.Errorf("no free port on 127.0.0.1 between %d and %d in %d tries: %w", firstPort, lastPort, tries, err)
}
