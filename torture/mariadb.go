package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/lockrun/lockrun/internal/testserver"
)

// mariadbArena is one server. Its clock can be set where libfaketime is there.
func mariadbArena(t testserver.TB, g *game) *arena {
	clock := newClock(g.path("clock"))
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{Env: clock.env()})
	p := testserver.StartProxy(t, m.Addr())
	a := &arena{name: "mariadb", url: through(t, m.URL(), p), direct: m.URL()}
	a.heal = func() {
		p.Heal()
		revive(m.Process)
		clock.set(0)
		m.Exec("SET GLOBAL read_only = OFF")
	}
	a.remove = func(b *blow) { m.Exec("DELETE FROM lockrun WHERE job_name = ?", b.key) }
	a.faults = append(faultsOf(p), processFaults(m.Process)...)
	a.faults = append(a.faults, a.byHand(), fault{name: "read-only for a while", do: func(b *blow) {
		m.Exec("SET GLOBAL read_only = ON")
		b.wait()
		m.Exec("SET GLOBAL read_only = OFF")
	}})
	// Tables made anew count tokens from 1 again: that is an operator's doing, and a new life for those who compare them.
	a.faults = append(a.faults, fault{name: "server restarted without its data", forgets: true, tokens: true, do: func(b *blow) {
		m.RestartEmpty()
		g.init(t, m.URL())
	}})
	if clock.library != "" {
		a.faults = append(a.faults, clock.faults()...)
	} else {
		t.Logf("libfaketime is missing here (apt-get install faketime), so no server's clock is set")
	}
	g.init(t, m.URL())
	return a
}

// clock is the clock of a server under libfaketime, which reads the offset from a file at each look.
type clock struct {
	file    string
	library string // "" where it is not there
	offset  time.Duration
}

func newClock(file string) *clock {
	c := &clock{file: file}
	for _, dir := range []string{"/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime", "/usr/lib/faketime", "/usr/local/lib/faketime"} {
		name := filepath.Join(dir, "libfaketime.so.1")
		if _, err := os.Stat(name); err == nil {
			c.library = name
		}
	}
	c.set(0)
	return c
}

// env makes a server look at the file. Its monotonic clock stays, because its threads time their waits by it.
func (c *clock) env() []string {
	if c.library == "" {
		return nil
	}
	return []string{"LD_PRELOAD=" + c.library, "FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME_NO_CACHE=1", "FAKETIME_TIMESTAMP_FILE=" + c.file}
}

func (c *clock) set(offset time.Duration) {
	c.offset = offset
	next := c.file + ".next"
	if os.WriteFile(next, fmt.Appendf(nil, "%+.3f\n", offset.Seconds()), 0o644) == nil {
		_ = os.Rename(next, c.file)
	}
}

// step is by how much a clock is set, at most: more than any TTL here.
const step = 4 * time.Second

// faults set the clock. Set forward, leases run out early by the server's time, which decides: their holders are told at
// the next beat. Set back, they last longer.
func (c *clock) faults() []fault {
	return []fault{
		{name: "server's clock set forward", forgets: true, do: func(b *blow) { c.set(c.offset + between(b.r, 0, step)) }},
		{name: "server's clock set back", shift: step, do: func(b *blow) { c.set(c.offset - between(b.r, 0, step)) }},
		{name: "server's clock wanders", do: func(b *blow) {
			for range 10 {
				c.set(c.offset + between(b.r, -5*time.Millisecond, 5*time.Millisecond))
				b.g.rest(b.length / 10)
			}
		}},
	}
}

// init creates what a store needs once.
func (g *game) init(t testserver.TB, url string) {
	t.Helper()
	cmd := exec.Command(g.lockrun, "init", "--backend", url, "--backend-timeout", "60s") // servers that have just been started are slow
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("lockrun init: %v: %s", err, out)
	}
}
