package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/ledger"
)

// Acquire appends a LOCK and sees what comes of it. See backends.Backend.
func (b *backend) Acquire(ctx context.Context, r backends.Request) (backends.Lease, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	a, err := b.log(r.Key).ask(ctx, r, nil)
	if err != nil {
		return nil, b.fail("acquire", err)
	}
	if a.res == nil {
		// The log was cut between the append and the reading. What is left of it says whether the lease is there.
		if l := a.state.Owned(r.Owner); l != nil {
			return b.leaseOf(r.Key, *l, r.TTL), nil
		}
		return nil, b.fail("acquire", errTorn)
	}
	switch a.res.Did {
	case ledger.Granted:
		return b.leaseOf(r.Key, a.res.Lease, r.TTL), nil
	case ledger.Refused:
		return nil, a.res.Err
	}
	return nil, b.fail("acquire", errVoid)
}

// errVoid is about a LOCK that its owner itself has called off.
var errVoid = errors.New("the request was given back before it arrived")

func lockEntry(r backends.Request) *ledger.Entry {
	return &ledger.Entry{Kind: ledger.Lock, Key: r.Key, Owner: r.Owner, Token: r.Token, TTL: ms(r.TTL), Hold: ms(r.HoldAtLeast),
		RunID: r.RunID, Slots: r.Slots, Holder: r.Holder, Host: r.Host, PID: r.PID, Waited: r.Waited.Microseconds(),
		Loose: r.Loose, Last: r.Last}
}

// ms counts a duration in whole milliseconds, upwards: the lease in the log must not be shorter than its holder's.
func ms(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// drift is what a holder takes off its lease. The times in the log are whole milliseconds of clocks that are set while
// leases run, if by little; and a leader that takes over has another clock.
func drift(ttl time.Duration) time.Duration { return min(max(50*time.Millisecond, ttl/10), ttl/2) }

func (b *backend) leaseOf(key string, l ledger.Lease, ttl time.Duration) *lease {
	return &lease{b: b, key: key, owner: l.Owner, runID: l.RunID, grant: backends.Grant{Token: l.Token, Slot: l.Slot, Attempt: l.Attempt,
		AcquiredAt: ledger.Instant(l.At), TTL: ttl, Drift: drift(ttl), Takeover: l.Takeover}}
}

// Abandon appends an ABANDON, unless the log shows that there is nothing to give back and that nothing can arrive late.
func (b *backend) Abandon(ctx context.Context, r backends.Request) error {
	if err := r.Check(); err != nil {
		return err
	}
	l := b.log(r.Key)
	unsure := b.mayCome(r.Owner)
	err := l.refresh(ctx, func(book *ledger.Book) error {
		s, err := book.State(r.Key)
		if err == nil && !unsure && s.Owned(r.Owner) == nil {
			err = errNothing
		}
		return err
	})
	if err == nil {
		_, err = l.do(ctx, &ledger.Entry{Kind: ledger.Abandon, Key: r.Key, Owner: r.Owner, RunID: r.RunID, Unsure: unsure}, nil)
	}
	if errors.Is(err, errNothing) {
		return nil
	}
	return b.fail("give back", err)
}

var errNothing = errors.New("there is nothing to do")

// refresh is with, after everything new has been read.
func (l *log) refresh(ctx context.Context, f func(*ledger.Book) error) error {
	return l.with(ctx, func(book *ledger.Book) error {
		if err := l.catchUp(book); err != nil {
			return err
		}
		return f(book)
	})
}

func (b *backend) Attach(ctx context.Context, key string, token int64) (backends.Lease, error) {
	l := b.log(key)
	if _, err := l.time(ctx); err != nil { // whether a lease is over must not be told by this host's clock
		return nil, b.fail("attach", err)
	}
	var found *lease
	err := l.with(ctx, func(book *ledger.Book) error {
		epoch, err := l.epoch(book)
		if err != nil {
			return err
		}
		s, err := book.State(key)
		if err != nil {
			return err
		}
		now := l.clock.now()
		held := s.AsOf(now, epoch).ByToken(token)
		switch {
		case held == nil || !held.Live(now):
			return backends.ErrLost
		case !held.Loose:
			return held.Held(key, backends.NotLoose, held.Until(now), now)
		}
		found = b.leaseOf(key, *held, ledger.Length(held.TTL))
		return nil
	})
	if err != nil {
		return nil, b.fail("attach", err)
	}
	return found, nil
}

// lease is a holder's view of its lease.
type lease struct {
	b     *backend
	key   string
	owner string
	runID string
	grant backends.Grant
}

func (h *lease) Grant() backends.Grant { return h.grant }

// gone tells of a lease that cannot come back: the state says so, and states only go forward.
func (h *lease) gone(s *ledger.State) error {
	if l := s.Owned(h.owner); l == nil || l.Token != h.grant.Token {
		return backends.ErrLost
	}
	return nil
}

// Renew appends a HEARTBEAT. Only if the lease was still ours when it came by has anything been renewed.
func (h *lease) Renew(ctx context.Context, ttl time.Duration) error {
	e := &ledger.Entry{Kind: ledger.Heartbeat, Key: h.key, Owner: h.owner, Token: h.grant.Token, TTL: ms(ttl)}
	if e.TTL <= 0 {
		return &backends.UsageError{What: "ttl " + ttl.String(), Why: "it is not positive"}
	}
	a, err := h.b.log(h.key).do(ctx, e, h.gone)
	switch {
	case err != nil:
		return h.b.fail("renew", err)
	case a.res == nil && h.gone(a.state) == nil:
		return h.b.fail("renew", errTorn)
	case a.res == nil || a.res.Did != ledger.Renewed:
		return backends.ErrLost
	}
	return nil
}

// Release appends a RELEASE. One that came by before, unheard, counts as the answer to its repetition.
func (h *lease) Release(ctx context.Context, end backends.End) error {
	l := h.b.log(h.key)
	e := &ledger.Entry{Kind: ledger.Release, Key: h.key, Owner: h.owner, RunID: h.runID, Token: h.grant.Token, Outcome: end.Outcome,
		ExitCode: end.ExitCode, Duration: end.Duration.Microseconds(), Reason: end.Reason, Unsure: h.b.mayCome(h.owner)}
	a, err := l.do(ctx, e, func(s *ledger.State) error {
		if l.ended[h.grant.Token] == h.owner {
			return errNothing
		}
		return h.gone(s)
	})
	switch {
	case errors.Is(err, errNothing):
		return nil
	case err != nil:
		return h.b.fail("release", err)
	case a.res == nil && h.gone(a.state) == nil:
		return h.b.fail("release", errTorn)
	case a.res != nil && a.res.Did == ledger.Ended:
		return nil
	}
	return h.repeated(ctx)
}

// repeated tells whether a release that did nothing repeats one that was carried out.
func (h *lease) repeated(ctx context.Context) error {
	was := false
	l := h.b.log(h.key)
	err := l.with(ctx, func(*ledger.Book) error {
		was = l.ended[h.grant.Token] == h.owner
		return nil
	})
	if err == nil && !was {
		err = backends.ErrLost
	}
	return h.b.fail("release", err)
}
