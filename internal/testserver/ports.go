package testserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports come from below the range that the kernel uses for outgoing connections (from 32768 on Linux), rather than from
// binding port 0. A port inside that range can be lent to some client while its server is down for a restart, and a
// client that keeps dialling a port where nobody listens can even be connected to itself.
//
// The twin 10,000 above is a cluster node's bus, and stays below 32768 as well.
const (
	lowestPort  = 10100
	highestPort = 22700
	busOffset   = 10000
)

var ports struct {
	sync.Mutex
	given map[int]bool
}

// freePort gives a port that was free a moment ago together with its twin, and that this process has not given before.
// Another process may still be quicker, so whoever starts a server on it has to try again with another.
func freePort() (int, error) {
	ports.Lock()
	defer ports.Unlock()
	if ports.given == nil {
		ports.given = make(map[int]bool)
	}
	for range 1000 {
		p := lowestPort + rand.IntN(highestPort-lowestPort)
		if !ports.given[p] && free(p) && free(p+busOffset) {
			ports.given[p] = true
			return p, nil
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d", lowestPort, highestPort)
}

func free(port int) bool {
	l, err := net.Listen("tcp", addr(port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

func addr(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
