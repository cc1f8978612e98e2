//go:build unix && !(linux && cgo)

package supervise

import (
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What native_cgo.go does in C, as far as Go alone can do it.

// spawnGivesTerminal is false: between fork and exec Go lets the child be stopped by TTOU before it can take the
// terminal. The parent gives it, and a child that was quicker is stopped and continued by onStop.
const spawnGivesTerminal = false

func spawn(j *Job, tty, guard int) (pid int, executing bool, err error) {
	pid, err = syscall.ForkExec(j.Path, j.Argv, &syscall.ProcAttr{
		Env:   j.Env,
		Files: []uintptr{0, 1, 2},
		Sys:   childAttr(),
	})
	if err == nil && guard > 0 {
		writeMessage(guard, message{msgCommandStarted, int64(pid)}) // a little later than C can
	}
	return pid, err != unix.EAGAIN && err != unix.ENOMEM, err
}

func spawnGuard(marker string, fds []int, _ time.Duration) (int, error) {
	files := make([]uintptr, len(fds))
	for i, fd := range fds {
		files[i] = uintptr(fd)
	}
	exe, err := os.Executable()
	if err != nil {
		return 0, err
	}
	pid, err := syscall.ForkExec(exe, []string{guardName}, &syscall.ProcAttr{
		Env:   []string{marker},
		Files: files,
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return 0, os.NewSyscallError("execve", err)
	}
	return pid, nil
}

// GuardMain is called first in main. In a process that was started as a guard it is the whole life of it and does not
// return; in any other it returns at once.
func GuardMain() {
	env := os.Environ()
	if len(env) != 1 || !strings.HasPrefix(env[0], guardMarker) {
		return
	}
	runGuard(strings.TrimPrefix(env[0], guardMarker))
}

func (s *Signals) catchTo() {
	s.caught = make(chan os.Signal, 256)
	go func() {
		for sig := range s.caught {
			s.post(sig.(syscall.Signal))
		}
	}()
}

// keepIgnored has nothing to undo: the runtime leaves HUP and INT ignored, and nobody knows about the others.
func (s *Signals) keepIgnored() {}
