//go:build unix

package supervise

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// foreign is a dead child that some other part of the program started (a hook, by os/exec) and is going to wait for.
type foreign struct {
	pid   int
	since time.Duration
}

// foreignPatience is how long a foreign child may stay a zombie: the look for orphans does not see past it.
const foreignPatience = 5 * time.Second

// reap takes note of everything that happened to our children. It never blocks, and never waits for "any child": that
// would steal the status of a process that os/exec started.
func (t *Tree) reap(now time.Duration) {
	if !t.ended {
		t.reapCommand()
	}
	if t.guard.pid != 0 {
		var st syscall.WaitStatus
		if pid, _ := wait4(t.guard.pid, &st, unix.WNOHANG); pid == t.guard.pid {
			t.guardDied(now, st)
		}
	} else if t.guard.retry != 0 && now >= t.guard.retry {
		t.protect(now)
	}
	t.reapOrphans(now)
}

func (t *Tree) reapCommand() {
	for {
		var st syscall.WaitStatus
		pid, err := wait4(t.pid, &st, unix.WNOHANG|unix.WUNTRACED|unix.WCONTINUED)
		switch {
		case err != nil || pid != t.pid:
			return
		case st.Stopped():
			t.stopped = true
			t.onStop(st.StopSignal())
		case st.Continued():
			t.stopped = false
		default:
			t.ended, t.status = true, st
			if t.guard.pipe != 0 {
				writeMessage(t.guard.pipe, message{kind: msgCommandEnded})
			}
			return
		}
	}
}

// reapOrphans buries what was left to us, as the subreaper or as PID 1.
func (t *Tree) reapOrphans(now time.Duration) {
	for {
		pid := deadChild()
		if pid <= 0 || pid == t.pid || pid == t.guard.pid {
			return
		}
		if t.isForeign(pid, now) {
			return
		}
		wait4(pid, nil, unix.WNOHANG)
	}
}

// isForeign tells a child of another part of the program by its process group, which is lockrun's own. One that nobody
// waits for was there before lockrun was (`x & exec lockrun`).
func (t *Tree) isForeign(pid int, now time.Duration) bool {
	if group, err := unix.Getpgid(pid); err != nil || group != t.ownGroup {
		return false
	}
	if t.foreign.pid != pid {
		t.foreign = foreign{pid, now}
	}
	return now-t.foreign.since < foreignPatience
}

func wait4(pid int, st *syscall.WaitStatus, options int) (int, error) {
	for {
		got, err := syscall.Wait4(pid, st, options, nil)
		if err != unix.EINTR {
			return got, err
		}
	}
}

func plural(n int) string {
	if n == 1 {
		return "a process"
	}
	return fmt.Sprintf("%d processes", n)
}
