//go:build !cgo

package supervise

import (
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// ignoredAtStart asks the kernel about the signals that the runtime leaves alone until somebody wants them, and the
// runtime about the two that it does not take when they are ignored. What it makes of the others nobody can tell.
func ignoredAtStart() func(syscall.Signal) bool {
	tstp := kernelIgnores(unix.SIGTSTP)
	return func(sig syscall.Signal) bool {
		switch sig {
		case unix.SIGHUP, unix.SIGINT:
			return signal.Ignored(sig)
		case unix.SIGTSTP:
			return tstp
		}
		return false
	}
}

// kernelIgnores reads the disposition. Its first word is the handler, or the flags on MIPS, where the answer is "no".
func kernelIgnores(sig syscall.Signal) bool {
	var action [64]byte
	_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&action)), 8, 0, 0)
	return e == 0 && *(*uintptr)(unsafe.Pointer(&action)) == 1
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
