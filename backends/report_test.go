package backends

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestComplete(t *testing.T) {
	code, took := 143, time.Second
	late := Record{Outcome: Lost, Reason: "beat", ExitCode: &code, Duration: &took, EndedAt: at}
	for old, want := range map[Outcome]Record{
		Crashed:    {Outcome: Lost, Reason: "beat", ExitCode: &code},
		Lost:       {Outcome: Lost, Reason: "beat", ExitCode: &code},
		Unlocked:   {Outcome: Unlocked, Reason: "root", ExitCode: &code},
		Succeeded:  {Outcome: Succeeded, Reason: "root"},
		Failed:     {Outcome: Failed, Reason: "root"},
		TimedOut:   {Outcome: TimedOut, Reason: "root"},
		NotStarted: {Outcome: NotStarted, Reason: "root"},
	} {
		got := Complete(Record{Key: "k", Outcome: old, Reason: "root"}, late)
		if got.Key != "k" || got.Outcome != want.Outcome || got.Reason != want.Reason || got.ExitCode != want.ExitCode {
			t.Errorf("%s completed by lost is %+v", old, got)
		}
		if corrected := got.EndedAt.Equal(at) && got.Duration == &took; corrected != (want.ExitCode != nil) {
			t.Errorf("%s completed by lost ended at %v after %v", old, got.EndedAt, got.Duration)
		}
	}
}

func TestRefusedNamesWhoIsInTheWay(t *testing.T) {
	r := Request{Key: "k", RunID: "r", Holder: "h", Host: "o", PID: 1, Waited: time.Second}
	for want, err := range map[string]error{
		"held by web1":                             &HeldError{Holder: "web1", Until: at},
		"held by web1: minimum hold":               &HeldError{Holder: "web1", Until: at, Reason: MinimumHold},
		"paused by ops until resumed: why":         &HeldError{Holder: "ops", Paused: true, Reason: "why"},
		"paused by ops until 2026-11-30T11:02:03Z": &HeldError{Holder: "ops", Paused: true, Until: at},
		"succeeded at 2026-11-30T11:02:03Z":        &DoneError{At: at},
	} {
		got := r.Refused(err, at)
		if got.Reason != want || got.Key != "k" || got.RunID != "r" || got.Holder != "h" || got.Waited != time.Second || !got.StartedAt.Equal(at) {
			t.Errorf("%v: %+v, want reason %q", err, got, want)
		}
		if _, done := err.(*DoneError); (got.Outcome == Done) != done || (got.Outcome == Skipped) == done {
			t.Errorf("%v: outcome %s", err, got.Outcome)
		}
	}
	long := r.Refused(&HeldError{Holder: strings.Repeat("ü", 2000)}, at).Reason
	if len(long) > MaxReason || !utf8.ValidString(long) {
		t.Errorf("a reason of %d bytes", len(long))
	}
}

func TestErrorsAreOneLineWithCauseAndRemedy(t *testing.T) {
	inner := &UsageError{What: "key", Why: "it is empty", Remedy: "give one"}
	err := error(&Error{Op: "open", Backend: "sqlite:/x", Err: inner, Remedy: "look", Permanent: true})
	if err.Error() != "open on sqlite:/x: key: it is empty; give one; look" || !IsPermanent(err) || IsPermanent(inner) {
		t.Errorf("%q, permanent %v", err, IsPermanent(err))
	}
	held := &HeldError{Key: "k\n", Holder: "h", Since: at}
	if got := held.Error(); got != "\"k\\n\" is held by h since 2026-11-30T11:02:03Z, until resumed" {
		t.Errorf("%q", got)
	}
}

func TestAlsoPaused(t *testing.T) {
	s := State{State: Held, Reason: MinimumHold}
	s.AlsoPaused(&HeldError{Holder: "ops", Paused: true, Until: at, Reason: "moving"})
	if want := "paused by ops until 2026-11-30T11:02:03Z: moving; minimum hold"; s.Reason != want {
		t.Errorf("%q, want %q", s.Reason, want)
	}
}
