package main

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const hasPidfd = true

// watchPID begins to watch a process. It is called while the process is known to live.
func watchPID(pid int) (pidWatch, error) {
	w := pidWatch{PID: pid}
	fd, err := unix.PidfdOpen(pid, 0)
	switch err {
	case nil:
		w.fd = os.NewFile(uintptr(fd), "pidfd")
		return w, nil
	case unix.ESRCH:
		return w, errNoProcess
	case unix.EINVAL, unix.ENOENT:
		return w, fmt.Errorf("it is a thread, not a process; give the script's own, $$")
	}
	// Linux before 5.3, or a filter of system calls.
	if w.Start = startOf(pid); w.Start == "" {
		return w, errNoProcess
	}
	return w, nil
}

// wait returns when the process has ended, its parent having noticed or not.
func (w pidWatch) wait() {
	if w.fd == nil {
		for startOf(w.PID) == w.Start {
			time.Sleep(200 * time.Millisecond)
		}
		return
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(w.fd.Fd()), Events: unix.POLLIN}}, -1)
		if n > 0 || err != nil && err != unix.EINTR {
			return
		}
	}
}

// startOf is field 22 of /proc/PID/stat, the start in clock ticks since boot; "" for a process that has ended.
func startOf(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The command's name, in parentheses, may hold anything.
	f := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(f) < 20 || f[0][0] == 'Z' || f[0][0] == 'X' {
		return ""
	}
	return string(f[19])
}
