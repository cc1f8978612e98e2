package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/bench/measure"
)

// noLibrary is said of programs where calls are measured.
const noLibrary = inapplicable("a program, no library")

// leases are leases a second, taken and given back by many threads of one process, each with a key of its own: what a
// library does without a process around each run. lockrun's packages also count attempts and write the run's history in
// the same steps, which the others have not.
func (b *bench) leases(s *stage) {
	all := b.peers(s, start(s))
	for _, p := range all {
		if !p.library() && p.err == nil {
			p.err = noLibrary
		}
	}
	rates := map[*peer][]float64{}
	b.turns(all, some(b.rounds, 1), func(p *peer) { // a JVM does all its rounds at once, since it has to warm up first
		if p.slow() {
			rates[p] = append(rates[p], numbers(p, "ops", b.contenders, int(b.span.Milliseconds()), b.rounds)...)
		} else {
			rates[p] = append(rates[p], b.ownLeases(p))
		}
	})
	head(fmt.Sprintf("Leases taken and given back a second by %d contenders with a key each, in one process; medians of rounds of %v", b.contenders, b.span),
		"leases/s")
	for _, p := range all {
		p.line(len(rates[p]), often(rates[p]))
	}
}

// ownLeases are those of one of our backends: one connection a contender, as hosts have.
func (b *bench) ownLeases(p *peer) (rate float64) {
	must(measure.Perform(func(s *measure.Stage) {
		stores := make([]backends.Backend, b.contenders)
		for i := range stores {
			stores[i] = p.open(s)
			must(cycle(stores[i], fmt.Sprintf("leases%d", i)))
		}
		var leases atomic.Int64
		var failed atomic.Pointer[error]
		var all sync.WaitGroup
		began := time.Now()
		for i, store := range stores {
			all.Go(func() {
				for time.Since(began) < b.span {
					if err := cycle(store, fmt.Sprintf("leases%d", i)); err != nil {
						failed.CompareAndSwap(nil, &err)
						return
					}
					leases.Add(1)
				}
			})
		}
		all.Wait()
		rate = float64(leases.Load()) / time.Since(began).Seconds()
		if err := failed.Load(); err != nil {
			must(*err)
		}
	}))
	return rate
}

// cycle takes a lease and gives it back.
func cycle(store backends.Backend, key string) error {
	ctx := context.Background()
	l, err := store.Acquire(ctx, backends.Request{Key: key, Owner: backends.NewOwner(), Holder: "bench", Host: "bench", PID: 1,
		TTL: limit, Slots: 1, Last: true})
	if err != nil {
		return err
	}
	zero := 0
	return l.Release(ctx, backends.End{Outcome: backends.Succeeded, ExitCode: &zero})
}

// numbers are what a JVM library prints; the last argument is how many.
func numbers(p *peer, mode string, args ...int) (all []float64) {
	argv := append(append([]string{}, p.jvm...), mode)
	for _, a := range args {
		argv = append(argv, strconv.Itoa(a))
	}
	c := measure.Launch(2*limit, argv...)
	defer c.Release()
	for range args[len(args)-1] {
		n, err := strconv.ParseFloat(strings.TrimSpace(c.Line()), 64)
		must(err)
		all = append(all, n)
	}
	c.Succeed()
	return all
}

// calls are the operations that a server counts for one whole run of a program, and for a lease that a process takes and
// gives back over a connection that it has.
func (b *bench) calls(s *stage) {
	v := start(s)
	operations := map[*server]func() int{}
	for _, one := range v.running() {
		operations[one] = one.count(s)
	}
	all := b.peers(s, v)
	for _, p := range all {
		if p.server == nil && p.err == nil {
			p.err = inapplicable("has no server")
		}
	}
	runs, leases := map[*peer][]float64{}, map[*peer][]float64{}
	b.turns(all, some(b.samples, b.samples), func(p *peer) {
		count := func(part func()) float64 { operations[p.server](); part(); return float64(operations[p.server]()) }
		once := func() { begin(p.guard("calls", "/bin/echo", "up")) }
		once() // whatever is done only the first time
		n := count(once)
		if p.library() {
			cycles(p, 1) // likewise
			leases[p] = append(leases[p], count(func() { cycles(p, 11) })/10-count(func() { cycles(p, 1) })/10)
		}
		runs[p] = append(runs[p], n)
	})
	head("What the server counts: commands of Redis, statements of MariaDB, requests of ZooKeeper, messages of etcd; medians",
		"a whole run", "a lease more over the same connection")
	for _, p := range all {
		more := string(noLibrary)
		if p.library() && len(leases[p]) > 0 {
			more = fmt.Sprintf("%.1f", median(leases[p]))
		}
		p.line(len(runs[p]), often(runs[p]), more)
	}
}

// cycles has one connection take a lease and give it back n times.
func cycles(p *peer, n int) {
	if p.jvm != nil {
		c := measure.Launch(limit, append(append([]string{}, p.jvm...), "cycles", strconv.Itoa(n))...)
		defer c.Release()
		c.Succeed()
		return
	}
	must(measure.Perform(func(s *measure.Stage) {
		store := p.open(s)
		for range n {
			must(cycle(store, "cycles"))
		}
	}))
}

// handover is the time from the end of one job to the first word of the next, as whole processes, and for libraries the
// time from the release to the waiter's lock, where no process is started.
func (b *bench) handover(s *stage) {
	all := b.peers(s, start(s))
	between, within := map[*peer][]time.Duration{}, map[*peer][]time.Duration{}
	for _, p := range all {
		if p.err == nil && p.wait == nil {
			p.err = inapplicable("cannot wait: who asks again after a pause waits half of it on average")
		}
	}
	b.turns(all, some(b.handovers, b.slowHand), func(p *peer) {
		if p.slow() && len(within[p]) == 0 {
			for _, us := range numbers(p, "handover", b.handovers) {
				within[p] = append(within[p], time.Duration(us)*time.Microsecond)
			}
		}
		between[p] = append(between[p], measure.Pair{
			Hold:      func(job ...string) []string { return p.guard("handover", job...) },
			Wait:      func(job ...string) []string { return p.wait("handover", job...) },
			Announces: p.slow(), Limit: limit,
		}.HandOver())
	})
	head("Handover to a waiter: from the end of one job to the first word of the next, each in a process of its own; medians",
		"between processes", "ratio to flock", fmt.Sprintf("threads of one process, no job (%d tries)", b.handovers))
	for _, p := range all {
		inside := "-"
		if p.slow() {
			inside = middle(within[p])
		}
		p.line(len(between[p]), middle(between[p]), ratio(between[p], reference(between)), inside)
	}
}
