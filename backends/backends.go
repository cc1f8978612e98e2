// Package backends is the contract between lockrun and the systems that keep its leases.
//
// A backend stores, for each key, who holds it, until when, which fencing token was handed out last, which run ids are
// done and what became of earlier runs. It decides nothing else: waiting, back-off and jitter, heartbeats and deadlines
// live in package main, once, for all backends.
//
// # Error law
//
// Each operation ends in one of three ways, and a backend never folds one into another:
//
//   - a nil error: the store positively did what was asked;
//   - a refusal that the store positively read: [*HeldError] (somebody else has the lease, or the key is paused),
//     [*DoneError] (the run id has already succeeded), [ErrLost] (the lease is positively no longer ours),
//     [ErrNotHeld] (there is no such lease to break);
//   - any other error: not known. The request may or may not have been carried out. The caller asks again with the same
//     owner, which every operation has to tolerate, or gives up and says "unavailable". [IsPermanent] tells the errors
//     for which asking again is useless (no table, wrong password), so that nobody waits for a time-out to learn it.
//
// # Clocks
//
// Expiry is judged by the store's clock, in the same atomic step that changes the record. Durations, never instants,
// travel from the host to the store. The embedded store's clock is the host's own, so there it is the one that neither
// stops in suspend nor jumps when the wall clock is set.
package backends

import (
	"context"
	"os"
	"slices"
	"time"
)

// Backend is one store of leases. All methods are safe for concurrent use. A context bounds each of them: when it ends
// the method returns soon, with an error that says the answer is not known.
type Backend interface {
	// Name says which store this is, without any secret, for messages and the run record: "sqlite:/var/lib/x.db".
	Name() string

	// Acquire asks once for a lease and does not wait. It returns a Lease, or *HeldError, or *DoneError, or an error
	// that means "not known".
	//
	// It is one atomic step of the store: the test for a free slot, the pause and the done-mark, the new token, the
	// attempt count and, where a lease ran out without a release, its predecessor's record with outcome crashed.
	//
	// A request whose RunID is that of a live lease of the key, of another owner and in whatever slot, is refused with
	// *HeldError naming that holder (reason SameRun), even where another slot is free: at most one run of an id succeeds.
	// Once that lease has ended the id is done, or may be run again. A slot that only its minimum hold keeps is no live
	// lease; what is to be known of its run the done-mark tells.
	//
	// It may be repeated with the same Request.Owner after an unknown answer. If an earlier request was carried out,
	// the lease is recognised by its owner and its expiry is counted again from this request, so that the caller may
	// always count from the moment it sent the request that was answered. Token and attempt are those of the first.
	Acquire(ctx context.Context, r Request) (Lease, error)

	// Abandon gives back whatever an Acquire with r.Owner may have taken without the caller having learnt it: the slot is
	// freed at once, without a minimum hold, and neither an attempt nor a run is recorded. It returns nil where there is
	// nothing to give back. It is the last resort after an unknown answer; it may be repeated.
	Abandon(ctx context.Context, r Request) error

	// Attach finds the live lease of key that has this token, to renew or release it from another process than the one
	// that took it (the shell verbs). It returns ErrLost where no live lease of key has the token, and *HeldError (reason
	// NotLoose) where one has it that was not asked for with Request.Loose: what its holder does is not known to have
	// ended, so nobody else may say that it has.
	Attach(ctx context.Context, key string, token int64) (Lease, error)

	// Status tells the state of the keys, in the order asked, or of every key that the store knows, in byte order, when
	// none is named. A key held in several slots gives one State a slot; a key that is not held gives one State.
	// A key that the store has never seen is free. It needs no right to write and changes nothing.
	Status(ctx context.Context, keys ...string) ([]State, error)

	// History returns finished and refused runs, newest first. Leases that ran out without a release appear with
	// outcome crashed, whether or not the store could be written. It needs no right to write.
	History(ctx context.Context, q Query) ([]Record, error)

	// Record adds what happened to a run that no Release tells: refused before a lease (skipped, done, unavailable,
	// not-started), or lost. A record with a token completes the one that the store may already have for that token:
	// lost replaces crashed, and unlocked stays unlocked but takes over exit code and end.
	// Repeating it is harmless where the record has a token; otherwise it may be recorded twice.
	Record(ctx context.Context, r Record) error

	// Break ends the live lease of key that has this token; token 0 ends all live leases of the key, whatever their
	// tokens. Their records get outcome unlocked, and by as reason, like "broken by ann@desk". It returns what was broken, or ErrNotHeld.
	// A minimum hold is broken as well. The token counter, pauses, done-marks and attempts stay.
	Break(ctx context.Context, key string, token int64, by string) ([]State, error)

	// Pause keeps the key from being acquired until p.For has passed (for ever when it is 0). It does not touch a live
	// lease. Pausing a paused key replaces the pause.
	Pause(ctx context.Context, key string, p Pause) error

	// Resume ends a pause; ErrNotHeld means that the key was not paused.
	Resume(ctx context.Context, key string) error

	// Now is the store's clock.
	Now(ctx context.Context) (time.Time, error)

	// Close frees what the process holds of the store. It gives no lease back.
	Close() error
}

