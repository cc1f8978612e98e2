//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/internal/boottime"
)

const (
	never = time.Duration(math.MaxInt64)

	// safetyNet bounds how long the loop believes that nothing happened. Everything it waits for wakes it up.
	safetyNet = 30 * time.Second

	// unkillable is how long after KILL a tree may take to die before Wait gives up on it. What is still there then
	// hangs in the kernel, on a dead file server for example, and may do so for ever.
	unkillable = 5 * time.Second
)

// Tree is a job that was started.
type Tree struct {
	job      Job
	signals  *Signals
	deadline *Deadline
	wanted   atomic.Int32 // the Cause of the first Stop

	// All below belongs to the goroutine in Wait.
	self, pid int
	ownGroup  int
	since     uint64 // no process of the tree was started before, in clock ticks
	guard     guard
	dismissed int // a guard that was killed, and has to be reaped
	tty       terminal
	alarm     alarm
	held      []syscall.Signal // received before Start
	timeoutAt time.Duration
	subreaper bool

	ended   bool
	stopped bool
	status  syscall.WaitStatus
	left    int
	gone    bool

	cause     Cause
	stopping  bool
	stopAt    time.Duration // when TERM was sent
	killing   bool
	killAt    time.Duration // when KILL was first sent
	nextRound time.Duration // when to look again whether KILL has worked
	pause     time.Duration
	foreign   foreign
	thread    int // the one that started COMMAND and the guard
}

// Start starts the job. The error is a *StartError when COMMAND could not be executed, and nothing is left behind then.
//
// The calling goroutine keeps its thread until it has called Wait, which it must: the kernel kills COMMAND when the
// thread that started it ends (golang/go#27505), and a goroutine that ends takes a locked thread with it.
func Start(j Job, s *Signals, d *Deadline) (*Tree, error) {
	t := &Tree{job: j, signals: s, deadline: d, self: os.Getpid(), ownGroup: unix.Getpgrp()}
	if d == nil {
		t.deadline = new(Deadline)
	}
	t.subreaper = becomeSubreaper()
	s.catch(unix.SIGCHLD)
	t.tty.open(t.ownGroup)
	t.catchTSTP(true)

	runtime.LockOSThread()
	t.thread = threadID()
	now := boottime.Now()
	t.since = startTicks(now)
	// Before COMMAND, so that there is no moment in which nobody would stop it: it may well stop or kill lockrun itself.
	t.protect(now)
	if err := t.spawn(); err != nil {
		t.dismissGuard()
		t.Close()
		runtime.UnlockOSThread()
		t.catchTSTP(false)
		t.tty.close()
		return nil, err
	}
	if j.Timeout > 0 {
		t.timeoutAt = now + j.Timeout
	}
	t.held = s.take()
	return t, nil
}

func (t *Tree) spawn() error {
	tty := -1
	if t.tty.eager && t.tty.inForeground() {
		tty = t.tty.fd
	}
	pid, executing, err := spawn(&t.job, tty, t.guard.pipe)
	if err != nil {
		t.tty.giveBack()
		return startError(&t.job, executing, err)
	}
	t.pid = pid
	t.tty.started(pid, tty >= 0)
	return nil
}

// startError finds out what an error of execve meant. ENOENT is said of the file as well as of its interpreter.
func startError(j *Job, executing bool, err error) error {
	if !executing {
		return &StartError{Path: j.Path, Code: 126, Err: fmt.Errorf("no process could be started: %w", err)}
	}
	remedy := ""
	switch {
	case errors.Is(err, unix.ENOENT) && !missing(j.Path):
		err = fmt.Errorf("its interpreter: %w", err)
	case errors.Is(err, unix.ENOEXEC):
		remedy = "a script needs a first line such as #!/bin/sh, a binary has to be for this machine"
	}
	return &StartError{Path: j.Path, Code: codeOf(err), Err: err, Remedy: remedy}
}

// PID is COMMAND's process, and its process group.
func (t *Tree) PID() int { return t.pid }

// Stop asks for TERM now and KILL after the grace, but never later than the deadline says. It may be called by any
// goroutine, any number of times (the first cause stays), and does not wait for anything.
func (t *Tree) Stop(c Cause) {
	if t.wanted.CompareAndSwap(int32(CauseNone), int32(c)) {
		t.signals.wake()
	}
}

// Wait runs the tree to its end and returns once it is gone, or once that cannot be shown. It is called once, by the
// goroutine that called Start.
func (t *Tree) Wait() Result {
	defer runtime.UnlockOSThread()
	for _, sig := range t.held {
		t.receive(sig, boottime.Now())
	}
	for {
		t.reap(boottime.Now())
		// The clock comes before everything else: after a late wake-up nothing may keep the kill waiting. It is read after
		// the reaping, in which lockrun may have been stopped together with its job for any time.
		now := boottime.Now()
		t.judge(now)
		if t.over(now) {
			return t.finish()
		}
		t.sleep(now)
		t.listen()
		t.resumeOrphan(boottime.Now())
	}
}

// listen deals with the signals that have arrived. A wake-up of more than a moment is looked at by the clock first.
func (t *Tree) listen() {
	var buf [256]byte
	got := t.signals.drain(buf[:])
	if len(got) == 0 {
		return
	}
	t.reap(boottime.Now())
	now := boottime.Now()
	t.judge(now)
	for _, b := range got {
		if b != 0 {
			t.receive(syscall.Signal(b), now)
		}
	}
}

// sleep waits for a signal, a wake-up, or the next moment at which something is due.
func (t *Tree) sleep(now time.Duration) {
	until := min(now+safetyNet, t.nextRoundAt(), t.tty.dueAt())
	if t.guard.retry > 0 {
		until = min(until, t.guard.retry)
	}
	term, kill, stale := t.deadline.sleeping(until, t.signals)
	if !t.stopping {
		until = min(until, term)
		if t.timeoutAt > 0 {
			until = min(until, t.timeoutAt)
		}
	} else if !t.killing {
		until = min(until, kill, t.stopAt+t.job.Grace)
	}
	if stale {
		until = min(until, now+100*time.Millisecond)
	}
	if t.wanted.Load() != int32(CauseNone) && !t.stopping {
		return
	}
	t.alarm.poll(t.signals.r, now, until)
}

func (t *Tree) nextRoundAt() time.Duration {
	if t.killing {
		return t.nextRound
	}
	return never
}

// finish gives back what the tree had.
func (t *Tree) finish() Result {
	t.dismissGuard()
	t.reapOrphans(boottime.Now())
	t.tty.giveBack()
	t.catchTSTP(false)
	t.tty.close()
	t.alarm.close()
	t.deadline.sleeping(never, nil)
	t.signals.giveBack()
	r := Result{Ended: t.ended, Cause: t.cause, Gone: t.gone, Left: t.left}
	if t.ended {
		r.Code = exitCode(t.status)
	}
	return r
}

// Close waits until the guard, which is dying when Wait returns, is gone too. It is the last thing to do, and may be done
// again.
func (t *Tree) Close() {
	if t.dismissed != 0 {
		wait4(t.dismissed, nil, 0)
		t.dismissed = 0
	}
}

func exitCode(s syscall.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}

func (t *Tree) warnf(format string, args ...any) {
	if t.job.Warn != nil {
		t.job.Warn(fmt.Sprintf(format, args...))
	}
}
