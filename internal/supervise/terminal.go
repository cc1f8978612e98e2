//go:build unix

package supervise

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/internal/boottime"
)

// terminal is the controlling terminal, and whose turn it is. COMMAND is in a group of its own, so it may only read from
// the terminal, or change it, while that group is the foreground group.
//
// Where lockrun is the whole foreground job, COMMAND's group takes its place from the start, and Ctrl-C and Ctrl-Z reach
// COMMAND from the kernel, once, without lockrun. Where others are in lockrun's group (a pipeline, a script) they would
// lose the terminal by that; COMMAND gets it when it is stopped for want of it.
type terminal struct {
	fd    int // 0: there is none
	own   int // lockrun's group
	job   int // COMMAND's group
	eager bool
	given bool // COMMAND's group has been put in the foreground

	suspended bool          // lockrun has stopped itself, and waits for the CONT that it got back with
	resumeBy  time.Duration // when to conclude that the system did not let it stop
}

// orphanPatience is how long after waking up the signal that woke lockrun may take to arrive. Without one lockrun was
// never stopped: the terminal's driver does not stop a group that nobody could continue.
const orphanPatience = 100 * time.Millisecond

func (tt *terminal) open(own int) {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return
	}
	tt.fd, tt.own = fd, own
	tt.eager = own == os.Getpid() && !inPipeline()
}

func (tt *terminal) close() {
	if tt.fd > 0 {
		unix.Close(tt.fd)
		tt.fd = 0
	}
}

// inPipeline guesses whether a shell has put others into our group: the leader of a pipeline writes into a pipe.
func inPipeline() bool {
	for fd := range 3 {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && (st.Mode&unix.S_IFMT == unix.S_IFIFO || st.Mode&unix.S_IFMT == unix.S_IFSOCK) {
			return true
		}
	}
	return false
}

// foreground is the group that has the terminal; 0 where that cannot be told.
func (tt *terminal) foreground() int {
	if tt.fd == 0 {
		return 0
	}
	group, err := unix.IoctlGetInt(tt.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

func (tt *terminal) inForeground() bool { return tt.fd > 0 && tt.foreground() == tt.own }

// started notes COMMAND's group. Where the build could not do so before COMMAND ran, it gets the terminal now.
func (tt *terminal) started(job int, wanted bool) {
	tt.job = job
	if wanted {
		tt.given = true
		if !spawnGivesTerminal {
			tt.give()
		}
	}
}

func (tt *terminal) give() bool {
	if tcsetpgrp(tt.fd, tt.job) != nil {
		return false
	}
	tt.given = true
	return true
}

// giveBack makes lockrun's group the foreground group again, if COMMAND's is it, or one that died with it.
func (tt *terminal) giveBack() {
	fg := tt.foreground()
	if fg > 0 && fg != tt.own && (tt.given && fg == tt.job || unix.Kill(-fg, 0) == unix.ESRCH) {
		tcsetpgrp(tt.fd, tt.own)
	}
}

func (tt *terminal) dueAt() time.Duration {
	if tt.suspended {
		return tt.resumeBy
	}
	return never
}

// onStop deals with COMMAND having been stopped.
func (t *Tree) onStop(sig syscall.Signal) {
	if t.tty.fd == 0 || t.stopping {
		return
	}
	fg := t.tty.foreground()
	switch sig {
	case unix.SIGTTIN, unix.SIGTTOU:
		switch {
		case fg == t.tty.own && t.tty.give(), fg == t.pid:
			t.signalGroup(unix.SIGCONT)
			t.stopped = false
		default:
			t.suspend(sig)
		}
	case unix.SIGTSTP:
		t.suspend(sig)
	case unix.SIGSTOP:
		// Whoever stops the foreground job of a shell gets the shell's prompt; with COMMAND alone stopped nobody
		// would have the terminal.
		if fg == t.pid {
			t.suspend(unix.SIGTSTP)
		}
	}
}

// suspend stops lockrun as COMMAND was stopped, and whoever else is in its group, so that the shell sees one job. The
// guard runs on and knows the deadline.
//
// The kernel may choose another thread to take the signal, so that this one runs on for a moment: the default action
// stays in place until resume, and nothing here relies on having been stopped.
func (t *Tree) suspend(sig syscall.Signal) {
	t.tty.giveBack()
	t.tty.suspended = true
	t.tty.resumeBy = boottime.Now() + orphanPatience
	if sig == unix.SIGTSTP {
		t.catchTSTP(false)
	}
	unix.Kill(0, sig)
}

// resumeOrphan lets COMMAND go on although nobody sent CONT, because lockrun was not stopped in the first place. A
// moment that was slept through tells that it was, and that CONT is about to be found in the pipe.
func (t *Tree) resumeOrphan(now time.Duration) {
	switch late := now - t.tty.resumeBy; {
	case !t.tty.suspended || late < 0:
	case late > orphanPatience/2:
		t.tty.resumeBy = now + orphanPatience
	default:
		t.resume()
	}
}

// resume lets COMMAND go on: lockrun got CONT, or could not stop. The terminal is handed over first, so that COMMAND
// does not trip over it.
func (t *Tree) resume() {
	if t.tty.suspended {
		t.tty.suspended = false
		t.catchTSTP(true)
	}
	if (t.tty.eager || t.tty.given) && !t.ended && t.tty.inForeground() {
		t.tty.give()
	}
	t.pass(unix.SIGCONT)
	t.stopped = false
}

// catchTSTP makes a Ctrl-Z that the terminal sends to lockrun's group reach COMMAND's too, or undoes that.
func (t *Tree) catchTSTP(yes bool) {
	switch {
	case t.tty.fd == 0 || t.signals.ignored(unix.SIGTSTP):
	case yes:
		t.signals.catch(unix.SIGTSTP)
	default:
		t.signals.release(unix.SIGTSTP)
	}
}
