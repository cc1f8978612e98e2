package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockrun/lockrun/bench/measure"
)

// fate is what has become of the jobs of one peer.
type fate struct {
	*peer
	tries  int
	died   []time.Duration // after the fault
	codes  []string        // of the wrappers whose jobs have died
	alive  int             // jobs that were still there at the end of the watch
	second int             // of those, how often another job got the lock beside it

	held *held // this time's
	gone bool
}

// fates takes part for part of a measure, in which all peers' jobs suffer the same fault at the same time.
func (b *bench) fates(once func(*stage, *servers, []*fate)) []*fate {
	var all []*fate
	for i := 0; i < b.faults && (i == 0 || !b.late()); i++ {
		must(perform(func(s *stage) {
			v := start(s)
			for k, p := range b.peers(s, v) {
				if i == 0 {
					all = append(all, &fate{peer: p})
				}
				f := all[k]
				p.failures = f.failures
				if f.err != nil && p.err == nil {
					p.err = f.err
				}
				f.peer, f.held, f.gone = p, nil, false
			}
			once(s, v, all)
		}))
	}
	return all
}

// hold starts the jobs of all that can be measured.
func hold(s *stage, all []*fate) (jobs []*fate) {
	for _, f := range all {
		if f.out() {
			continue
		}
		if err := measure.Try(func() { f.held = f.peer.hold(s.Stage, "fault") }); err != nil {
			f.err = err
			f.failures++
			continue
		}
		f.tries++
		jobs = append(jobs, f)
	}
	return jobs
}

// watch notes when a job dies.
func (f *fate) watch(patience time.Duration) {
	died, after := awaitDeath(f.held.job, patience)
	if f.gone = died; !died {
		f.alive++
		return
	}
	f.died = append(f.died, after)
	code := "does not end"
	if f.held.EndsWithin(10 * time.Second) {
		code = strconv.Itoa(f.held.End())
	}
	f.codes = append(f.codes, code)
}

// askFor is how long another one asks again and again for the lock of a job that is still there. The last one that asks may
// take its time, as a JVM on a busy machine does.
const askFor = 8 * time.Second

// challenge lets another one ask for the lock of a job that is still there.
func (f *fate) challenge() {
	for began := time.Now(); !f.gone && time.Since(began) < askFor; time.Sleep(100 * time.Millisecond) {
		var err error
		func() {
			c := measure.Launch(limit/2, f.guard("fault", "/bin/echo", "up")...)
			defer c.Release()
			err = measure.Try(func() { c.Say("up") })
		}()
		if died, _ := awaitDeath(f.held.job, 0); died {
			return
		}
		if err == nil {
			f.second++
			return
		}
	}
}

// together does something for many at once.
func together(all []*fate, do func(*fate)) {
	var wg sync.WaitGroup
	for _, f := range all {
		wg.Go(func() { do(f) })
	}
	wg.Wait()
}

// frozen is what happens to a job whose lock server stops answering, and whether another job gets the lock beside it as
// soon as the server answers again.
func (b *bench) frozen(*stage) {
	all := b.fates(func(s *stage, v *servers, all []*fate) {
		for _, f := range all {
			if f.server == nil && f.err == nil {
				f.err = inapplicable("has no server")
			}
		}
		jobs := hold(s, all)
		time.Sleep(b.ttl / 2)
		for _, one := range v.running() {
			one.process.Freeze()
		}
		together(jobs, func(f *fate) { f.watch(b.patience) })
		for _, one := range v.running() {
			one.process.Thaw()
		}
		together(jobs, (*fate).challenge)
	})
	head(fmt.Sprintf("The server freezes for %v while the job runs, with a lock of %v; medians", b.patience, b.ttl), "the job", "the wrapper's exit code",
		"when the server answers again, another one runs beside the job")
	for _, f := range all {
		f.line(f.tries, f.end(seconds, b.patience, "runs on"), strings.Join(slices.Compact(slices.Sorted(slices.Values(f.codes))), ", "), f.beside())
	}
}

// killed is what happens to a job whose wrapper is killed, and whether another job gets the lock beside it once the lock's
// time is over.
func (b *bench) killed(*stage) {
	const watch = 3 * time.Second
	all := b.fates(func(s *stage, _ *servers, all []*fate) {
		jobs := hold(s, all)
		var last time.Time
		var wg sync.WaitGroup
		for _, f := range jobs {
			f.held.Kill()
			last = time.Now()
			wg.Go(func() { f.watch(watch) })
			time.Sleep(100 * time.Millisecond) // one after the other, so that a death is seen at once
		}
		wg.Wait()
		time.Sleep(time.Until(last.Add(b.ttl + 2*time.Second)))
		together(jobs, (*fate).challenge)
	})
	head(fmt.Sprintf("The wrapper is killed (SIGKILL), with a lock of %v; medians", b.ttl), "the job", fmt.Sprintf("%v later, another one runs beside it", b.ttl+2*time.Second))
	for _, f := range all {
		f.line(f.tries, f.end(ms, watch, "runs on as an orphan"), f.beside())
	}
}

// end tells how the jobs ended.
func (f *fate) end(unit func(time.Duration) string, patience time.Duration, otherwise string) string {
	switch {
	case len(f.died) == 0:
		return fmt.Sprintf("%s, watched for %v", otherwise, patience)
	case f.alive > 0:
		return fmt.Sprintf("%s in %d of %d, else dead after %s", otherwise, f.alive, f.tries, unit(median(f.died)))
	default:
		return fmt.Sprintf("dead after %s, at most %s", unit(median(f.died)), unit(slices.Max(f.died)))
	}
}

// beside tells whether two jobs ran at once.
func (f *fate) beside() string {
	switch {
	case f.alive == 0:
		return "no: it is dead"
	case f.second == 0:
		return "no"
	default:
		return fmt.Sprintf("**yes**, in %d of %d", f.second, f.alive)
	}
}

// awaitDeath watches a process.
func awaitDeath(pid int, patience time.Duration) (died bool, after time.Duration) {
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(text), ") Z ") {
			return true, time.Since(begin)
		}
		if time.Since(begin) >= patience {
			return false, patience
		}
	}
}
