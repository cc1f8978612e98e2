package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// start is a whole run, with a process of its own: take the lease, run true, give the lease back.
func (b *bench) start(s *stage, on []string) []row {
	dir, err := os.MkdirTemp("", "lockrun-bench-")
	must(err)
	s.Cleanup(func() { os.RemoveAll(dir) })
	commands := [][]string{
		{b.flock, filepath.Join(dir, "lock"), "true"},
		{b.lockrun, "--backend", "sqlite://" + filepath.Join(dir, "start.db"), "--key", "k", "--", "true"},
	}
	what := []string{"", "SQLite"}
	for _, scheme := range on {
		st := open(s, scheme)
		command := []string{b.lockrun, "--backend", st.url, "--key", "k", "--", "true"}
		inTurns(st.warmUp, [][]string{command})
		commands = append(commands, command)
		what = append(what, st.name)
	}
	m := inTurns(b.runs, commands)
	var rows []row
	for i := 1; i < len(m); i++ {
		rows = append(rows, versus("`lockrun --key k -- true` on "+what[i]+" against `flock FILE true`", m[i].wall, m[0].wall))
	}
	return rows
}

// cost is what one process, with the children that it waited for, took.
type cost struct{ wall, cpu time.Duration }

// inTurns runs each command n times, in turns whose order changes, and gives the medians of what they took.
func inTurns(n int, commands [][]string) []cost {
	const warm = 10
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	must(err)
	defer null.Close()
	walls, cpus := make([][]time.Duration, len(commands)), make([][]time.Duration, len(commands))
	for i := range n + warm {
		for j := range commands {
			k := (i + j) % len(commands)
			if took := runOnce(null, commands[k]); i >= warm {
				walls[k], cpus[k] = append(walls[k], took.wall), append(cpus[k], took.cpu)
			}
		}
	}
	medians := make([]cost, len(commands))
	for k := range walls {
		medians[k] = cost{median(walls[k]), median(cpus[k])}
	}
	return medians
}

// runOnce starts a command the cheapest way that Go has, the same for all, and waits for its end. One that fails is no
// measurement.
func runOnce(null *os.File, argv []string) cost {
	fd := null.Fd()
	attr := &syscall.ProcAttr{Env: []string{"PATH=/usr/bin:/bin", "HOME=/"}, Files: []uintptr{fd, fd, fd}}
	begin := time.Now()
	pid, err := syscall.ForkExec(argv[0], argv, attr)
	must(err)
	var status syscall.WaitStatus
	var use syscall.Rusage
	for {
		_, err = syscall.Wait4(pid, &status, 0, &use)
		if err != syscall.EINTR {
			break
		}
	}
	took := time.Since(begin)
	must(err)
	if !status.Exited() || status.ExitStatus() != 0 {
		must(fmt.Errorf("%q ended with %v: %w", argv, status, errNoMeasure))
	}
	return cost{took, time.Duration(use.Utime.Nano() + use.Stime.Nano())}
}
