//go:build unix && !linux

package supervise

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Where there is neither a subreaper nor /proc, the tree is COMMAND's process group, and nothing else can be seen.

func startTicks(time.Duration) uint64 { return 0 }

func threadID() int { return 0 }

func becomeSubreaper() bool { return false }

func deadChild() int { return 0 }

func (t *Tree) countLeft() int {
	if unix.Kill(-t.pid, 0) == unix.ESRCH {
		return 0
	}
	return 1
}

// descendants stand for the group: what is sent to them reaches all of it.
func (t *Tree) descendants() []proc {
	if t.ended && t.countLeft() > 0 {
		return []proc{{pgrp: t.pid}}
	}
	return nil
}

// groupStopped cannot see more than wait4 told.
func (t *Tree) groupStopped() bool { return false }

type proc struct{ pgrp int }

func (p proc) signal(sig syscall.Signal) { unix.Kill(-p.pgrp, sig) }
