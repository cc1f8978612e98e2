//go:build unix

package supervise

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// judge compares the clock with what was asked for, and stops or kills where it is time. It waits for nothing.
func (t *Tree) judge(now time.Duration) {
	term, kill := t.deadline.get()
	if due := t.due(now, term); due != CauseNone && t.liable(due, now, kill) {
		if t.cause == CauseNone || t.cause == CauseSignal {
			t.cause = due
		}
		t.stop(now)
	}
	if t.stopping && (now >= kill || now >= t.stopAt+t.job.Grace) {
		t.killTree(now)
	}
}

// due is the reason for which the tree has to be stopped by now.
func (t *Tree) due(now, term time.Duration) Cause {
	switch {
	case now >= term, t.killedMeanwhile():
		return CauseDeadline
	case t.wanted.Load() != int32(CauseNone):
		return Cause(t.wanted.Load())
	case t.timeoutAt > 0 && now >= t.timeoutAt:
		return CauseTimeout
	}
	return CauseNone
}

// killedMeanwhile: the guard has killed COMMAND at a deadline that was moved afterwards.
func (t *Tree) killedMeanwhile() bool {
	return t.ended && t.status.Signaled() && t.status.Signal() == unix.SIGKILL && t.deadline.wasMissed()
}

// liable tells whether there is something that the reason applies to. COMMAND may have ended by itself before, and been
// found only now because lockrun was frozen; or the guard has done lockrun's work meanwhile.
func (t *Tree) liable(due Cause, now, kill time.Duration) bool {
	if !t.ended || t.stopping {
		return true
	}
	if due == CauseDeadline && now >= kill && t.status.Signaled() && t.status.Signal() == unix.SIGKILL || t.killedMeanwhile() {
		return true
	}
	return t.job.Descendants != Leave && t.countLeft() > 0
}

// stop sends TERM to the whole tree; KILL follows by the clock.
func (t *Tree) stop(now time.Duration) {
	if t.stopping {
		return
	}
	t.stopping, t.stopAt = true, now
	t.signalTree(unix.SIGTERM)
	t.signalTree(unix.SIGCONT) // what is stopped cannot obey
	t.stopped = false
}

// killTree sends KILL to whatever there is, again and again, because what is being killed may be starting something.
func (t *Tree) killTree(now time.Duration) {
	if !t.killing {
		t.killing, t.killAt, t.pause = true, now, time.Millisecond
	} else if now < t.nextRound {
		return
	}
	t.signalTree(unix.SIGKILL)
	t.nextRound = now + t.pause
	t.pause = min(2*t.pause, 50*time.Millisecond)
}

// signalTree sends to the group at once, and then to whoever has left it. COMMAND's number stands for the group only
// while COMMAND has not been reaped; afterwards it may have passed to somebody else, so members are signalled one by one.
func (t *Tree) signalTree(sig syscall.Signal) {
	if !t.ended {
		t.signalGroup(sig)
	}
	for _, p := range t.descendants() {
		if t.ended || p.pgrp != t.pid {
			p.signal(sig)
		}
	}
}

func (t *Tree) signalGroup(sig syscall.Signal) {
	// COMMAND may have joined another group; it is still to get what was sent to it.
	if unix.Kill(-t.pid, sig) == unix.ESRCH {
		unix.Kill(t.pid, sig)
	}
}

// receive deals with one signal that lockrun got.
func (t *Tree) receive(sig syscall.Signal, now time.Duration) {
	switch {
	case sig == unix.SIGCHLD:
	case sig == unix.SIGTSTP: // from a terminal whose foreground group is lockrun's, or from kill
		t.pass(sig)
	case sig == unix.SIGCONT:
		t.resume()
	case isForwarded(sig):
		t.forward(sig, now)
	}
}

// forward passes a signal on, once. Whether COMMAND obeys is its own affair; what outlives it is stopped by over.
func (t *Tree) forward(sig syscall.Signal, now time.Duration) {
	t.pass(sig)
	if !asksStop(sig) {
		return
	}
	if t.stopped || t.groupStopped() {
		t.pass(unix.SIGCONT)
		t.stopped = false
	}
	if t.cause == CauseNone {
		t.cause = CauseSignal
	}
	if t.ended {
		t.stop(now)
	}
}

// pass sends to COMMAND's group, or to those of it who outlived COMMAND.
func (t *Tree) pass(sig syscall.Signal) {
	if !t.ended {
		t.signalGroup(sig)
		return
	}
	for _, p := range t.descendants() {
		if p.pgrp == t.pid {
			p.signal(sig)
		}
	}
}

// over tells whether there is nothing more to wait for. After COMMAND has ended it decides what becomes of the others.
func (t *Tree) over(now time.Duration) bool {
	if !t.ended {
		return t.hopeless(now)
	}
	if t.left = t.countLeft(); t.left == 0 {
		t.gone = true
		return true
	}
	switch {
	case t.killing:
		return t.hopeless(now)
	case t.stopping:
	case t.cause != CauseNone || t.job.Descendants == Kill:
		t.stop(now)
	case t.job.Descendants == Leave:
		t.gone = true
		t.warnf("%s that COMMAND started %s (--descendants wait or kill would see to them)", plural(t.left), t.fate())
		return true
	}
	return false
}

// fate is what becomes of those who are left when lockrun ends.
func (t *Tree) fate() string {
	if t.self == 1 {
		return "will be killed, because lockrun is PID 1"
	}
	if t.left == 1 {
		return "runs on"
	}
	return "run on"
}

// hopeless tells whether KILL has had all the time that it could need.
func (t *Tree) hopeless(now time.Duration) bool {
	if !t.killing || now < t.killAt+unkillable {
		return false
	}
	t.left = max(1, len(t.descendants()))
	t.warnf("%s could not be killed", plural(t.left))
	return true
}
