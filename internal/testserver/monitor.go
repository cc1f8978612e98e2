package testserver

import (
	"fmt"
	"strings"
	"time"
)

// Monitor sees the commands that a Redis server executes. It is for one goroutine.
//
// Redis does not show AUTH. Count what a client sends in one piece with [Proxy.Requests].
type Monitor struct {
	r     *Redis
	c     *respConn
	marks int
}

// Monitor starts watching. It ends with the test.
func (r *Redis) Monitor() *Monitor {
	r.t.Helper()
	c, err := r.dial()
	if err == nil {
		_, err = c.do("MONITOR")
	}
	if err != nil {
		r.t.Fatalf("MONITOR: %v", err)
	}
	r.t.Cleanup(func() { c.Close() })
	return &Monitor{r: r, c: c}
}

// Commands is what clients asked for since the start or the last call, like `"GET" "k"`, in order. What scripts do inside
// is left out.
func (m *Monitor) Commands() []string {
	m.r.t.Helper()
	m.marks++
	mark := fmt.Sprintf("%q %q", "ECHO", fmt.Sprintf("monitor mark %d", m.marks))
	m.r.Must("ECHO", fmt.Sprintf("monitor mark %d", m.marks))
	m.c.SetReadDeadline(time.Now().Add(patience))
	var all []string
	for {
		v, err := m.c.reply()
		if err != nil {
			m.r.t.Fatalf("MONITOR: %v", err)
		}
		// 1339518083.107412 [0 127.0.0.1:60866] "keys" "*"
		head, command, _ := strings.Cut(fmt.Sprint(v), "] ")
		if command == mark {
			return all
		}
		if !strings.HasSuffix(head, " lua") {
			all = append(all, command)
		}
	}
}
