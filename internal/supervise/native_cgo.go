//go:build linux && cgo

package supervise

/*
#cgo CFLAGS: -O2 -Wall
#cgo noescape lockrun_spawn
#cgo nocallback lockrun_spawn
#cgo noescape lockrun_spawn_guard
#cgo nocallback lockrun_spawn_guard
#include <stdlib.h>
#include "native.h"
*/
import "C"

import (
	"bytes"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// exactDispositions tells whether COMMAND gets every ignored signal as lockrun's parent left it.
const exactDispositions = true

// spawnGivesTerminal tells whether spawn itself puts COMMAND in the foreground, before it runs.
const spawnGivesTerminal = true

// spawn executes the job in a process group of its own. With tty, the group gets the terminal's foreground before it
// runs. The guard behind the pipe is told of it before that, too. executing tells which step failed.
func spawn(j *Job, tty, guard int) (pid int, executing bool, err error) {
	size := len(j.Path) + 1
	for _, s := range j.Argv {
		size += len(s) + 1
	}
	for _, s := range j.Env {
		size += len(s) + 1
	}
	blob := append(append(make([]byte, 0, size), j.Path...), 0)
	for _, s := range j.Argv {
		blob = append(append(blob, s...), 0)
	}
	for _, s := range j.Env {
		blob = append(append(blob, s...), 0)
	}
	if bytes.Count(blob, []byte{0}) != 1+len(j.Argv)+len(j.Env) {
		return 0, true, unix.EINVAL // a NUL would end one argument and begin another
	}
	var exec C.int
	n := C.lockrun_spawn((*C.char)(unsafe.Pointer(&blob[0])), C.int(len(j.Argv)), C.int(len(j.Env)), C.int(tty), C.int(guard), &exec)
	if n < 0 {
		return 0, exec != 0, syscall.Errno(-n)
	}
	return int(n), true, nil
}

func spawnGuard(marker string, fds []int, patience time.Duration) (int, error) {
	m, name := append([]byte(marker), 0), append([]byte(guardName), 0)
	c := make([]C.int, len(fds))
	for i, fd := range fds {
		c[i] = C.int(fd)
	}
	n := C.lockrun_spawn_guard((*C.char)(unsafe.Pointer(&m[0])), (*C.char)(unsafe.Pointer(&name[0])), &c[0], C.int(len(c)),
		C.int(patience.Milliseconds()))
	if n < 0 {
		return 0, os.NewSyscallError("execve", syscall.Errno(-n))
	}
	return int(n), nil
}

// GuardMain is for builds whose guard is a Go process; here the guard never gets as far as main.
func GuardMain() {}

// origin is what lockrun's parent left to it.
type origin struct{ ignoredSet uint64 }

func readOrigin() origin { return origin{uint64(C.lockrun_ignored())} }

// ignored tells whether the signal was ignored when lockrun was started.
func (o origin) ignored(sig syscall.Signal) bool { return o.ignoredSet>>(sig-1)&1 != 0 }

func (s *Signals) catchTo()                 { C.lockrun_catch_to(C.int(s.w)) }
func (s *Signals) catch(sig syscall.Signal) { C.lockrun_catch(C.int(sig)) }

func (s *Signals) release(sig syscall.Signal) { C.lockrun_default(C.int(sig)) }

// keepIgnored undoes what the Go runtime did to signals that lockrun's parent wants ignored: a TERM, for example, would
// end this process. It leaves alone what the runtime needs.
func (s *Signals) keepIgnored() {
	for sig := unix.SIGHUP; sig <= unix.SIGSYS; sig++ {
		switch sig {
		case unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSYS, unix.SIGKILL,
			unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG, unix.SIGPROF:
		default:
			if s.ignored(sig) {
				C.lockrun_ignore(C.int(sig))
			}
		}
	}
}

func tcsetpgrp(tty, pgrp int) error {
	if e := C.lockrun_tcsetpgrp(C.int(tty), C.int(pgrp)); e != 0 {
		return syscall.Errno(-e)
	}
	return nil
}
