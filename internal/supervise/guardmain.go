//go:build unix && !(linux && cgo)

package supervise

import (
	"encoding/binary"
	"fmt"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/internal/boottime"
)

// guardProcess is the guard where it is a Go process; guard.c is the same in C.
type guardProcess struct {
	lockrun, child, ownGroup int
	since                    uint64
	deadline                 time.Duration // on the kernel's clock; negative: none
	done                     time.Duration // the deadline that has been seen to
	tty                      int           // 0: there is none
	owner                    string
	lockrunLives             bool
	commandLives             bool
	fds                      int
	spareUntil               time.Duration // until then nested guards are left to their work
	alarm                    alarm
}

func runGuard(marker string) {
	g := &guardProcess{lockrunLives: true, done: -1}
	var tty, keep int
	var deadline int64
	if _, err := fmt.Sscanf(marker, "%d:%d:%d:%d:%d:%d:%d:%s",
		&g.lockrun, &g.child, &g.since, &deadline, &g.ownGroup, &tty, &keep, &g.owner); err != nil && keep < 0 {
		unix.Exit(2)
	}
	g.commandLives = g.child > 0
	g.deadline, g.tty, g.fds = time.Duration(deadline), tty, 1+tty+keep
	g.detach()
	for g.listen(true) {
		if g.isLate() && !g.late() {
			break
		}
	}
	g.awaitOrphanhood()
	g.lockrunLives = false
	g.giveTerminalBack(nil)
	g.giveTerminalBack(g.strike())
	// What cannot be killed keeps the guard, and with it the proof that the holder is not dead yet.
	for quiet, pause := 0, time.Millisecond; quiet < 2; pause = min(2*pause, time.Second) {
		killed := g.kill()
		g.giveTerminalBack(killed)
		if len(killed) > 0 {
			quiet = 0
			time.Sleep(pause)
		} else {
			quiet++
			time.Sleep(time.Millisecond)
		}
	}
	unix.Exit(0)
}

// detach gives up whatever a process that nobody knows of must not hold on to. All signals are ignored, since a Go
// process cannot block them.
func (g *guardProcess) detach() {
	setGuardName()
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM,
		unix.SIGPIPE, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGWINCH, unix.SIGABRT, unix.SIGTRAP,
		unix.SIGVTALRM, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGIO)
	unix.Chdir("/")
	// Those of the runtime are closed on exec; what is not was inherited.
	for fd := g.fds; fd < 1024; fd++ {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}

func (g *guardProcess) isLate() bool {
	return g.deadline >= 0 && g.deadline != g.done && boottime.Raw() >= g.deadline
}

// listen waits for news, at most until the deadline. It returns false when lockrun is gone.
func (g *guardProcess) listen(wait bool) bool {
	until := boottime.Now()
	if wait {
		until += safetyNet
		if g.deadline >= 0 && g.deadline != g.done {
			until = min(until, g.deadline-boottime.Offset())
		}
	}
	g.alarm.poll(0, boottime.Now(), until)
	var buf [64 * messageSize]byte
	if unix.SetNonblock(0, true) != nil {
		return false
	}
	n, err := unix.Read(0, buf[:])
	if err != nil {
		return true
	}
	for b := buf[:n]; len(b) >= messageSize; b = b[messageSize:] {
		switch value := int64(binary.NativeEndian.Uint64(b[8:])); binary.NativeEndian.Uint64(b) {
		case msgDeadline:
			g.deadline = time.Duration(value)
		case msgNever:
			g.deadline = -1
		case msgStandDown:
			unix.Exit(0)
		case msgCommandStarted:
			g.child, g.commandLives = int(value), true
		case msgCommandEnded:
			g.commandLives = false
		}
	}
	return n > 0
}

// late kills because the deadline has passed, until two looks in a row find nothing or lockrun has news.
func (g *guardProcess) late() bool {
	deadline := g.deadline
	g.strike()
	for quiet, pause := 0, time.Millisecond; quiet < 2; pause = min(2*pause, 100*time.Millisecond) {
		if len(g.kill()) > 0 {
			quiet = 0
		} else {
			quiet++
		}
		time.Sleep(pause)
		if !g.listen(false) {
			return false
		}
		if g.deadline < 0 || g.deadline > boottime.Raw() {
			return true
		}
	}
	g.done = deadline
	return true
}

// awaitOrphanhood waits until lockrun's exit is complete: the pipe ends somewhat before. A group that is stopped when its
// last tie to the session dies gets HUP and CONT from the kernel, and would run apart while it is being counted.
func (g *guardProcess) awaitOrphanhood() {
	for i := 0; i < 100 && unix.Getppid() == g.lockrun; i++ {
		time.Sleep(time.Millisecond)
	}
}

// giveTerminalBack undoes what lockrun cannot undo any more. A COMMAND that is a shell has given the terminal to a group of its
// own making, which is known while those in it are found, and is nobody's once they are gone.
func (g *guardProcess) giveTerminalBack(struck []proc) {
	if g.tty == 0 {
		return
	}
	fg, err := unix.IoctlGetInt(g.tty, unix.TIOCGPGRP)
	if err != nil {
		return
	}
	ours := fg == g.child || slices.ContainsFunc(struck, func(p proc) bool { return p.pgrp == fg })
	if ours || unix.Kill(-fg, 0) == unix.ESRCH {
		unix.IoctlSetPointerInt(g.tty, unix.TIOCSPGRP, g.ownGroup)
	}
}

// strike kills what can be found at once. The group is stopped first: a parent that is dead no longer tells whose child
// a process was. It returns whom it has found.
func (g *guardProcess) strike() []proc {
	g.spareUntil = boottime.Now() + guardMercy
	if g.commandLives {
		unix.Kill(-g.child, syscall.SIGSTOP)
	}
	list := g.members(false)
	if g.commandLives {
		unix.Kill(-g.child, syscall.SIGKILL)
		unix.Setpriority(unix.PRIO_PGRP, g.child, -20) // dying takes the processor, too: see proctree.c
	}
	g.send(list)
	return list
}

// guardMercy is how long the guard of a lockrun within the job may take to kill what only that one can tell: see proctree.c.
const guardMercy = 500 * time.Millisecond

func (g *guardProcess) send(list []proc) {
	spare := boottime.Now() < g.spareUntil
	for _, p := range list {
		if !spare || !p.isGuard() {
			p.signal(syscall.SIGKILL)
		}
	}
}

// kill kills what is left and returns it.
func (g *guardProcess) kill() []proc {
	list := g.members(true)
	g.send(list)
	return list
}
