package mysql

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// Acquire asks in one exchange where the key is known and its last lease was given back, and where it is refused. A key
// that is new, whose last holder died, or whose last lease had a minimum hold takes a second one, with the statements that
// only those need.
func (b *backend) Acquire(ctx context.Context, r backends.Request) (backends.Lease, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	var g backends.Grant
	err := b.do(ctx, "acquire", repeatable, func(ctx context.Context, c *conn) error {
		var err error
		g, err = b.ask(ctx, c, r)
		return err
	})
	if err != nil {
		return nil, b.refused(ctx, r, err)
	}
	return &lease{b: b, key: r.Key, owner: r.Owner, hold: r.HoldAtLeast > 0, run: r.RunID, grant: g}, nil
}

// refused records a refusal that ends the request, by the time at which the store refused it.
func (b *backend) refused(ctx context.Context, r backends.Request, err error) error {
	var no *refusal
	if !errors.As(err, &no) {
		return err
	}
	if r.Last {
		_ = b.record(ctx, r.Refused(no.why, no.at)) // the refusal stands, whether it can be written down or not
	}
	return no.why
}

// refusal is a *HeldError or *DoneError with the store's time.
type refusal struct {
	why error
	at  time.Time
}

func (r *refusal) Error() string { return r.why.Error() }
func (r *refusal) Unwrap() error { return r.why }

// mostAsked bounds how often one Acquire asks on one connection. It asks again where its answer was overtaken: a lease
// ran out between the decision and the look at who has it.
const mostAsked = 5

var errOvertaken = &fault{phase: "asking", err: errors.New("the key keeps changing between two looks at it"),
	remedy: "use a --ttl that is long against an exchange with the server"}

// ask asks until the answer is a grant or a refusal: first in the way that suffices nearly always.
func (b *backend) ask(ctx context.Context, c *conn, r backends.Request) (backends.Grant, error) {
	text := b.t.quickAcquire
	if r.Slots > 1 {
		text = b.t.acquire
	}
	for range mostAsked {
		sets, err := c.query(ctx, text(r, b.keep, c.deadline(ctx), c.hasBells()))
		if err != nil {
			return backends.Grant{}, err
		}
		a, err := readAnswer(sets)
		if err != nil {
			return backends.Grant{}, err
		}
		c.sync(a.now)
		if g, err := b.settle(ctx, c, r, a); g != nil || err != nil {
			return *cmp.Or(g, &backends.Grant{}), err
		}
		text = b.t.acquire
	}
	return backends.Grant{}, errOvertaken
}

// settle makes a grant or a refusal of an answer, or neither, where it was overtaken or did not suffice, or where the
// server's clock has been set since it was last looked at.
func (b *backend) settle(ctx context.Context, c *conn, r backends.Request, a *answer) (*backends.Grant, error) {
	own := a.owned(r.Owner)
	if own == nil {
		if why := a.refuse(r); why != nil {
			return nil, &refusal{why, a.now}
		}
		return nil, nil
	}
	if !a.granted {
		found, err := c.exec(ctx, b.t.again(r, own))
		if err != nil || found == 0 {
			return nil, err
		}
	}
	return own.grant(r.TTL), nil
}

// again is the repetition of a grant whose answer was lost: the lease starts anew from this request. It may have run out
// meanwhile; what nobody took is still its owner's.
func (t tables) again(r backends.Request, own *answerLease) string {
	f := t.fields(r.Key)
	f["slot"], f["token"], f["owner"] = number(own.slot), number(own.token), text(r.Owner)
	f["ttl"], f["expire"] = micros(ttl(r.TTL)), after(ttl(r.TTL))
	return f.fill(`UPDATE {leases} SET renew_time = {now}, expire_time = {expire}, ttl_us = {ttl}
WHERE job_name = {key} AND slot = {slot} AND token = {token} AND instance_id = {owner} AND released = 0`)
}

// answer is what look saw.
type answer struct {
	granted    bool
	now        time.Time
	pausedBy   string
	pauseWhy   string
	pausedAt   time.Time
	pauseUntil time.Time
	done       time.Time
	leases     []answerLease
}

