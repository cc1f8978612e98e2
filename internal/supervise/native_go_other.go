//go:build unix && !linux

package supervise

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// origin is what os/signal needs.
type origin struct{ caught chan os.Signal }

func readOrigin() origin { return origin{} }

// ignored knows what the runtime leaves ignored.
func (o *origin) ignored(sig syscall.Signal) bool {
	return (sig == unix.SIGHUP || sig == unix.SIGINT) && signal.Ignored(sig)
}

// catch leaves TSTP alone: os/signal could not bring its default action back, without which lockrun cannot be stopped
// like one job. The price is that Ctrl-Z in a pipeline does not reach COMMAND.
func (s *Signals) catch(sig syscall.Signal) {
	if sig != unix.SIGTSTP {
		signal.Notify(s.caught, sig)
	}
}

func (s *Signals) release(syscall.Signal) {}

// tcsetpgrp works from the background too, because TTOU is ignored meanwhile.
func tcsetpgrp(tty, pgrp int) error {
	signal.Ignore(unix.SIGTTOU)
	defer signal.Reset(unix.SIGTTOU)
	return unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, pgrp)
}
