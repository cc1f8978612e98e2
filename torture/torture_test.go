package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/internal/testserver"
)

var seed = flag.Uint64("torture-seed", 0, "what all schedules follow from; 0: another one each time")

// shortConfig is a game of some seconds. Its slack is for machines that run other tests meanwhile.
func shortConfig(t *testing.T, grants int) config {
	s := *seed
	if s == 0 {
		s = rand.Uint64N(1_000_000) + 1
	}
	t.Logf("seed %d; -torture-seed %d plans the same", s, s)
	return config{lockrun: program, job: jobProgram, seed: s, grants: grants, atMost: 12 * time.Second, atLeast: 20, workers: 4, harmed: 25,
		ttls: []time.Duration{500 * time.Millisecond, time.Second}, timeout: 2 * time.Second, slack: 5 * time.Second, small: true,
		progress: func(string, ...any) {}}
}

// TestTorture is the short form of the attack, on every store; make torture is the long one.
func TestTorture(t *testing.T) {
	t.Parallel()
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			c := shortConfig(t, 150)
			// What is kept free between KILL and the end of a lease is a twentieth of it: with less, a guard that a busy machine
			// runs 30 ms late has two holders.
			c.ttls = []time.Duration{time.Second, 2 * time.Second}
			r := play(t, c, s.build)
			var said strings.Builder
			r.tell(&said)
			t.Log(said.String())
			if r.failure != nil || len(r.violations) > 0 {
				t.Fail()
			}
			if r.grants == 0 {
				t.Errorf("nobody was granted anything")
			}
		})
	}
}

// TestMutants finds out the four broken lockruns that no release may look like; make mutants finds out all.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("builds lockrun several times, which -short leaves out")
	}
	t.Parallel()
	b := &builder{source: "..", tags: defaultTags, ldflags: "-s -w", dir: t.TempDir()}
	for _, m := range mutants[:4] {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			o := &options{config: shortConfig(t, 10000)}
			o.atMost, o.atLeast, o.workers, o.slack = 2*time.Minute, 0, 6, time.Second
			r, err := o.findMutant(b, m)
			if err != nil {
				t.Fatal(err)
			}
			if by, found := m.found(r); !found {
				t.Errorf("it was not found out in %d grants, but: %s", r.grants, by)
			} else {
				t.Logf("after %d grants: %s", r.grants, by)
			}
		})
	}
}

// Every mutant can still be made: its text is there, once.
func TestMutantsAreUpToDate(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		if _, err := m.overlay("..", t.TempDir()); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

var program, jobProgram string

func TestMain(m *testing.M) {
	flag.Parse()
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = p.Value.Set("3")
	}
	code, err := withPrograms(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// withPrograms builds what takes part, once.
func withPrograms(run func() int) (int, error) {
	dir, err := os.MkdirTemp("", "lockrun-torture-bin-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	b := &builder{source: "..", tags: defaultTags, ldflags: "-s -w", dir: dir}
	if jobProgram, err = b.job(); err != nil {
		return 0, err
	}
	if program, err = b.lockrun(""); err != nil {
		return 0, err
	}
	return run(), nil
}

var _ testserver.TB = (*stage)(nil)