type answerLease struct {
	slot, attempt, pid         int
	owner, holder, host, run   string
	token                      int64
	acquired, expires, holding time.Time
	released, takeover         bool
}

// readAnswer reads the three sets of look.
func readAnswer(sets sets) (*answer, error) {
	if len(sets) != 3 || len(sets[0].rows) != 1 {
		return nil, errNoAnswer
	}
	a := &answer{granted: sets.only().num(0) != 0}
	if err := sets.only().times(map[int]*time.Time{1: &a.now}); err != nil {
		return nil, err
	}
	for _, r := range sets[1].rows {
		l := answerLease{slot: int(r.num(0)), owner: r.str(1), token: r.num(2), holder: r.str(3), host: r.str(4), pid: int(r.num(5)),
			attempt: int(r.num(6)), released: r.num(10) != 0, takeover: r.num(11) != 0, run: r.str(12)}
		if err := r.times(map[int]*time.Time{7: &l.acquired, 8: &l.expires, 9: &l.holding}); err != nil {
			return nil, err
		}
		a.leases = append(a.leases, l)
	}
	for _, r := range sets[2].rows {
		a.pausedBy, a.pauseWhy = r.str(0), r.str(1)
		if err := r.times(map[int]*time.Time{2: &a.pausedAt, 3: &a.pauseUntil, 4: &a.done}); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// owned is the lease that owner has not given back.
func (a *answer) owned(owner string) *answerLease {
	i := slices.IndexFunc(a.leases, func(l answerLease) bool { return l.owner == owner && !l.released })
	if i < 0 {
		return nil
	}
	return &a.leases[i]
}

func (l *answerLease) grant(d time.Duration) *backends.Grant {
	d = ttl(d)
	return &backends.Grant{Token: l.token, Slot: l.slot, Attempt: l.attempt, AcquiredAt: l.acquired, TTL: d,
		Drift: d/100 + 2*time.Millisecond, Takeover: l.takeover}
}

func (l *answerLease) live(now time.Time) bool { return !l.released && now.Before(l.expires) }

// until is when the slot will be free unless somebody renews; zero where it is free.
func (l *answerLease) until(now time.Time) time.Time {
	switch live := l.live(now); {
	case live && l.expires.After(l.holding):
		return l.expires
	case live || now.Before(l.holding):
		return l.holding
	}
	return time.Time{}
}

// refuse says what stands in r's way, or nil: done before held, held before paused.
func (a *answer) refuse(r backends.Request) error {
	if r.RunID != "" && !a.done.IsZero() {
		return &backends.DoneError{Key: r.Key, RunID: r.RunID, At: a.done}
	}
	var first *answerLease
	n := 0
	for i := range a.leases {
		l := &a.leases[i]
		if r.RunID != "" && l.run == r.RunID && l.live(a.now) {
			return l.held(r.Key, backends.SameRun, l.expires, a.now)
		}
		until := l.until(a.now)
		if until.IsZero() {
			continue
		}
		if n++; first == nil || until.Before(first.until(a.now)) {
			first = l
		}
	}
	switch {
	case n >= r.Slots:
		return first.inTheWay(r.Key, a.now)
	case !a.pausedAt.IsZero() && (a.pauseUntil.IsZero() || a.now.Before(a.pauseUntil)):
		return a.paused(r.Key)
	}
	return nil
}

func (l *answerLease) inTheWay(key string, now time.Time) error {
	reason := ""
	if !l.live(now) {
		reason = backends.MinimumHold
	}
	return l.held(key, reason, l.until(now), now)
}

// held names the lease's holder.
func (l *answerLease) held(key, reason string, until, now time.Time) error {
	return &backends.HeldError{Key: key, Holder: l.holder, Host: l.host, PID: l.pid, Token: l.token, Since: l.acquired,
		Until: until, Left: until.Sub(now), Reason: reason}
}

func (a *answer) paused(key string) error {
	h := &backends.HeldError{Key: key, Holder: a.pausedBy, Since: a.pausedAt, Until: a.pauseUntil, Paused: true, Reason: a.pauseWhy}
	if !h.Until.IsZero() {
		h.Left = h.Until.Sub(a.now)
	}
	return h
}
