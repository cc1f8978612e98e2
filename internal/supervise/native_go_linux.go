//go:build !cgo

package supervise

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childAttr asks for the parent-death signal only where there is one: the start would fail otherwise.
func childAttr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	var v int32
	if prctlGet(unix.PR_GET_PDEATHSIG, &v) == nil {
		attr.Pdeathsig = syscall.SIGKILL
	}
	return attr
}

const exactDispositions = false

// origin is what lockrun's parent left to it, and what os/signal needs.
type origin struct {
	tstp     bool           // TSTP was ignored
	caught   chan os.Signal // on the way into the pipe
	released map[syscall.Signal]*kernelAction
}

func readOrigin() origin { return origin{tstp: kernelIgnores(unix.SIGTSTP)} }

// ignored asks the kernel about a signal that the runtime leaves alone until somebody wants it, and the runtime about the
// two that it does not take when they are ignored. What it makes of the others nobody can tell.
func (o *origin) ignored(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGHUP, unix.SIGINT:
		return signal.Ignored(sig)
	case unix.SIGTSTP:
		return o.tstp
	}
	return false
}

// kernelIgnores reads the disposition. Its first word is the handler, or the flags on MIPS, where the answer is "no".
func kernelIgnores(sig syscall.Signal) bool {
	var action kernelAction
	sigaction(sig, nil, &action)
	return *(*uintptr)(unsafe.Pointer(&action)) == 1
}

// catch undoes release, or asks os/signal.
func (s *Signals) catch(sig syscall.Signal) {
	if old, ok := s.released[sig]; ok {
		delete(s.released, sig)
		sigaction(sig, old, nil)
		return
	}
	signal.Notify(s.caught, sig)
}

// release brings the default action back. signal.Reset would leave a handler of the runtime in place, which ignores the
// signals that stop a process.
func (s *Signals) release(sig syscall.Signal) {
	if s.released == nil {
		s.released = make(map[syscall.Signal]*kernelAction)
	}
	s.released[sig] = new(kernelAction)
	sigaction(sig, new(kernelAction), s.released[sig])
}

// kernelAction is at least as large as the kernel's struct sigaction; all zero it is SIG_DFL.
type kernelAction [64]byte

func sigaction(sig syscall.Signal, to, from *kernelAction) {
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(from)), 8, 0, 0)
}

// tcsetpgrp works from the background too, because TTOU is blocked on this thread meanwhile.
func tcsetpgrp(tty, pgrp int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old, one unix.Sigset_t
	const perWord = 8 * unsafe.Sizeof(one.Val[0])
	bit := uintptr(unix.SIGTTOU - 1)
	one.Val[bit/perWord] |= 1 << (bit % perWord)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &one, &old); err != nil {
		return err
	}
	defer unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
	return unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, pgrp)
}
