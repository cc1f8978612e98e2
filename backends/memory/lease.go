package memory

import (
	"context"
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// Acquire: done before held, since a run that is done need not wait; held before paused, as Status has it.
func (b *backend) Acquire(ctx context.Context, r backends.Request) (backends.Lease, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	now, err := b.enter(ctx, "acquire")
	if err != nil {
		return nil, err
	}
	defer b.leave()
	e := b.s.entry(r.Key, true)
	if l := e.owned(r.Owner); l != nil {
		l.renewed, l.expires, l.grant.TTL = now, now.Add(r.TTL), r.TTL
		return &handle{b, r.Key, r.Owner, l.grant}, nil
	}
	if err := e.refuse(r, now); err != nil {
		if r.Last {
			b.remember(e, r.Refused(err, now), now)
		}
		return nil, err
	}
	l := b.take(e, r, now)
	return &handle{b, r.Key, r.Owner, l.grant}, nil
}

// owned is the lease that owner has not given back.
func (e *entry) owned(owner string) *lease {
	for _, l := range e.slots {
		if l.req.Owner == owner && !l.released {
			return l
		}
	}
	return nil
}

func (e *entry) refuse(r backends.Request, now time.Time) error {
	if run := e.runs[r.RunID]; r.RunID != "" && run != nil && !run.done.IsZero() {
		return &backends.DoneError{Key: r.Key, RunID: r.RunID, At: run.done}
	}
	if held := e.refusal(r, now); held != nil {
		return held
	}
	return nil
}

// refusal names who stands in the way: who runs the same run id, else of several slots the one that will be free first.
func (e *entry) refusal(r backends.Request, now time.Time) *backends.HeldError {
	var taken []*lease
	for _, l := range e.slots {
		if r.RunID != "" && l.req.RunID == r.RunID && l.live(now) {
			return l.held(backends.SameRun, l.expires, now)
		}
		if l.taken(now) {
			taken = append(taken, l)
		}
	}
	if len(taken) >= r.Slots {
		l := slices.MinFunc(taken, func(a, b *lease) int { return a.until(now).Compare(b.until(now)) })
		reason := ""
		if !l.live(now) {
			reason = backends.MinimumHold
		}
		return l.held(reason, l.until(now), now)
	}
	if e.paused(now) {
		return e.pausedError(r.Key, now)
	}
	return nil
}

func (e *entry) pausedError(key string, now time.Time) *backends.HeldError {
	h := &backends.HeldError{Key: key, Holder: e.pause.By, Since: e.pause.at, Until: e.pause.until, Paused: true, Reason: e.pause.Reason}
	if !h.Until.IsZero() {
		h.Left = h.Until.Sub(now)
	}
	return h
}

// held names the lease's holder.
func (l *lease) held(reason string, until, now time.Time) *backends.HeldError {
	return &backends.HeldError{Key: l.req.Key, Holder: l.req.Holder, Host: l.req.Host, PID: l.req.PID, Token: l.grant.Token,
		Since: l.grant.AcquiredAt, Until: until, Left: until.Sub(now), Reason: reason}
}

// take fills the lowest slot that is not taken.
func (b *backend) take(e *entry, r backends.Request, now time.Time) *lease {
	slot := 0
	for e.slots[slot] != nil && e.slots[slot].taken(now) {
		slot++
	}
	takeover := false
	if old := e.slots[slot]; old != nil && !old.released {
		takeover = true
		b.bury(e, old, now)
	}
	e.token = max(e.token+1, r.Token)
	l := &lease{req: r, renewed: now, expires: now.Add(r.TTL), holdUntil: now.Add(r.HoldAtLeast)}
	l.grant = backends.Grant{Token: e.token, Slot: slot, Attempt: e.start(r.RunID, now), AcquiredAt: now, TTL: r.TTL, Takeover: takeover}
	e.slots[slot] = l
	return l
}

// start counts one more attempt.
func (e *entry) start(runID string, now time.Time) int {
	if runID == "" {
		e.starts++
		return e.starts
	}
	if e.runs[runID] == nil {
		e.runs[runID] = &run{}
	}
	e.runs[runID].attempts++
	e.runs[runID].at = now
	return e.runs[runID].attempts
}

// bury writes the record of a lease that ran out without a release.
func (b *backend) bury(e *entry, l *lease, now time.Time) {
	if !l.recorded {
		l.recorded = true
		b.remember(e, l.crashed(now), now)
	}
}

func (l *lease) record() backends.Record {
	return backends.Record{Key: l.req.Key, RunID: l.req.RunID, Attempt: l.grant.Attempt, Holder: l.req.Holder, Host: l.req.Host,
		PID: l.req.PID, Token: l.grant.Token, Slot: &l.grant.Slot, StartedAt: l.grant.AcquiredAt, Waited: l.req.Waited, Backend: "memory:"}
}

func (l *lease) crashed(now time.Time) backends.Record {
	rec := l.record()
	rec.Outcome, rec.EndedAt = backends.Crashed, l.expires
	if now.Before(l.expires) {
		rec.EndedAt = now
	}
	return rec
}

// Abandon undoes an Acquire that nobody learnt of, its attempt included; only the token stays used up.
func (b *backend) Abandon(ctx context.Context, r backends.Request) error {
	now, err := b.enter(ctx, "give back")
	if err != nil {
		return err
	}
	defer b.leave()
	e := b.s.entry(r.Key, false)
	l := e.owned(r.Owner)
	if l == nil {
		return nil
	}
	delete(e.slots, l.grant.Slot)
	e.count(l.req.RunID, backends.NotStarted, now)
	e.wake()
	return nil
}

func (b *backend) Attach(ctx context.Context, key string, token int64) (backends.Lease, error) {
	now, err := b.enter(ctx, "attach")
	if err != nil {
		return nil, err
	}
	defer b.leave()
	for _, l := range b.s.entry(key, false).slots {
		if l.grant.Token == token && l.live(now) {
			if !l.req.Loose {
				return nil, l.held(backends.NotLoose, l.until(now), now)
			}
			return &handle{b, key, l.req.Owner, l.grant}, nil
		}
	}
	return nil, backends.ErrLost
}

// handle is a holder's view of its lease.
type handle struct {
	b     *backend
	key   string
	owner string
	grant backends.Grant
}

func (h *handle) Grant() backends.Grant { return h.grant }

// mine is the record in the store, if it is still this lease's.
func (h *handle) mine(e *entry) *lease {
	l := e.slots[h.grant.Slot]
	if l == nil || l.req.Owner != h.owner || l.grant.Token != h.grant.Token {
		return nil
	}
	return l
}

func (h *handle) Renew(ctx context.Context, ttl time.Duration) error {
	now, err := h.b.enter(ctx, "renew")
	if err != nil {
		return err
	}
	defer h.b.leave()
	l := h.mine(h.b.s.entry(h.key, false))
	if l == nil || !l.live(now) {
		return backends.ErrLost
	}
	l.renewed, l.expires = now, now.Add(ttl)
	return nil
}

func (h *handle) Release(ctx context.Context, end backends.End) error {
	now, err := h.b.enter(ctx, "release")
	if err != nil {
		return err
	}
	defer h.b.leave()
	e := h.b.s.entry(h.key, false)
	l := h.mine(e)
	if l == nil || !l.live(now) {
		if e.released(h.grant.Token) {
			return nil
		}
		return backends.ErrLost
	}
	h.b.end(e, l, end, now)
	return nil
}

// released tells whether a release of the token was carried out before.
func (e *entry) released(token int64) bool {
	return slices.ContainsFunc(e.ended, func(r backends.Record) bool { return r.Token == token && r.Outcome.Released() })
}

// end frees the slot, or leaves it to the minimum hold, counts, marks and records.
func (b *backend) end(e *entry, l *lease, end backends.End, now time.Time) {
	rec := l.record()
	rec.Outcome, rec.ExitCode, rec.Duration, rec.Reason, rec.EndedAt = end.Outcome, end.ExitCode, &end.Duration, end.Reason, now
	b.remember(e, rec, now)
	l.released, l.recorded = true, true
	if end.Outcome == backends.NotStarted || !now.Before(l.holdUntil) {
		delete(e.slots, l.grant.Slot)
	}
	e.count(l.req.RunID, end.Outcome, now)
	e.wake()
}

func (e *entry) count(runID string, o backends.Outcome, now time.Time) {
	r := e.runs[runID]
	switch {
	case o == backends.Succeeded:
		e.starts = 0
		if r != nil {
			r.done, r.at = now, now
		}
	case o == backends.NotStarted && r != nil:
		r.attempts = max(0, r.attempts-1)
	case o == backends.NotStarted && runID == "":
		e.starts = max(0, e.starts-1)
	}
}

func (b *backend) Break(ctx context.Context, key string, token int64, by string) ([]backends.State, error) {
	now, err := b.enter(ctx, "unlock")
	if err != nil {
		return nil, err
	}
	defer b.leave()
	e := b.s.entry(key, false)
	var broken []backends.State
	for _, s := range e.states(key, now) {
		if s.State != backends.Held || token != 0 && s.Token != token {
			continue
		}
		broken = append(broken, s)
		l := e.slots[*s.Slot]
		if !l.recorded {
			rec := l.record()
			rec.Outcome, rec.Reason, rec.EndedAt = backends.Unlocked, by, now
			b.remember(e, rec, now)
		}
		delete(e.slots, *s.Slot)
	}
	if broken == nil {
		return nil, backends.ErrNotHeld
	}
	e.wake()
	return broken, nil
}
