package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockrun/lockrun/bench/measure"
)

// some are the tries of a peer, of which a JVM has fewer.
func some(n, slow int) func(*peer) int {
	return func(p *peer) int {
		if p.slow() {
			return slow
		}
		return n
	}
}

// reference are the values of flock.
func reference[T any](values map[*peer][]T) []T {
	for p, all := range values {
		if p.name == "flock" {
			return all
		}
	}
	return nil
}

// start is the time from the start of the wrapper to the first word of its job, and to its end.
func (b *bench) start(s *stage) {
	all := b.peers(s, start(s))
	begun, whole := map[*peer][]time.Duration{}, map[*peer][]time.Duration{}
	b.turns(all, some(1, 1), func(p *peer) { begin(p.guard("start", "/bin/echo", "up")) }) // not counted
	b.turns(all, some(b.runs, b.slowRuns), func(p *peer) {
		first, end := begin(p.guard("start", "/bin/echo", "up"))
		begun[p], whole[p] = append(begun[p], first), append(whole[p], end)
	})
	head("Start: from the wrapper's start to its job's first word, and to its own end; medians", "to the job", "ratio to flock",
		"to the end", "ratio to flock")
	for _, p := range all {
		p.line(len(begun[p]), middle(begun[p]), ratio(begun[p], reference(begun)), middle(whole[p]), ratio(whole[p], reference(whole)))
	}
}

// begin runs a command to its end. Its job has to print "up".
func begin(argv []string) (first, end time.Duration) {
	c := measure.Launch(limit, argv...)
	defer c.Release()
	c.Say("up")
	first = time.Since(c.Started)
	c.Succeed()
	return first, c.Ended.Sub(c.Started)
}

// held is a wrapper beside its job, which sleeps.
type held struct {
	*measure.Child
	job int
}

// hold starts a peer with a job that prints its process id and sleeps.
func (p *peer) hold(s *measure.Stage, key string) *held {
	c := measure.Launch(limit, p.guard(key, "/bin/sh", "-c", "echo $$; exec sleep 1000")...)
	s.Cleanup(c.Release)
	job, err := strconv.Atoi(c.Line())
	must(err)
	return &held{c, job}
}

// memory is what is resident beside a sleeping job.
func (b *bench) memory(s *stage) {
	all := b.peers(s, start(s))
	resident, private, written := map[*peer][]float64{}, map[*peer][]float64{}, map[*peer][]float64{}
	b.turns(all, some(b.samples, b.samples), func(p *peer) {
		must(measure.Perform(func(m *measure.Stage) {
			h := p.hold(m, fmt.Sprint("memory", len(resident[p])))
			time.Sleep(time.Second) // what start-up has touched is part of it; what is returned soon is not
			var rss, clean, dirty int
			for _, pid := range h.wrappers() {
				rss += rollup(pid, "Rss")
				clean += rollup(pid, "Private_Clean")
				dirty += rollup(pid, "Private_Dirty")
			}
			resident[p], private[p] = append(resident[p], float64(rss)), append(private[p], float64(clean+dirty))
			written[p] = append(written[p], float64(dirty))
		}))
	})
	head("Memory beside a sleeping job: the wrapper and what it has started, the job excepted; medians", "resident", "shared with nobody", "of it written to")
	for _, p := range all {
		p.line(len(resident[p]), megabytes(resident[p]), megabytes(private[p]), megabytes(written[p]))
	}
}

// wrappers are the processes around the job, once each of them is a program: before that, one may be a copy of another
// whose memory it shares, which would count twice.
func (h *held) wrappers() []int {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		all := slices.DeleteFunc(family(h.PID()), func(pid int) bool { return pid == h.job })
		programs := map[string]bool{}
		for _, pid := range all {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			programs[string(text)] = true
		}
		if len(programs) == len(all) {
			return all
		}
		if time.Since(began) > limit/2 {
			must(fmt.Errorf("%d wrappers are %d programs: %w", len(all), len(programs), errNoMeasure))
		}
	}
}

// family is a process and all its descendants.
func family(pid int) []int {
	all := []int{pid}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		for _, word := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(word); err == nil {
				all = append(all, family(n)...)
			}
		}
	}
	return all
}

// rollup is one field of smaps_rollup, in KB.
func rollup(pid int, field string) (n int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			_, _ = fmt.Sscan(v, &n)
		}
	}
	return n
}

func megabytes(kb []float64) string {
	if len(kb) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f MB", median(kb)/1024)
}

// rate is whole runs a second by many shells at once, each with a key of its own.
func (b *bench) rate(s *stage) {
	all := b.peers(s, start(s))
	for _, p := range all {
		if p.slow() && p.err == nil {
			p.err = inapplicable("nobody starts a JVM for each run: see the next table")
		}
	}
	rates, failed := map[*peer][]float64{}, map[*peer]int64{}
	b.turns(all, some(b.rounds, 0), func(p *peer) {
		rate, bad := b.crowd(p)
		rates[p], failed[p] = append(rates[p], rate), failed[p]+bad
	})
	head(fmt.Sprintf("Runs of `true` a second by %d contenders at once, a key and a process for each; medians of rounds of %v", b.contenders, b.span),
		"runs/s", "ratio to flock", "failed runs in all")
	for _, p := range all {
		p.line(len(rates[p]), often(rates[p]), ratio(rates[p], reference(rates)), fmt.Sprint(failed[p]))
	}
}

// crowd is one round: runs a second that succeeded, and how many did not.
func (b *bench) crowd(p *peer) (rate float64, bad int64) {
	ctx, cancel := context.WithTimeout(context.Background(), b.span+limit)
	defer cancel()
	var good, failed atomic.Int64
	var first atomic.Pointer[error]
	var all sync.WaitGroup
	began := time.Now()
	for i := range b.contenders {
		argv := p.guard(fmt.Sprintf("rate%d", i), "/bin/true")
		all.Go(func() {
			for time.Since(began) < b.span {
				if err := exec.CommandContext(ctx, argv[0], argv[1:]...).Run(); err != nil {
					failed.Add(1)
					first.CompareAndSwap(nil, &err)
				} else {
					good.Add(1)
				}
			}
		})
	}
	all.Wait()
	if good.Load() == 0 && first.Load() != nil {
		must(fmt.Errorf("all %d runs fail: %w", failed.Load(), *first.Load()))
	}
	return float64(good.Load()) / time.Since(began).Seconds(), failed.Load()
}
