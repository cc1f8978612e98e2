//go:build !cgo

package supervise

import (
	"os"
	"strconv"
)

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

// isGuard tells the guard of a lockrun within the job from one that has only its name: see proctree.c.
func (p proc) isGuard() bool {
	if !p.guard {
		return false
	}
	ours, err := os.Readlink("/proc/self/exe")
	its, _ := os.Readlink("/proc/" + strconv.Itoa(p.pid) + "/exe")
	return err == nil && its == ours
}
