//go:build unix

// Package supervise runs one command as a tree of processes that can be stopped as a whole, and says when it is gone.
//
// # What holds
//
// COMMAND gets a process group of its own and, apart from that, the world as lockrun found it. The tree is everything
// that descends from it. On Linux lockrun is a subreaper, so that a descendant cannot leave the tree by losing its
// parent; when lockrun dies the kernel kills COMMAND, and a guard (a second process, see guard.go) the rest. The
// guard knows the deadline too, for the case that lockrun alone is frozen.
//
// # What does not
//
// Other systems have neither subreapers nor a parent-death signal; [Unprotected] says what is missing where lockrun
// runs. A descendant that left the group, dropped LOCKRUN_OWNER from its environment and has not been seen by the guard
// yet (it looks often at first, each 15 s at least) survives SIGKILL of lockrun, though no orderly stop. A process of another user, as one that is setuid, can neither be killed
// nor seen dead by an unprivileged lockrun.
//
// # One loop
//
// Wait is a single loop over poll(2): signals arrive as bytes in a pipe, and so do wake-ups from other goroutines. The
// way to the kill has no other goroutine, lock or channel in it.
package supervise

import (
	"fmt"
	"os"
	"time"
)

// Job is what to run and how.
type Job struct {
	Path string   // what to execute, as Find returned it
	Argv []string // Argv[0] included
	Env  []string // the whole environment; LOCKRUN_OWNER in it marks the tree

	Owner       string        // the value of LOCKRUN_OWNER: unique to this run; "" if there is none
	Grace       time.Duration // between TERM and KILL
	Timeout     time.Duration // longest run of the tree, by the boot clock; 0: none
	Descendants Policy        // what becomes of those that outlive COMMAND

	// Keep are descriptors that the guard holds open until it has done its work, as proof that the holder of a lease
	// is not quite dead. They have to stay open until Wait returns, since a guard may have to be replaced.
	Keep []*os.File

	// Warn tells a person something that is no error, in one line without prefix. It stands in the way of the kill, so
	// it must not block. Nil: nobody is told.
	Warn func(string)
}

// Policy is what becomes of descendants that outlive COMMAND when nobody asked for a stop.
type Policy int

const (
	Leave Policy = iota // they run on, and a warning says so
	Wait                // they are waited for; signals, timeout and deadline still act on them
	Kill                // TERM, grace, KILL
)

// Cause is why the tree was stopped.
type Cause int

const (
	CauseNone     Cause = iota // COMMAND ended by itself
	CauseSignal                // TERM, INT, QUIT or HUP was asked of lockrun and passed on; any later cause replaces it
	CauseDeadline              // it had to be dead by then
	CauseTimeout               // Job.Timeout
	CauseLost                  // a Stop: the lease was lost
)

func (c Cause) String() string {
	return [...]string{"none", "signal", "deadline", "timeout", "lost"}[c]
}

// Result tells how a job ended.
type Result struct {
	Code  int   // COMMAND's exit code, or 128+N when signal N ended it; meaningless when Ended is false
	Ended bool  // COMMAND itself was reaped
	Cause Cause // why it was stopped, if it was

	// Gone is the proof that every descendant is dead, or was left running as Leave says. Without it the lease must
	// not be given back: something that survived SIGKILL may still be at work.
	Gone bool
	Left int // how many were left running, or could not be seen dead
}

// Gap is a protection that is missing where lockrun runs.
type Gap struct {
	What   string // what is not protected, in one sentence
	Remedy string // what would mend it
}

// StartError means that COMMAND was not started.
type StartError struct {
	Path string // what was to be executed
	Code int    // 126: it is there but cannot be executed; 127: it, or the interpreter it names, is not there
	Err  error

	Remedy string // what to do about it; "" where the cause says it all
}

func (e *StartError) Error() string {
	s := fmt.Sprintf("cannot execute %s: %v", e.Path, e.Err)
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }
