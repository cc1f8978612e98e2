package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// leaseState is where a lease stands as its holder sees it.
//
//	held ──unknown answer──▶ doubtful ──good renewal──▶ held
//	  │                         │
//	  └──ErrLost, deadline──▶ lost ◀──ErrLost, deadline──┘
//	any but lost ──stop──▶ done
//
// lost and done are final: an answer that arrives later changes nothing.
type leaseState int

const (
	stateHeld     leaseState = iota // the last renewal was answered, and the lease is ours until its deadline
	stateDoubtful                   // renewals go unanswered; still ours until the deadline of the last good one
	stateLost                       // positively gone, or its deadline has passed
	stateDone                       // given back, or about to be
)

// String is the state's name in messages.
func (s leaseState) String() string {
	return [...]string{"held", "doubtful", "lost", "done"}[s]
}

// timing is what the deadlines of one lease are computed from.
type timing struct {
	TTL     time.Duration // as granted by the store
	Drift   time.Duration // subtracted for clocks that run at different rates
	Every   time.Duration // renewal interval
	Grace   time.Duration // between TERM and KILL
	Timeout time.Duration // bound on one exchange with the store
}

// newTiming settles the timing of a granted lease. The store may have granted less than was asked; then the interval, and
// a grace that nobody asked for, shrink with it, because they must fit into what was granted, and the safety margin does
// not. A grace that was asked for is what COMMAND needs to end well: see misfit.
func newTiming(g backends.Grant, cfg *Config) timing {
	t := timing{TTL: g.TTL, Drift: g.Drift, Every: cfg.Heartbeat, Grace: cfg.Grace, Timeout: cfg.BackendTimeout}
	if g.TTL < cfg.TTL {
		if !cfg.graceGiven {
			t.Grace = min(t.Grace, g.TTL/6)
		}
		t.Every = min(t.Every, g.TTL/3)
	}
	// A beat that is sent only when TERM is due would come too late whatever its answer.
	t.Every = min(t.Every, (t.TTL-t.Drift-t.margin()-t.Grace)*3/4)
	return t
}

// misfit tells, by an error, that a grace which was asked for does not fit into the lease that the store called name grants:
// between the beat after the last good one and the end of the lease there would be less. What was asked for was checked
// against the TTL that was asked for; the store may grant less, and rely on less of it.
func misfit(g backends.Grant, cfg *Config, name string) error {
	most := g.TTL - g.Drift
	if g.TTL < cfg.TTL {
		most -= min(cfg.Heartbeat, g.TTL/3)
	}
	if !cfg.graceGiven || cfg.Grace < most {
		return nil
	}
	return &backends.UsageError{What: "--grace " + shortDuration(cfg.Grace),
		Why:    fmt.Sprintf("%s grants %s of the %s of --ttl, in which COMMAND could not be given so long to end", name, shortDuration(g.TTL), shortDuration(cfg.TTL)),
		Remedy: fmt.Sprintf("give a --grace under %s (a shorter --heartbeat leaves more), or have the store keep longer leases", shortDuration(most))}
}

// margin is kept free between KILL and the end of the lease: the time that the kernel, and a loaded machine, take to make
// a killed tree really stop. A twentieth of the lease, at most a second; what an explicit grace leaves over bounds it.
func (t timing) margin() time.Duration {
	m := min(max(t.TTL/20, 20*time.Millisecond), time.Second)
	if rest := (t.TTL - t.Drift - t.Grace - t.Every) / 2; rest < m {
		m = max(rest, 0)
	}
	return m
}

// deadlines are the moments, for a lease whose last good request was sent at sentAt, when TERM and KILL are due and when
// the lease may pass to another.
func (t timing) deadlines(sentAt time.Duration) (term, kill, until time.Duration) {
	until = sentAt + t.TTL - t.Drift
	kill = until - t.margin()
	return kill - t.Grace, kill, until
}

// keeper keeps one lease alive and knows how long it may be relied on. It never touches the job: whoever supervises the
// job is told each new deadline through onDeadline and acts on it alone, so that nothing here can delay a kill.
type keeper struct {
	lease      backends.Lease
	t          timing
	now        func() time.Duration                // a clock that goes on during suspend
	onDeadline func(term, kill time.Duration)      // after each good renewal; must not block
	onState    func(s leaseState, cause error)     // after each change of state; must not block
	jitter     func(d time.Duration) time.Duration // spreads retries of many hosts

	mu     sync.Mutex
	state  leaseState
	sentAt time.Duration // when the last good request was sent
	cause  error         // of doubtful and lost
	onLost func()        // nil until whenLost
	failed int           // renewals that were not answered, or refused
}

// newKeeper starts from a grant that was asked for at sentAt. It does not renew until run is called.
func newKeeper(lease backends.Lease, t timing, sentAt time.Duration, now func() time.Duration) *keeper {
	return &keeper{
		lease: lease, t: t, now: now, sentAt: sentAt,
		onDeadline: func(term, kill time.Duration) {},
		onState:    func(leaseState, error) {},
		jitter:     func(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) },
	}
}

// deadlines are those of the last good request.
func (k *keeper) deadlines() (term, kill, until time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.t.deadlines(k.sentAt)
}

