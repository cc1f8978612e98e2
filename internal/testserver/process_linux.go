package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// attributes makes a server die with this process, and lets it be killed together with what it starts.
//
// A server that changes its user by itself (mariadbd --user) loses its Pdeathsig by that, as any change of credentials
// takes it away. So it is started as that user to begin with.
func attributes(user *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: user}
}

// stopped returns nil when every thread of a process is stopped: they stop one by one.
func stopped(pid int) error {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(tasks) == 0 {
		return fmt.Errorf("process %d is gone", pid)
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(task)
		if err != nil {
			continue // a thread that has ended
		}
		// The name in brackets before the state may hold anything.
		after := stat[strings.LastIndexByte(string(stat), ')')+1:]
		if len(after) < 2 || after[1] != 'T' {
			return fmt.Errorf("a thread of process %d is not stopped: %s", pid, stat)
		}
	}
	return nil
}
