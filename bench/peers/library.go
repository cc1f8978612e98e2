package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/bench/measure"
)

// calls is leases a second, taken and given back by many threads of one process, each with a key of its own: what a
// library does without a process around each run. lockrun's packages also count attempts and write the run's history in
// the same steps, which the others have not.
func (b *bench) calls(s *stage) {
	head(fmt.Sprintf("Leases taken and given back a second, %d contenders with a key each, in one process", b.contenders), "leases/s")
	for _, p := range b.peers(s, start(s)) {
		switch {
		case p.open != nil:
			line(p.name, fmt.Sprintf("%.0f", b.ownCalls(p)))
		case p.jvm != nil:
			line(p.name, fmt.Sprintf("%.0f", number(p.jvm, "ops", strconv.Itoa(b.contenders), strconv.FormatInt(b.span.Milliseconds(), 10))))
		}
	}
}

// ownCalls are those of one of our backends: one connection a contender, as hosts have.
func (b *bench) ownCalls(p *peer) float64 {
	stores := make([]backends.Backend, b.contenders)
	for i := range stores {
		stores[i] = p.open()
		must(cycle(stores[i], fmt.Sprintf("calls%d", i)))
	}
	var leases atomic.Int64
	var all sync.WaitGroup
	failed := make(chan error, len(stores))
	begin := time.Now()
	for i, store := range stores {
		all.Go(func() {
			for time.Since(begin) < b.span {
				if err := cycle(store, fmt.Sprintf("calls%d", i)); err != nil {
					failed <- err
					return
				}
				leases.Add(1)
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		must(err)
	default:
	}
	return float64(leases.Load()) / time.Since(begin).Seconds()
}

// cycle takes a lease and gives it back.
func cycle(store backends.Backend, key string) error {
	ctx := context.Background()
	l, err := store.Acquire(ctx, backends.Request{Key: key, Owner: backends.NewOwner(), Holder: "bench", Host: "bench", PID: 1,
		TTL: 10 * time.Second, Slots: 1, Last: true})
	if err != nil {
		return err
	}
	zero := 0
	return l.Release(ctx, backends.End{Outcome: backends.Succeeded, ExitCode: &zero})
}

// number is what a JVM library prints.
func number(prefix []string, args ...string) float64 {
	argv := append(append([]string{}, prefix...), args...)
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	if err != nil {
		must(fmt.Errorf("%q: %w: %s", argv, err, out))
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	must(err)
	return n
}

// handover is the time from the end of one job to the first word of the next, for programs, and from the release to the
// waiter's lock, for libraries, where no process is started.
func (b *bench) handover(s *stage) {
	head("Handover to a waiter, median", "between processes", "within one process")
	for _, p := range b.peers(s, start(s)) {
		switch {
		case p.wait != nil:
			var took []time.Duration
			for range b.handovers {
				took = append(took, measure.HandOver(p.wait("handover", "/bin/cat"), p.wait("handover", "/bin/echo", "mine")))
			}
			line(p.name, ms(median(took)), "")
		case p.jvm != nil && !strings.HasPrefix(p.name, "ShedLock"):
			line(p.name, "", ms(time.Duration(number(p.jvm, "handover", strconv.Itoa(b.handovers)))*time.Microsecond))
		default:
			line(p.name, "not measured: it cannot wait, or passes no stdin on", "")
		}
	}
}
