//go:build unix

// Package hooks tells others about a run: by commands (hooks) and over HTTP (pings, pushes).
//
// # Hooks
//
// A hook is a command of the user's, run by sh -c. Between it and lockrun stands a process of lockrun's own, the minder of
// the hook, which is what the rest of the program is protected by:
//
//   - It is in lockrun's process group, which marks it for package supervise as no part of the job; the hook is in a group
//     of its own, below it. The minder is a subreaper, so that whatever a hook leaves behind stays below it too, instead of
//     becoming a child of lockrun, where it would look like a descendant of COMMAND.
//   - It ends the hook, and everything that the hook started, when the time is over, when lockrun lets go of the pipe that
//     it holds it by, and when lockrun is dead; and it is the one that waits.
//   - It reads what the hook prints, passes on so much, and drops the rest: a flood reaches neither log nor lockrun.
//   - It has none of lockrun's descriptors but stderr, the record and the two pipes, so that no lock is inherited.
//
// # What does not hold
//
// Other systems than Linux have no subreapers: there the hook's process group is killed, and what left it stays. A hook
// that kills its minder sets free what it started.
package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// MinderName is the first argument of the process that minds a hook.
const MinderName = "hook-minder"

const (
	// maxOutput is how much of a hook's output is passed on.
	maxOutput = 64 << 10

	// late is how long after its time a minder may take to have killed everything, before it is killed itself: then
	// nobody is left to find what the hook has started. On a machine with work for a hundred processors that takes a while.
	late = 2 * time.Second

	// early is kept of the bound for killing, a tenth of it at most.
	early = 200 * time.Millisecond

	fdAnswer = 3
	fdLeash  = 4 // ends when the hook has to
)

// ErrToldToEnd is the cause of a context that ended because lockrun was told to, and not because time was over.
var ErrToldToEnd = errors.New("lockrun was told to end")

// Hook is one command to be run.
type Hook struct {
	Program string   // this program, to be executed as the minder
	Command string   // for sh -c
	Env     []string // the whole environment
	Stdin   []byte   // what the command may read; small enough for a pipe (64 KB)
	Stderr  *os.File // where the command's stdout and stderr go; nil: nowhere
}

// orders are what a minder is told, in its environment's first variable, which the hook does not see.
type orders struct {
	Command string
	Bound   time.Duration // from now on
	Until   time.Time     // the same as an instant, since the minder's start takes time too
}

const ordersVariable = "LOCKRUN_HOOK_ORDERS="

// answer is what a minder says at the end.
type answer struct {
	Code    int    // of sh, 128+N where a signal ended it
	Late    bool   // the time was over, and what was left has been killed
	Dropped bool   // there was more output than is passed on
	Failure string // why the command was not started; "" where it was
}

// Run runs the hook and returns when it, and all it has started, is gone, or a moment after ctx has ended, which must have
// a deadline. The error is one line, without the command: it may hold a password.
func (h *Hook) Run(ctx context.Context) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		return errors.New("a hook needs a bound")
	}
	cmd, answers, leash, err := h.start(time.Until(deadline))
	if err != nil {
		return fmt.Errorf("it cannot be started: %w", err)
	}
	defer answers.Close()
	letGo := sync.OnceFunc(func() { leash.Close() })
	defer letGo()
	// A minder that is stopped, or hangs in the kernel, is not waited for.
	backstop := context.AfterFunc(ctx, func() {
		letGo()
		time.AfterFunc(late, func() { _ = cmd.Process.Kill() })
		time.AfterFunc(late+late/4, func() { _ = answers.SetReadDeadline(time.Now()) })
	})
	defer backstop()
	var a answer
	err = json.NewDecoder(answers).Decode(&a)
	go func() { _ = cmd.Wait() }() // dead, or dying
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("it did not end in time")
	case err != nil:
		return errors.New("its minder was killed")
	case a.Late && errors.Is(context.Cause(ctx), ErrToldToEnd):
		return fmt.Errorf("it was stopped, since %w", ErrToldToEnd)
	}
	return a.error()
}

func (a *answer) error() error {
	dropped := ""
	if a.Dropped {
		dropped = fmt.Sprintf("; what it printed after %d KB was dropped", maxOutput>>10)
	}
	switch {
	case a.Failure != "":
		return errors.New(a.Failure)
	case a.Late:
		return errors.New("it was stopped when its time was over (--hook-timeout)" + dropped)
	case a.Code != 0:
		return errors.New("it ended with " + strconv.Itoa(a.Code) + dropped)
	case a.Dropped:
		return errors.New(dropped[2:])
	}
	return nil
}

// start starts the minder. It answers on the first pipe, and ends the hook when the second is closed.
func (h *Hook) start(bound time.Duration) (cmd *exec.Cmd, answers, leash *os.File, err error) {
	bound -= min(early, bound/10)
	told, err := json.Marshal(orders{Command: h.Command, Bound: bound, Until: time.Now().Add(bound)})
	if err != nil {
		return nil, nil, nil, err
	}
	stdin, err := filled(h.Stdin)
	if err != nil {
		return nil, nil, nil, err
	}
	defer stdin.Close()
	answers, theirs, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	defer theirs.Close()
	held, leash, err := os.Pipe()
	if err != nil {
		answers.Close()
		return nil, nil, nil, err
	}
	defer held.Close()
	cmd = &exec.Cmd{Path: h.Program, Args: []string{MinderName}, Env: append([]string{ordersVariable + string(told)}, h.Env...),
		Stdin: stdin, ExtraFiles: []*os.File{theirs, held}}
	if h.Stderr != nil { // else /dev/null
		cmd.Stderr = h.Stderr
	}
	if err := cmd.Start(); err != nil {
		answers.Close()
		leash.Close()
		return nil, nil, nil, errors.New(plain(err))
	}
	return cmd, answers, leash, nil
}

// filled is a pipe that holds data and then ends.
func filled(data []byte) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	_ = w.SetWriteDeadline(time.Now().Add(time.Second)) // of what does not fit, the rest is left out
	if _, err = w.Write(bytes.TrimSpace(data)); err == nil {
		_, err = w.WriteString("\n")
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		r.Close()
		return nil, err
	}
	return r, nil
}

// plain is the cause of an error of starting a process.
func plain(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
