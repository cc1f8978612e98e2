//go:build unix

package supervise

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/internal/boottime"
)

// The guard's protocol. Its environment is the marker alone, "pid:child:since:deadline:pgrp:tty:keep:owner"; descriptor
// 0 is the pipe, 1 the terminal if there is one, and then come those to keep. Each message is two integers of 64 bits in
// the machine's order, so that a write is never split: the kind and a value, which for a deadline is nanoseconds on the
// kernel's boot clock. The end of the pipe means that lockrun has died.
//
// The first guard is started before COMMAND, with a child of 0: a COMMAND that froze or killed lockrun before there was a
// guard would run past the lease. COMMAND's process itself says in the pipe who it is, before it executes anything.
const (
	guardMarker = "LOCKRUN_GUARD="
	guardName   = "job-guard"

	msgDeadline       = 1 // the tree has to be dead by then
	msgNever          = 2 // there is no deadline
	msgStandDown      = 3 // leave without doing anything
	msgCommandEnded   = 4 // COMMAND was reaped: its number is no longer to be trusted
	msgCommandStarted = 5 // COMMAND's number, and its group's

	messageSize = 16
)

type message struct{ kind, value int64 }

// rawNanos is what the kernel shows when package boottime's clock shows d.
func rawNanos(d time.Duration) int64 { return int64(d + boottime.Offset()) }

// writeMessage returns EAGAIN when the guard did not read for a long time; that it is dead is noticed elsewhere.
func writeMessage(fd int, m message) error {
	var b [messageSize]byte
	binary.NativeEndian.PutUint64(b[:], uint64(m.kind))
	binary.NativeEndian.PutUint64(b[8:], uint64(m.value))
	_, err := unix.Write(fd, b[:])
	return err
}

// guard is lockrun's side of it. All of it belongs to the loop.
type guard struct {
	pid     int // 0: none runs
	pipe    int // where we write; 0: none
	started time.Duration
	deaths  int           // in a row, each soon after its start
	retry   time.Duration // when to try again; 0: nothing to do
}

// maxGuardDeaths bounds the attempts on a system where something kills each guard at once.
const maxGuardDeaths = 10

// startGuard starts one for the tree as it is now.
func (t *Tree) startGuard() error {
	var p [2]int
	if err := pipe(&p); err != nil {
		return fmt.Errorf("pipe: %w", err)
	}
	defer unix.Close(p[0])
	unix.SetNonblock(p[1], true)
	fds := append(make([]int, 0, 8), p[0])
	if t.tty.fd > 0 {
		fds = append(fds, t.tty.fd)
	}
	for _, f := range t.job.Keep {
		fds = append(fds, int(f.Fd()))
	}
	pid, err := spawnGuard(t.guardMarker(len(t.job.Keep)), fds, t.patience())
	if err != nil {
		unix.Close(p[1])
		return err
	}
	t.guard.pid, t.guard.pipe = pid, p[1]
	t.guard.started, t.guard.retry = boottime.Now(), 0
	t.deadline.attach(p[1])
	if t.ended {
		writeMessage(p[1], message{kind: msgCommandEnded})
	}
	return nil
}

// guardPatience is how long a guard may put off its own execution, which most runs of a short command do not live to see.
const guardPatience = 20 * time.Millisecond

// patience is none where a guard has just died, so that a failure is known at once, nor where it may soon have to act.
func (t *Tree) patience() time.Duration {
	if _, kill := t.deadline.get(); t.guard.deaths > 0 || kill-boottime.Now() < 20*guardPatience {
		return 0
	}
	return guardPatience
}

func (t *Tree) guardMarker(keep int) string {
	deadline, tty := int64(-1), 0
	if _, kill := t.deadline.get(); kill != never {
		deadline = rawNanos(kill)
	}
	if t.tty.fd > 0 {
		tty = 1
	}
	return fmt.Sprintf("%s%d:%d:%d:%d:%d:%d:%d:%s",
		guardMarker, t.self, t.pid, t.since, deadline, t.ownGroup, tty, keep, t.job.Owner)
}

// protect starts a guard, and says so if there is none.
func (t *Tree) protect(now time.Duration) {
	if err := t.startGuard(); err != nil {
		t.guard.retry = now + time.Second
		if t.guard.deaths++; t.guard.deaths >= maxGuardDeaths {
			t.guard.retry = 0
		}
		t.warnf("no guard could be started (%v): if lockrun is killed, what COMMAND started may run on", err)
	}
}

// guardDied replaces a guard that somebody killed, or that could not begin. Why it could not (no descriptors, no memory) is
// known from the next one, which is waited for.
func (t *Tree) guardDied(now time.Duration, st syscall.WaitStatus) {
	t.dropGuard()
	if now-t.guard.started > time.Minute {
		t.guard.deaths = 0
	}
	if t.guard.deaths++; t.guard.deaths >= maxGuardDeaths {
		t.warnf("the guard died again and again: if lockrun is killed too, what COMMAND started may run on")
		return
	}
	if st.Signaled() {
		t.warnf("the guard was killed; starting another")
	}
	t.protect(now)
}

func (t *Tree) dropGuard() {
	t.deadline.attach(0)
	unix.Close(t.guard.pipe)
	t.guard.pid, t.guard.pipe = 0, 0
}

// dismissGuard ends the guard, and leaves it to Close to reap it: it takes its time to die, which lockrun has better use
// for. It is killed rather than told; the message is for the case that lockrun itself is killed in between.
func (t *Tree) dismissGuard() {
	if t.guard.pid == 0 {
		return
	}
	writeMessage(t.guard.pipe, message{kind: msgStandDown})
	unix.Kill(t.guard.pid, unix.SIGKILL)
	t.dismissed = t.guard.pid
	t.dropGuard()
}
