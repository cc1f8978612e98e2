package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// memory is what is resident beside a sleeping job: lockrun and its guard, each, and what both together do not share.
func (b *bench) memory() ([]row, error) {
	pid, stop, err := b.sleeper("memory.db")
	if err != nil {
		return nil, err
	}
	defer stop()
	time.Sleep(time.Second) // what start-up has touched is part of it; what is returned soon is not
	rows := []row{{"resident memory of lockrun beside a sleeping job", kb(rollup(pid, "Rss")), "", ""}}
	private := rollup(pid, "Private_Clean") + rollup(pid, "Private_Dirty")
	for _, c := range children(pid) {
		if comm(c) == "sleep" {
			continue
		}
		private += rollup(c, "Private_Clean") + rollup(c, "Private_Dirty")
		rows = append(rows, row{"resident memory of its guard", kb(rollup(c, "Rss")), "", ""})
	}
	return append(rows, row{"memory of both that they share with nobody", kb(private), "", ""}), nil
}

// idle is the CPU of a hold: with the default heartbeat, and with one so long that no beat falls into it.
func (b *bench) idle() ([]row, error) {
	beating, stop, err := b.sleeper("idle.db", "--key", "beating")
	if err != nil {
		return nil, err
	}
	defer stop()
	still, stop2, err := b.sleeper("idle.db", "--key", "still", "--ttl", "1h")
	if err != nil {
		return nil, err
	}
	defer stop2()
	time.Sleep(2 * time.Second)
	before := [2]time.Duration{onCPU(beating), onCPU(still)}
	time.Sleep(b.hold)
	beats, none := onCPU(beating)-before[0], onCPU(still)-before[1]
	what := fmt.Sprintf("CPU of lockrun and its guard over an idle hold of %v", b.hold)
	return []row{
		{what + ", TTL 60s (a beat each 20s)", ms(beats), "", ""},
		{what + ", without a beat", ms(none), "", ""},
	}, nil
}

// sleeper runs a sleeping job under lockrun.
func (b *bench) sleeper(store string, opts ...string) (pid int, stop func(), err error) {
	if len(opts) == 0 {
		opts = []string{"--key", "k"}
	}
	c, err := commandOf(b.at(store), b.lockrun, append(opts, "--", b.sleep, "100000")...)
	if err != nil {
		return 0, nil, err
	}
	if pid, err = c.start(); err != nil {
		return 0, nil, err
	}
	stop = func() { _ = syscall.Kill(pid, syscall.SIGTERM); _, _, _ = reap(pid) }
	if err := until("the job to start", func() bool { return child(pid, "sleep") != 0 }); err != nil {
		stop()
		return 0, nil, err
	}
	return pid, stop, nil
}

// until polls for a condition.
func until(what string, cond func() bool) error {
	for start := time.Now(); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			return fmt.Errorf("waited 10s for %s", what)
		}
	}
	return nil
}

// children lists the children of a process, whichever of its threads started them.
func children(pid int) (kids []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		for _, word := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(word); err == nil {
				kids = append(kids, n)
			}
		}
	}
	return kids
}

// child is the child of that name, or 0.
func child(pid int, name string) int {
	for _, c := range children(pid) {
		if comm(c) == name {
			return c
		}
	}
	return 0
}

func comm(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(text))
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

func kb(n int) string { return fmt.Sprintf("%.1f MB", float64(n)/1024) }

// onCPU is the time that all threads of a process and of its children, the job excepted, have run so far.
func onCPU(pid int) (sum time.Duration) {
	for _, p := range append(children(pid), pid) {
		if comm(p) == "sleep" {
			continue
		}
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p))
		for _, f := range files {
			var ns int64
			text, _ := os.ReadFile(f)
			_, _ = fmt.Sscan(string(text), &ns)
			sum += time.Duration(ns)
		}
	}
	return sum
}