// Lease is one granted lease. Its methods are safe for concurrent use and compare the owner in the same atomic step that
// changes the record: they never touch a lease of somebody else.
type Lease interface {
	// Grant tells what was granted. It never changes.
	Grant() Grant

	// Renew sets the expiry to the store's now plus ttl. ErrLost: the lease is positively gone, expired or somebody
	// else's, and was not re-created. Any other error: not known, ask again.
	Renew(ctx context.Context, ttl time.Duration) error

	// Release ends the lease. Freeing the slot (or starting what is left of the minimum hold), marking the run id done
	// (outcome succeeded), counting attempts and writing the run record are one atomic step. ErrLost: the lease was
	// positively not ours any more, and nothing was changed. Any other error: not known; it may be repeated, and a
	// repetition of a release that was carried out returns nil.
	Release(ctx context.Context, end End) error
}

// Grant is what the store handed out.
type Grant struct {
	Token      int64         // fencing token: positive, below 2^53, greater for each later grant of the key, for ever
	Slot       int           // 0 to Request.Slots-1
	Attempt    int           // 1 for the first start of the run id, or since the key's last success when there is none
	AcquiredAt time.Time     // the store's clock, UTC
	TTL        time.Duration // as granted; a store with limits of its own may shorten the one asked for
	Drift      time.Duration // what the holder has to subtract from TTL before it relies on it, for clocks that differ in rate
	Takeover   bool          // the lease before this one ran out, or its holder died, without a release
}

// Request asks for a lease.
type Request struct {
	Key         string
	Owner       string        // 128 random bits as 32 hexadecimal digits; one for each run; the lease's identity
	Holder      string        // shown to people; never compared
	Host        string        // where the holder runs; shown, never compared
	PID         int           // shown, never compared: it proves nothing across containers
	TTL         time.Duration // positive
	HoldAtLeast time.Duration // how long after the grant the slot stays taken, even when released or crashed earlier; 0: not
	RunID       string        // refused with *HeldError while another runs it, with *DoneError once one has succeeded; "" for none
	Slots       int           // how many holders at once, at least 1
	Waited      time.Duration // how long the caller has waited so far, for the record

	// Token, where it is not 0, says that the lease is another store's and has this token there: this store only keeps the
	// record of the run, and shows the same token in it. The token handed out is then this one, unless the store has
	// handed out one for this key that is not smaller; then it is any above that. So it is max(last+1, Token), where a
	// request without Token gets max(last+1, whatever the store counts by). Everything else is as for any request. A
	// repetition by the same owner keeps the token of the first, as ever.
	Token int64

	// Detached says that no process stays alive while the lease is held, so that a store which notices dead holders
	// (the embedded one) must leave this lease to its TTL.
	Detached bool

	// Loose says that whoever has the token may renew and release the lease, as the shell verbs do. It is kept with the
	// lease; one without it, as an earlier version may have stored it, is not loose.
	Loose bool

	// Last says that the caller gives up if refused: the refusal is written into the history, in the same exchange
	// where the store can. Failing to write it changes nothing.
	Last bool
}

// End tells how a run ended.
type End struct {
	Outcome  Outcome
	ExitCode *int          // COMMAND's own; nil where there is none
	Duration time.Duration // from the start of COMMAND to its end, by the host's clock
	Reason   string        // for people; "" for none
}

