//go:build unix && !linux

package supervise

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// ignoredAtStart knows what the runtime leaves ignored.
func ignoredAtStart() func(syscall.Signal) bool {
	return func(sig syscall.Signal) bool {
		return (sig == unix.SIGHUP || sig == unix.SIGINT) && signal.Ignored(sig)
	}
}

// tcsetpgrp works from the background too, because TTOU is ignored meanwhile.
func tcsetpgrp(tty, pgrp int) error {
	signal.Ignore(unix.SIGTTOU)
	defer signal.Reset(unix.SIGTTOU)
	return unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, pgrp)
}
