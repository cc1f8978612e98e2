package redis

import (
	"context"
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// drift is what a holder has to take off for clocks that differ in rate, and for the server's being stepped a little.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Acquire is one exchange.
func (b *backend) Acquire(ctx context.Context, r backends.Request) (backends.Lease, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	a, err := b.node.acquire(ctx, r, -1, 0)
	if err != nil {
		return nil, err
	}
	if a.granted == nil {
		if err := a.refusal(r); err != nil {
			return nil, err
		}
		return nil, b.node.odd("acquire", []any{"held, and by nobody"})
	}
	g := a.granted
	return &lease{b: b, owner: r.Owner, runID: r.RunID, key: r.Key, grant: backends.Grant{Token: g.token, Slot: g.slot, Attempt: g.attempt,
		AcquiredAt: g.at, TTL: r.TTL, Drift: drift(r.TTL), Takeover: g.takeover}}, nil
}

// refusal is the error for an answer that grants nothing; nil where it does not say why, which is no answer of ours: a skip
// always names whom it is for.
func (a answer) refusal(r backends.Request) error {
	if !a.doneAt.IsZero() {
		return &backends.DoneError{Key: r.Key, RunID: r.RunID, At: a.doneAt}
	}
	if l := a.dump.running(r); l != nil {
		return l.held(r.Key, backends.SameRun, l.expires, a.dump.now)
	}
	taken := a.dump.taken()
	if len(taken) >= r.Slots {
		first := slices.MinFunc(taken, func(x, y row) int { return x.until(a.dump.now).Compare(y.until(a.dump.now)) })
		return heldByRow(r.Key, first, a.dump.now)
	}
	if a.dump.pause == nil {
		return nil
	}
	return heldByPause(r.Key, a.dump.pause, a.dump.now)
}

func heldByRow(key string, l row, now time.Time) *backends.HeldError {
	reason := ""
	if !l.live(now) {
		reason = backends.MinimumHold
	}
	return l.held(key, reason, l.until(now), now)
}

// held names the holder of a row.
func (l row) held(key, reason string, until, now time.Time) *backends.HeldError {
	return &backends.HeldError{Key: key, Holder: l.who.Holder, Host: l.who.Host, PID: l.who.PID, Token: l.token,
		Since: l.acquired, Until: until, Left: until.Sub(now), Reason: reason}
}

func heldByPause(key string, p *pauseRow, now time.Time) *backends.HeldError {
	h := &backends.HeldError{Key: key, Paused: true}
	if p == nil {
		return h
	}
	h.Holder, h.Since, h.Until, h.Reason = p.who.Holder, p.at, p.until, p.who.Reason
	if !p.until.IsZero() {
		h.Left = p.until.Sub(now)
	}
	return h
}

func (b *backend) Abandon(ctx context.Context, r backends.Request) error {
	return b.node.abandon(ctx, r, anyRound)
}

func (b *backend) Attach(ctx context.Context, key string, token int64) (backends.Lease, error) {
	dumps, err := b.node.dumps(ctx, "attach", []string{key})
	if err != nil {
		return nil, err
	}
	l, err := dumps[0].loose(token)
	if err != nil {
		return nil, err
	}
	return &lease{b: b, owner: l.owner, runID: l.who.RunID, key: key, grant: l.grant()}, nil
}

// loose is the live lease that has the token, if everybody who knows it may renew and release it.
func (d dump) loose(token int64) (row, error) {
	for _, l := range d.rows {
		if l.token != token || !l.live(d.now) {
			continue
		}
		if !l.who.Loose {
			return l, l.held(d.key, backends.NotLoose, l.until(d.now), d.now)
		}
		return l, nil
	}
	return row{}, backends.ErrLost
}

// grant is what was granted to the holder of a row.
func (l row) grant() backends.Grant {
	ttl := l.expires.Sub(l.renewed)
	return backends.Grant{Token: l.token, Slot: l.slot, Attempt: l.attempt, AcquiredAt: l.acquired, TTL: ttl, Drift: drift(ttl)}
}

// lease is a holder's view of its row.
type lease struct {
	b                 *backend
	key, owner, runID string
	grant             backends.Grant
}

func (l *lease) Grant() backends.Grant { return l.grant }

func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	f, err := l.b.node.renew(ctx, l.key, l.owner, l.grant.Slot, ttl)
	if err == nil && f != ours {
		err = backends.ErrLost
	}
	return err
}

func (l *lease) Release(ctx context.Context, end backends.End) error {
	was, err := l.b.node.release(ctx, ending{l.key, l.owner, l.runID, l.grant.Token, l.grant.Slot}, end)
	if err == nil && !was {
		err = backends.ErrLost
	}
	return err
}

func (b *backend) Break(ctx context.Context, key string, token int64, by string) ([]backends.State, error) {
	d, rows, err := b.node.breakLease(ctx, key, token, "", by)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, backends.ErrNotHeld
	}
	var all []backends.State
	for _, l := range rows {
		all = append(all, d.state(l))
	}
	return all, nil
}
