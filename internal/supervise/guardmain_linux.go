//go:build !cgo

package supervise

import "os"

// setGuardName makes the guard found by neither `pkill lockrun` nor one that looks for COMMAND.
func setGuardName() { os.WriteFile("/proc/self/comm", []byte(guardName), 0) }

// members finds the tree; with deep set, also by environment, which may hang in a process whose memory is locked.
func (g *guardProcess) members(deep bool) []proc {
	all, _ := lookAround(g.since)
	mark := ""
	if deep {
		mark = ownerMark(g.owner)
	}
	is := func(p proc) bool {
		return g.child > 0 && (p.pid == g.child || p.ppid == g.child || p.pgrp == g.child) ||
			g.lockrunLives && p.ppid == g.lockrun && p.pgrp != g.ownGroup
	}
	return members(all, is, mark, g.lockrun, os.Getpid(), 1)
}

func (p proc) isGuard() bool { return p.guard }
