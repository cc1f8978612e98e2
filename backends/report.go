package backends

import (
	"errors"
	"strings"
	"time"
	"unicode/utf8"
)

// MinimumHold is the reason given for a slot that is taken only because its minimum hold still runs.
const MinimumHold = "minimum hold"

// SameRun is the reason given where the holder's run has the run id that was asked for: no other slot helps.
const SameRun = "the same run id"

// NotLoose is the reason why Attach does not hand out a live lease. Freed by somebody else, the key would pass on while
// COMMAND goes on, and its run would count as done whatever becomes of it.
const NotLoose = "it belongs to a running lockrun, which renews and releases it itself"

// Refused is the record of a request that was refused with err, a *HeldError or *DoneError, at the store's time at.
func (r Request) Refused(err error, at time.Time) Record {
	rec := Record{Key: r.Key, RunID: r.RunID, Holder: r.Holder, Host: r.Host, PID: r.PID, Outcome: Skipped,
		StartedAt: at, EndedAt: at, Waited: r.Waited}
	var held *HeldError
	var done *DoneError
	switch {
	case errors.As(err, &done):
		rec.Outcome = Done
		rec.Reason = "succeeded at " + done.At.UTC().Format(time.RFC3339)
	case errors.As(err, &held):
		rec.Reason = clip(held.why())
	}
	return rec
}

// why is Error without the key, which a record of the key need not repeat.
func (e *HeldError) why() string {
	s := "held by " + e.Holder
	if e.Paused {
		s = "paused by " + e.Holder
		if e.Until.IsZero() {
			s += " until resumed"
		} else {
			s += " until " + e.Until.UTC().Format(time.RFC3339)
		}
	}
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// AlsoPaused adds to the state of a lease that its key is paused, with p's words in front of other reasons. The state stays
// held, and the next run will not start: somebody who looks only at the lease would expect it to.
func (s *State) AlsoPaused(p *HeldError) {
	why := p.why()
	if s.Reason != "" {
		why += "; " + s.Reason
	}
	s.Reason = why
}

func clip(s string) string {
	if len(s) > MaxReason {
		s = s[:MaxReason]
		for !utf8.ValidString(s) {
			s = s[:len(s)-1]
		}
	}
	return strings.ToValidUTF8(s, "?")
}

// Complete is the record that a store keeps of a token after it had old and was told new.
//
// Only what was written without asking the run itself is open to correction: crashed, which a taker had to assume,
// becomes what the run says of itself, and unlocked keeps outcome and reason, since that is why the run ended, and takes
// over how. Whatever a release wrote stands, so that a record that arrives twice, or late, changes nothing.
func Complete(old, new Record) Record {
	switch old.Outcome {
	case Crashed, Lost:
		old.Outcome, old.Reason = new.Outcome, new.Reason
	case Unlocked:
	default:
		return old
	}
	if new.ExitCode != nil {
		old.ExitCode = new.ExitCode
	}
	if !new.EndedAt.IsZero() {
		old.EndedAt = new.EndedAt
	}
	if new.Duration != nil {
		old.Duration = new.Duration
	}
	return old
}

// Released tells whether the outcome is one that only the holder's own release writes, so that a store which finds it
// beside a token knows a repeated release by it.
func (o Outcome) Released() bool {
	return o == Succeeded || o == Failed || o == TimedOut || o == NotStarted
}
