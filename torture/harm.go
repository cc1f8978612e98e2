package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

var starter = sync.OnceValue(func() chan<- func() {
	c := make(chan func())
	go func() {
		runtime.LockOSThread() // never unlocked: this goroutine never ends
		for f := range c {
			f()
		}
	}()
	return c
})

// harm does to a run what was planned. It returns at once when the run has ended.
func (c *contender) harm(done <-chan struct{}) {
	h := c.r.Plan.Harm
	if h.Kind == "" {
		return
	}
	var job *os.Process
	if h.Begun || h.Kind != stopRun && h.Kind != killRun && h.Kind != storm {
		select {
		case pid := <-c.began:
			job, _ = os.FindProcess(pid) // a pidfd: it means this process, whatever becomes of the number
		case <-done:
			return
		}
	}
	if !pause(done, h.After) {
		return
	}
	act := c.acting(h.Kind)
	defer act()
	switch h.Kind {
	case killRun:
		c.signal(syscall.SIGKILL)
	case stopRun:
		stopFor(done, h.Length, []signaler{c.cmd.Process})
	case killJob:
		_ = job.Kill()
	case stopJob:
		stopFor(done, h.Length, []signaler{job})
	case killBoth:
		c.killBoth(job)
	case stopBoth:
		stopFor(done, h.Length, []signaler{c.cmd.Process, job})
	case freezeTree:
		c.freeze(done)
	case storm:
		c.storm(done)
	case killGuard:
		for _, p := range c.guards() {
			_ = p.Kill()
		}
	}
}

// acting notes that something is being done, until the returned function is called.
func (c *contender) acting(kind string) (over func()) {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	c.r.Acts = append(c.r.Acts, act{Kind: kind, From: bootNow()})
	i := len(c.r.Acts) - 1
	c.g.harms[kind]++
	return func() {
		c.g.mu.Lock()
		defer c.g.mu.Unlock()
		c.r.Acts[i].To = bootNow()
	}
}

// pause waits, and tells whether it did; false means that the run has ended.
func pause(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-done:
		return false
	}
}

type signaler interface{ Signal(os.Signal) error }

// stopFor stops processes for a while. Those that are gone need nothing.
func stopFor(done <-chan struct{}, d time.Duration, all []signaler) {
	for _, p := range all {
		_ = p.Signal(syscall.SIGSTOP)
	}
	pause(done, d)
	for _, p := range all {
		_ = p.Signal(syscall.SIGCONT)
	}
}

// killBoth kills lockrun and its job at one moment, in either order.
func (c *contender) killBoth(job *os.Process) {
	if c.r.N%2 == 0 {
		_ = job.Kill()
	}
	c.signal(syscall.SIGKILL)
	_ = job.Kill()
}

// freeze stops lockrun, its guard and all of its job, as a paused container would: nobody is left who could do anything.
func (c *contender) freeze(done <-chan struct{}) {
	_ = c.cmd.Process.Signal(syscall.SIGSTOP)
	frozen := []signaler{c.cmd.Process}
	seen := map[int]bool{}
	for more := true; more; { // what is stopped starts nothing more, so this ends
		more = false
		for _, pid := range descendants(c.cmd.Process.Pid) {
			if p, err := os.FindProcess(pid); err == nil && !seen[pid] {
				seen[pid], more = true, true
				_ = p.Signal(syscall.SIGSTOP)
				frozen = append(frozen, p)
			}
		}
	}
	stopFor(done, c.r.Plan.Harm.Length, frozen)
}

// storm sends signals that ask for an end, in quick succession.
func (c *contender) storm(done <-chan struct{}) {
	signals := []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}
	for i := range c.r.Plan.Harm.Times {
		c.signal(signals[i%len(signals)])
		if !pause(done, c.r.Plan.Harm.Gap) {
			return
		}
	}
}

// guards are the guard processes of lockrun: its children that are not the job.
func (c *contender) guards() (all []*os.Process) {
	for _, pid := range children(c.cmd.Process.Pid) {
		if c.g.isLockrun(pid) {
			if p, err := os.FindProcess(pid); err == nil {
				all = append(all, p)
			}
		}
	}
	return all
}

// isLockrun tells whether a process executes our lockrun.
func (g *game) isLockrun(pid int) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && exe == g.lockrun
}

// descendants are all processes below one.
func descendants(pid int) (all []int) {
	for next := children(pid); len(next) > 0; {
		all = append(all, next...)
		var below []int
		for _, p := range next {
			below = append(below, children(p)...)
		}
		next = below
	}
	return all
}

func children(of int) (all []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// The program's name, in brackets, may hold anything.
		f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(f) > 1 && f[1] == strconv.Itoa(of) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			all = append(all, pid)
		}
	}
	return all
}
