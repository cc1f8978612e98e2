package main

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
)

// cost is what one process took.
type cost struct {
	wall time.Duration
	cpu  time.Duration // its own and that of the children it waited for
	code int
}

// command is a program with its arguments and environment, ready to be started again and again.
type command struct {
	path string
	argv []string
	env  []string
	null *os.File
}

// commandOf prepares a command whose standard streams are /dev/null. Each gets the same small environment.
func commandOf(store, path string, args ...string) (*command, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	env := []string{"PATH=/usr/bin:/bin", "HOME=/", "LOCKRUN_BACKEND=sqlite://" + store}
	return &command{path: path, argv: append([]string{path}, args...), env: env, null: null}, nil
}

// start starts it the cheapest way that Go has: vfork and exec, without the probing of package os.
func (c *command) start() (pid int, err error) {
	fd := c.null.Fd()
	return syscall.ForkExec(c.path, c.argv, &syscall.ProcAttr{Env: c.env, Files: []uintptr{fd, fd, fd}})
}

// run starts it and waits for its end.
func (c *command) run() (cost, error) {
	begin := time.Now()
	pid, err := c.start()
	if err != nil {
		return cost{}, err
	}
	_, got, err := reap(pid)
	got.wall = time.Since(begin)
	return got, err
}

// reap waits for one process, or for any where pid is -1.
func reap(pid int) (int, cost, error) {
	var ws syscall.WaitStatus
	var use syscall.Rusage
	for {
		p, err := syscall.Wait4(pid, &ws, 0, &use)
		if err == syscall.EINTR {
			continue
		}
		cpu := time.Duration(use.Utime.Nano() + use.Stime.Nano())
		return p, cost{cpu: cpu, code: ws.ExitStatus()}, err
	}
}

// inTurns runs each command n times, in turns whose order changes, and returns the medians. want is the exit code that
// each has to end with: a command that fails quickly is no measurement.
func inTurns(n int, want []int, cmds ...*command) ([]time.Duration, error) {
	const warm = 20
	walls := make([][]time.Duration, len(cmds))
	for i := range n + warm {
		for j := range cmds {
			k := (i + j) % len(cmds)
			c, err := cmds[k].run()
			if err != nil {
				return nil, err
			}
			if c.code != want[k] {
				return nil, fmt.Errorf("%v ended with %d, want %d", cmds[k].argv, c.code, want[k])
			}
			if i >= warm {
				walls[k] = append(walls[k], c.wall)
			}
		}
	}
	medians := make([]time.Duration, len(cmds))
	for k := range walls {
		medians[k] = median(walls[k])
	}
	return medians, nil
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}