// current is the state now; a deadline that has passed is a loss even if nobody has noticed yet.
func (k *keeper) current() leaseState {
	_, _, until := k.deadlines()
	if k.now() >= until {
		k.to(stateLost, errDeadline)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

var errDeadline = errors.New("no renewal was answered in time")

// start has run called when the clock is to be looked at first, so that a job shorter than that costs no goroutine. A panic
// there is the loss of the lease, since nobody renews it any more.
func (k *keeper) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	first := time.AfterFunc(min(k.look(), k.t.Every), func() {
		defer caught(func(bug error) { k.to(stateLost, bug) })
		k.run(ctx)
	})
	return func() { first.Stop(); cancel() }
}

// run renews when it is time, until the lease is lost, stop is called or ctx ends.
func (k *keeper) run(ctx context.Context) {
	retry := k.firstRetry()
	for due := k.lastSent() + k.t.Every; k.await(ctx, due) && k.current() < stateLost; {
		err := k.beat(ctx)
		switch {
		case k.current() >= stateLost:
			return
		case err == nil:
			retry = k.firstRetry()
			due = k.lastSent() + k.t.Every
		default:
			due = k.now() + k.jitter(retry)
			retry = min(2*retry, k.t.Every)
		}
	}
}

// await returns when due has come, or false when ctx ended first. Go's timers stand still while the host is suspended, and
// the lease runs on: after waking up the renewal has to be sent at once, and not when the rest of a long sleep is over.
func (k *keeper) await(ctx context.Context, due time.Duration) bool {
	for {
		left := due - k.now()
		if left <= 0 {
			return ctx.Err() == nil
		}
		if !backends.Sleep(ctx, min(left, k.look())) {
			return false
		}
	}
}

// look is how often the clock is looked at between two renewals: seldom enough to cost nothing.
func (k *keeper) look() time.Duration { return max(k.t.Every/4, time.Second) }

// firstRetry is how soon a renewal without an answer is sent again: soon enough for several tries before TERM is due.
func (k *keeper) firstRetry() time.Duration {
	return min(max(k.t.Every/20, 10*time.Millisecond), 250*time.Millisecond)
}

// beat sends one renewal. Success moves the deadline, counted from before the request was sent: the store may have
// counted from any moment after that. The three answers of backends.Lease.Renew become held, lost and doubtful.
func (k *keeper) beat(ctx context.Context) error {
	sentAt := k.now()
	ctx, cancel := context.WithTimeout(ctx, k.patience(sentAt))
	defer cancel()
	err := k.lease.Renew(ctx, k.t.TTL)
	if err != nil {
		k.mu.Lock()
		k.failed++
		k.mu.Unlock()
	}
	switch {
	case err == nil:
		k.renewed(sentAt)
	case errors.Is(err, backends.ErrLost):
		k.to(stateLost, err)
	default:
		k.to(stateDoubtful, err)
	}
	return err
}

// patience bounds one renewal, so that a store which swallows a request leaves time to ask again before TERM is due.
func (k *keeper) patience(now time.Duration) time.Duration {
	term, _, until := k.deadlines()
	left := (term - now) / 2
	if left <= 0 {
		left = until - now
	}
	return min(k.t.Timeout, max(left, 20*time.Millisecond))
}

// renewed takes over a good answer, unless it came after the lease it extends had run out: such an answer may belong to
// a lease that the store has re-granted in between, and the job is being killed by now anyway.
func (k *keeper) renewed(sentAt time.Duration) {
	now := k.now()
	k.mu.Lock()
	_, _, until := k.t.deadlines(k.sentAt)
	if k.state >= stateLost || now >= until {
		k.mu.Unlock()
		k.to(stateLost, errDeadline)
		return
	}
	k.sentAt = sentAt
	term, kill, _ := k.t.deadlines(sentAt)
	k.mu.Unlock()
	k.onDeadline(term, kill)
	k.to(stateHeld, nil)
}

// lastSent is when the last good request was sent.
func (k *keeper) lastSent() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sentAt
}

// stop ends the renewals for good, before a release. An answer still under way is ignored: the store compares the owner,
// so a renewal that overtakes the release cannot bring the lease back. It returns the state that stop found.
func (k *keeper) stop() leaseState {
	was := k.current()
	k.to(stateDone, nil)
	return was
}

// to changes the state, once for each change, and tells it. lost and done are final.
func (k *keeper) to(s leaseState, cause error) {
	k.mu.Lock()
	changed := k.state != s && k.state < stateLost
	var lost func()
	if changed {
		k.state = s
		if cause != nil && !(errors.Is(cause, errDeadline) && k.cause != nil) {
			k.cause = cause // the last answer says more than that the deadline has passed
		}
		if s == stateLost {
			lost = k.onLost
		}
	}
	k.mu.Unlock()
	if lost != nil {
		lost()
	}
	if changed {
		k.onState(s, cause)
	}
}

// failures is how many renewals were not answered, or refused.
func (k *keeper) failures() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failed
}

// why is what the last renewal without success was answered.
func (k *keeper) why() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cause == nil {
		return errDeadline
	}
	return k.cause
}

// whenLost has f called once the lease is lost: at once if it is already. f must not block.
func (k *keeper) whenLost(f func()) {
	k.mu.Lock()
	k.onLost = f
	already := k.state == stateLost
	k.mu.Unlock()
	if already {
		f()
	}
}