// Pause is an operator's hold on a key.
type Pause struct {
	By     string
	Reason string
	For    time.Duration // 0: until resumed
}

// Query selects run records.
type Query struct {
	Key      string    // "" for all keys
	Since    time.Time // only what ended at this moment of the store's clock or later; zero: everything
	Outcomes []Outcome // only these; nil: all
	Limit    int       // at most this many of those that match, the newest; 0: no limit
}

// Follower is implemented by backends that can tell of run records as they are written, sooner or cheaper than by asking
// for the history again and again.
type Follower interface {
	// Follow calls emit, from one goroutine, for each record that matches q: first for those that the store has and that
	// ended at q.Since or later (none where q.Since is zero), then for each one as it is written, in the order of writing.
	// A record that is completed later (lost replaces crashed) is emitted again as it is then; others may be emitted twice
	// as well. q.Limit does not count. A lease that runs out is emitted as crashed when that is noticed.
	//
	// It returns emit's error, as it is, where emit fails, ctx's error when ctx ends, and any other error where the store
	// cannot be read any longer; the caller may then start again with a later q.Since.
	Follow(ctx context.Context, q Query, emit func(Record) error) error
}

// Walker is implemented by backends that can hand out their history a record at a time, so that sums over a million runs
// need neither memory for a million nor an exchange for each key. Others are asked for the History of one key after the
// other.
type Walker interface {
	// Walk calls f, from one goroutine, for each record that History(ctx, q) would return, q.Limit apart, in no order.
	// Only Key, Token, Outcome, ExitCode, StartedAt, EndedAt, Waited and Duration need be set. f must not keep r, which is
	// used again, nor call the backend. Walk returns f's error, as it is, where f fails; any other error means that the
	// store was not read to its end. What f was called for until then may be told again by another Walk.
	Walk(ctx context.Context, q Query, f func(r *Record) error) error
}

// Waiter is implemented by backends that can tell when a key may have become free, sooner or cheaper than by asking
// again and again.
type Waiter interface {
	// Wait returns nil when Acquire may have another answer than that r is held: a slot of the key may be free, the lease
	// with r's run id may have ended, or the run id be done (it is only a hint: the caller must Acquire). It returns ctx's
	// error when ctx ends first. r is the request that was refused; while Wait runs, Status may count it among the waiters.
	Wait(ctx context.Context, r Request) error
}

// Liveness is implemented by leases whose store takes a descriptor that is still open for a proof that the holder lives.
// A guard process that outlives lockrun keeps a copy, so that the key is not taken before the guard has done its work.
type Liveness interface {
	Files() []*os.File
}

// Limiter is implemented by backends whose store cannot keep a lease of any length.
type Limiter interface {
	// LongestTTL is the longest TTL that a lease is granted with, however long the one asked for.
	LongestTTL(ctx context.Context) (time.Duration, error)
}

// Fixed is implemented by leases whose length was settled by the grant: Renew has them last for Grant().TTL from then on,
// whatever ttl it is given.
type Fixed interface {
	FixedTTL() bool
}

// AnyFixed tells whether one of these leases is of fixed length, and so all of them together. A nil lease is not.
func AnyFixed(leases ...Lease) bool {
	return slices.ContainsFunc(leases, func(l Lease) bool {
		f, ok := l.(Fixed)
		return ok && f.FixedTTL()
	})
}

// FilesOf are the descriptors of those leases that have any. A nil lease has none.
func FilesOf(leases ...Lease) (all []*os.File) {
	for _, l := range leases {
		if live, ok := l.(Liveness); ok {
			all = append(all, live.Files()...)
		}
	}
	return all
}

// Initer is implemented by backends whose table, topic or chroot has to be created once.
type Initer interface {
	// Init creates what is missing. It may be repeated, and run by many processes at once.
	Init(ctx context.Context) error
	// InitPlan is what Init would do, as text for an administrator; it touches nothing.
	InitPlan() string
}

// Doctor is implemented by backends that can examine themselves.
type Doctor interface {
	Doctor(ctx context.Context) []Check
}

// Check is one finding of a Doctor. OK with a remedy is advice.
type Check struct {
	Backend string `json:"backend"`
	Check   string `json:"check"`
	OK      bool   `json:"ok"`
	Cause   string `json:"cause"`
	Remedy  string `json:"remedy"`
}
