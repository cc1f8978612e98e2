package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/firestore"
	"github.com/lockrun/lockrun/internal/testserver"
)

// firestore is measured apart from the others, on Google's emulator: a process that keeps everything in memory says
// nothing about the service's rates. What it can tell is how often an operation has to wait for the network, what a crowd
// does to it, and what the driver costs those who do not use it.
func (b *bench) firestore(s *stage, _ []string) []row {
	e := testserver.StartFirestore(s)
	st := &store{name: "Firestore's emulator", url: e.URL("bench"), proxy: testserver.StartProxy(s, e.Addr()), open: firestore.Open}
	rows := append(b.farAway(s, st, e), b.instant(s, st)...)
	rows = append(rows, b.whole(s, st))
	return append(rows, b.addedBy(s, "the drivers of ZooKeeper and Firestore", lineOf("zookeeper|firestore")),
		b.addedBy(s, "the driver of Firestore", lineOf("firestore")))
}

// farAway measures operations in round trips, each of them against a bare read over the same slow network.
func (b *bench) farAway(s *stage, st *store, e *testserver.Firestore) []row {
	far := e.URL("far")
	far = far[:len(far)-len(e.Addr())] + st.proxy.Addr()
	c := &contender{Backend: st.backend(s, far)}
	ctx := context.Background()
	timed := func(f func() error) time.Duration {
		begin := time.Now()
		must(f())
		return time.Since(begin)
	}
	var took [6][]time.Duration
	st.proxy.Delay(100 * time.Millisecond)
	defer st.proxy.Delay(0)
	for i := range 2 * b.rounds {
		c.key = fmt.Sprintf("far-%d", i%3) // after three rounds they are free keys that have been used
		var l backends.Lease
		one := timed(func() (err error) { _, err = c.Now(ctx); return })
		free := timed(func() (err error) { l, err = c.Acquire(ctx, c.request()); return })
		renew := timed(func() error { return l.Renew(ctx, time.Minute) })
		r := c.request()
		r.Last = false
		refused := timed(func() error {
			if _, err := c.Acquire(ctx, r); err == nil {
				return errNoMeasure
			}
			return nil
		})
		release := timed(func() error { return l.Release(ctx, succeeded()) })
		r = c.request()
		r.TTL, r.Key = time.Millisecond, "crashed"
		_, err := c.Acquire(ctx, r)
		must(err)
		r = c.request()
		r.TTL, r.Key = time.Millisecond, "crashed"
		expired := timed(func() (err error) { _, err = c.Acquire(ctx, r); return })
		for j, d := range []time.Duration{one, free, expired, refused, renew, release} {
			took[j] = append(took[j], d)
		}
	}
	var rows []row
	for j, what := range []string{"an acquire of a free key", "an acquire of one whose lease ran out", "a refusal", "a renewal", "a release"} {
		rows = append(rows, times(st.name+" over a network with a round trip of 200 ms, "+what+", against one read", took[j+1], took[0]))
	}
	return rows
}

// instant lets thirty ask for one key at one instant, and gives the time until all have been told.
func (b *bench) instant(s *stage, st *store) []row {
	const many = 30
	cs := st.contenders(s, many, func(int) string { return "crowd" })
	var all []time.Duration
	for round := range 2 * b.rounds {
		all = append(all, crowdOnce(cs, fmt.Sprintf("crowd-%d", round)))
	}
	return []row{{fmt.Sprintf("%s, %d contenders at one instant on one key: one runs, the others are refused and that is recorded; time until all know", st.name, many), ms(median(all)), "", ""}}
}

// whole is a run of true as a process of its own.
func (b *bench) whole(s *stage, st *store) row {
	dir, err := os.MkdirTemp("", "lockrun-bench-")
	must(err)
	s.Cleanup(func() { os.RemoveAll(dir) })
	u, err := url.Parse(st.url)
	must(err)
	m := inTurns(b.runs, [][]string{{b.flock, filepath.Join(dir, "lock"), "true"}, {b.lockrun, "--backend", u.String(), "--key", "k", "--", "true"}})
	return versus("`lockrun --key k -- true` on "+st.name+" against `flock FILE true`", m[1].wall, m[0].wall)
}

func lineOf(drivers string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)^.*\b(` + drivers + `)(\.Open,|")\n`)
}

// addedBy is what drivers cost a run on SQLite that uses none of them.
func (b *bench) addedBy(s *stage, what string, lines *regexp.Regexp) row {
	dir, err := os.MkdirTemp("", "lockrun-bench-")
	must(err)
	s.Cleanup(func() { os.RemoveAll(dir) })
	with, without := filepath.Join(dir, "with"), filepath.Join(dir, "without")
	b.build(with)
	b.build(without, "-overlay", withoutDrivers(dir, lines))
	run := func(program string) []string {
		return []string{program, "--backend", "sqlite://" + filepath.Join(dir, "db"), "--key", "k", "--", "true"}
	}
	m := inTurns(2*b.runs, [][]string{run(with), run(without)})
	return row{"what " + what + " add to a run on SQLite: wall; CPU; of that package initialisation; size of the program",
		fmt.Sprintf("%s; %s; %s; %s", ms(m[0].wall-m[1].wall), ms(m[0].cpu-m[1].cpu), ms(initialisation(with)-initialisation(without)), megabytes(with)),
		megabytes(without), fmt.Sprintf("%.2f", float64(m[0].wall)/float64(m[1].wall))}
}
