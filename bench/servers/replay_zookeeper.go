package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/lockrun/lockrun/internal/testserver"
)

// zookeeperReplay repeats requests over bare connections, each with a session of its own.
type zookeeperReplay struct {
	s      *stage
	server *testserver.ZooKeeper
}

// zkCreate is the code of a request to create a node; see ZooDefs.OpCode.
const zkCreate = 1

// packets takes apart what was read in one piece: each packet has its length in front.
func packets(pieces [][]byte) (all [][]byte) {
	var rest []byte
	for _, p := range pieces {
		rest = append(rest, p...)
	}
	for len(rest) >= 12 {
		n := 4 + int(binary.BigEndian.Uint32(rest))
		if n > len(rest) {
			break
		}
		all, rest = append(all, rest[:n:n]), rest[n:]
	}
	return all
}

// find takes everything but pings, whose number is -2.
func (z *zookeeperReplay) find(recorded [][]byte) (all [][]byte) {
	for _, p := range packets(recorded) {
		if int32(binary.BigEndian.Uint32(p[4:])) >= 0 {
			all = append(all, p)
		}
	}
	return all
}

// session is a bare connection with a session.
func (z *zookeeperReplay) session() net.Conn {
	c, err := net.Dial("tcp", z.server.Addr())
	must(err)
	hello := binary.BigEndian.AppendUint32(nil, 44)
	hello = append(hello, make([]byte, 4+8)...) // protocol, last transaction seen
	hello = binary.BigEndian.AppendUint32(hello, 60_000)
	hello = append(hello, make([]byte, 8)...) // a new session
	hello = binary.BigEndian.AppendUint32(hello, 16)
	hello = append(hello, make([]byte, 16)...)
	exchange(c, hello)
	return c
}

// exchange sends a packet and reads one.
func exchange(c net.Conn, packet []byte) []byte {
	_, err := c.Write(packet)
	must(err)
	var size [4]byte
	_, err = io.ReadFull(c, size[:])
	must(err)
	answer := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err = io.ReadFull(c, answer)
	must(err)
	return answer
}

// succeeds is exchange for what must not be refused: the error stands behind number and transaction.
func succeeds(c net.Conn, packet []byte) {
	if answer := exchange(c, packet); len(answer) < 16 || binary.BigEndian.Uint32(answer[12:]) != 0 {
		must(fmt.Errorf("%q was answered with %q: %w", packet, answer, errNoMeasure))
	}
}

func (z *zookeeperReplay) sessions(n int) (all []net.Conn, end func()) {
	for range n {
		all = append(all, z.session())
	}
	return all, func() {
		for _, c := range all {
			c.Close()
		}
	}
}

func (z *zookeeperReplay) keepOn(requests [][]byte, span time.Duration) float64 {
	cs, end := z.sessions(len(requests))
	defer end()
	return keepOn(len(requests), span, func(i int) error { succeeds(cs[i], requests[i]); return nil })
}

func (z *zookeeperReplay) atOnce(requests [][]byte, n int) time.Duration {
	cs, end := z.sessions(n)
	defer end()
	return atOnce(n, func(i int) {
		for _, r := range requests {
			exchange(cs[i], r)
		}
	})
}

func (z *zookeeperReplay) busy() time.Duration { return 0 }

// creates is the rate at which n clients create nodes, one after the other each.
func (z *zookeeperReplay) creates(n int, span time.Duration) float64 {
	cs, end := z.sessions(n)
	defer end()
	var mu sync.Mutex
	made := 0
	return keepOn(n, span, func(i int) error {
		mu.Lock()
		made++
		path := fmt.Sprintf("/created-%d-%d", time.Now().UnixNano(), made)
		mu.Unlock()
		succeeds(cs[i], createRequest(path))
		return nil
	})
}

// createRequest asks for an ephemeral node that is open to everybody.
func createRequest(path string) []byte {
	text := func(b []byte, s string) []byte {
		return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	b := binary.BigEndian.AppendUint32(nil, 0) // the length, set below
	b = binary.BigEndian.AppendUint32(b, 1)
	b = binary.BigEndian.AppendUint32(b, zkCreate)
	b = text(b, path)
	b = text(b, "4711")
	b = binary.BigEndian.AppendUint32(b, 1) // one rule
	b = binary.BigEndian.AppendUint32(b, 31)
	b = text(text(b, "world"), "anyone")
	b = binary.BigEndian.AppendUint32(b, 1) // ephemeral
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}
