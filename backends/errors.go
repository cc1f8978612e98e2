package backends

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrLost means that the lease is positively no longer ours: expired, broken, removed, or somebody else's by now.
var ErrLost = errors.New("the lease is no longer ours")

// ErrNotHeld means that there was positively nothing to break or to resume.
var ErrNotHeld = errors.New("not held")

// HeldError means that somebody else positively has the lease, or that the key is paused, and says who.
type HeldError struct {
	Key    string
	Holder string // who holds the slot that will be free first, or runs the same run id, or who paused the key
	Host   string
	PID    int
	Token  int64     // 0 for a pause
	Since  time.Time // the store's clock
	Until  time.Time // zero: until resumed
	Left   time.Duration
	Paused bool
	Reason string // MinimumHold, SameRun, NotLoose, or the operator's words
}

// Error names the holder, since when, and until when.
func (e *HeldError) Error() string {
	verb, until := "held", "until resumed"
	if e.Paused {
		verb = "paused"
	}
	if !e.Until.IsZero() {
		until = "until " + e.Until.UTC().Format(time.RFC3339)
	}
	s := fmt.Sprintf("%q is %s by %s since %s, %s", e.Key, verb, e.Holder, e.Since.UTC().Format(time.RFC3339), until)
	if e.Reason != "" {
		s += " (" + e.Reason + ")"
	}
	return s
}

// DoneError means that a run with this id has already succeeded.
type DoneError struct {
	Key   string
	RunID string
	At    time.Time // the store's clock
}

// Error names the run and when it succeeded.
func (e *DoneError) Error() string {
	return fmt.Sprintf("run %q of %q already succeeded at %s", e.RunID, e.Key, e.At.UTC().Format(time.RFC3339))
}

// Error is an answer that is not known, with what a person needs to act on it. Its text is one line and holds no secret.
type Error struct {
	Op        string // what was tried: "open", "acquire", "renew"
	Backend   string // Backend.Name
	Err       error  // why it failed
	Remedy    string // what to do about it; "" where nobody knows
	Permanent bool   // asking again would give the same answer
}

// Error gives operation, backend, cause and remedy.
func (e *Error) Error() string {
	s := withoutStop(fmt.Sprintf("%s on %s: %v", e.Op, e.Backend, e.Err))
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

// withoutStop takes the full stop from the end of what a server or the system said as a sentence, since more may follow.
func withoutStop(s string) string {
	if t, found := strings.CutSuffix(s, "."); found && !strings.HasSuffix(t, ".") {
		return t
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// IsPermanent tells whether asking again is useless.
func IsPermanent(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Permanent
}

// UsageError is a backend URL, or a key, that the user has to correct; nothing was touched.
type UsageError struct {
	What   string // with secrets taken out
	Why    string
	Remedy string
}

// Error gives what, why and the remedy.
func (e *UsageError) Error() string {
	s := e.What + ": " + e.Why
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}
