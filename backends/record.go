package backends

import (
	"slices"
	"time"
)

// Outcome is how a run ended.
type Outcome string

// The outcomes of a run; the words are part of the contract with users.
const (
	Succeeded   Outcome = "succeeded"   // COMMAND exited 0
	Failed      Outcome = "failed"      // COMMAND exited otherwise
	Skipped     Outcome = "skipped"     // held by another, or paused
	Done        Outcome = "done"        // the run id had already succeeded
	Lost        Outcome = "lost"        // the lease was lost while COMMAND ran
	TimedOut    Outcome = "timeout"     // --timeout ended COMMAND
	Unavailable Outcome = "unavailable" // the backend could not answer for certain
	NotStarted  Outcome = "not-started" // COMMAND could not be executed
	Unlocked    Outcome = "unlocked"    // an operator broke the lease
	Crashed     Outcome = "crashed"     // the lease ran out, or its holder died, without a release
)

// Refusal tells whether the outcome belongs to a run that never had a lease. Refusals are kept apart from runs.
func (o Outcome) Refusal() bool {
	return o == Skipped || o == Done || o == Unavailable
}

// Record is one run, finished or refused. Fields that do not apply are null in JSON.
type Record struct {
	Key       string
	RunID     string
	Attempt   int // 0: none
	Holder    string
	Host      string
	PID       int
	Token     int64 // 0: none
	Slot      *int
	Outcome   Outcome
	Reason    string
	ExitCode  *int
	StartedAt time.Time // the store's clock, UTC; for a refusal the moment of the refusal
	EndedAt   time.Time
	Waited    time.Duration
	Duration  *time.Duration
	Backend   string
}

// Keep bounds what a store keeps of each key. Stores clean up as part of writing.
type Keep struct {
	Runs    int           // finished runs, newest first; and apart from them as many refusals
	Age     time.Duration // of runs and refusals
	DoneAge time.Duration // of done-marks
}

// DefaultKeep is what the contract promises.
var DefaultKeep = Keep{Runs: 1000, Age: 90 * 24 * time.Hour, DoneAge: 400 * 24 * time.Hour}

// Key states, as Status tells them.
const (
	Held   = "held"   // also while a minimum hold runs
	Free   = "free"   //
	Paused = "paused" // and not held
)

// State is what Status tells about one key, or one slot of it. Pointers are nil where nothing applies or the store cannot
// tell.
type State struct {
	Key        string
	State      string
	Holder     string
	Host       string
	PID        int
	Token      int64 // held: of this lease; else the last one handed out; 0: none yet
	Slot       *int
	AcquiredAt *time.Time
	RenewedAt  *time.Time
	ExpiresAt  *time.Time
	ExpiresIn  *time.Duration
	RunID      string
	Attempt    int
	Reason     string // minimum hold, or the pause, or both: see AlsoPaused
	Waiters    *int
}

// HasToken tells whether one of states has the token.
func HasToken(states []State, token int64) bool {
	return slices.ContainsFunc(states, func(s State) bool { return s.Token == token })
}
