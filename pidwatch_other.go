//go:build unix && !linux

package main

import (
	"syscall"
	"time"
)

const hasPidfd = false

// watchPID begins to watch a process. Here it has nothing but its number.
func watchPID(pid int) (pidWatch, error) {
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return pidWatch{}, errNoProcess
	}
	return pidWatch{PID: pid}, nil
}

// wait returns when no process has the number.
func (w pidWatch) wait() {
	for syscall.Kill(w.PID, 0) != syscall.ESRCH {
		time.Sleep(200 * time.Millisecond)
	}
}
