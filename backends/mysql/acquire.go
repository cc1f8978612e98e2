package mysql

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// Acquire asks in one exchange where the key is known and its last lease was given back. A key that is new, or whose last
// holder died, takes a second one, with the statements that only those need.
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

var errOvertaken = errors.New("the key keeps changing between two looks at it")

// ask asks until the answer is a grant or a refusal.
func (b *backend) ask(ctx context.Context, c *conn, r backends.Request) (backends.Grant, error) {
	whole := false
	for range mostAsked {
		sets, err := c.query(ctx, b.t.acquire(r, b.keep, whole))
		if err != nil {
			return backends.Grant{}, err
		}
		a, err := readAnswer(sets)
		if err != nil {
			return backends.Grant{}, err
		}
		own := a.owned(r.Owner)
		switch {
		case own != nil && a.granted:
			return own.grant(r.TTL), nil
		case own != nil:
			found, err := c.exec(ctx, b.t.again(r, own))
			if err != nil {
				return backends.Grant{}, err
			}
			if found > 0 {
				return own.grant(r.TTL), nil
			}
		default:
			if why := a.refuse(r); why != nil {
				return backends.Grant{}, &refusal{why, a.now}
			}
		}
		whole = true
	}
	return backends.Grant{}, errOvertaken
}

// acquire is the text that decides and takes. whole adds what a new key and a dead predecessor need: making the key's
// row, and the predecessor's record.
//
// @lr_go is the decision. It is read under the lock on the key's row and on the rows of its leases, so that neither
// another Acquire nor a renewal comes between it and what follows. Its clock may be that of a moment before the lock was
// had, when a lease that has run out meanwhile still counts as live: a wrong refusal is noticed in the last look, and a
// wrong grant cannot come of it.
func (t tables) acquire(r backends.Request, keep backends.Keep, whole bool) string {
	f := t.fields(r.Key)
	f["owner"], f["slots"], f["holder"], f["host"] = text(r.Owner), number(r.Slots), text(r.Holder), text(r.Host)
	f["pid"], f["run"], f["waited"], f["ttl"] = number(r.PID), text(r.RunID), micros(r.Waited), micros(ttl(r.TTL))
	f["expire"], f["hold"], f["since"] = after(ttl(r.TTL)), after(r.HoldAtLeast), before(keep.DoneAge)
	f["slot"], f["dead"], f["takeover"], f["kind"], f["limit"] = "@lr_slot", "1", "0", kindRun, number(keep.Runs)
	f["runs_join"], f["run_done"], f["run_done_time"], f["attempt"], f["start"] = "", "", "NULL", "k.starts + 1", ", starts = starts + 1"
	if r.Slots == 1 {
		f["slot"] = "0"
	}
	if whole {
		f["takeover"] = f.fill(takeover)
	} else {
		f["dead"] = f.fill(noDead)
	}
	if r.RunID != "" {
		f["runs_join"], f["run_done"], f["run_done_time"] = f.fill(runsJoin), " AND COUNT(r.done_time) = 0", "r.done_time"
		f["attempt"], f["start"] = "COALESCE(r.attempts, 0) + 1", ""
	}
	return transaction(f.statements(whole, r)...)
}

// statements are those of acquire that r needs, filled.
func (f statement) statements(whole bool, r backends.Request) []string {
	var all []string
	add := func(when bool, s string) {
		if when {
			all = append(all, f.fill(s))
		}
	}
	add(whole, makeKey)
	add(true, decide)
	add(r.Slots > 1, chooseSlot)
	add(whole, buryPredecessor)
	add(whole, prune)
	add(true, take)
	add(true, countToken)
	add(r.RunID != "", countRun)
	add(true, look)
	return all
}

const (
	makeKey = `INSERT INTO {keys} (job_name) VALUES ({key}) ON DUPLICATE KEY UPDATE job_name = {keys}.job_name`

	decide = `SELECT COUNT(k.job_name) > 0 AND {dead} AND COUNT(IF(l.instance_id = {owner} AND l.released = 0, 1, NULL)) = 0
  AND COUNT(IF({taken}, 1, NULL)) < {slots} AND COUNT(IF({paused}, 1, NULL)) = 0{run_done}
INTO @lr_go FROM {keys} k LEFT JOIN {leases} l ON l.job_name = {key}{runs_join} WHERE k.job_name = {key} FOR UPDATE`

	noDead = `COUNT(IF(l.released = 0 AND l.expire_time <= {now}, 1, NULL)) = 0`

	runsJoin = `
  LEFT JOIN {runs} r ON r.job_name = {key} AND r.run_id = {run} AND r.used_time > {since}`

	// The lowest slot that is not taken is 0 or the neighbour of one that is.
	chooseSlot = `SET @lr_slot = (SELECT MIN(c.slot) FROM
  (SELECT 0 AS slot UNION ALL SELECT l.slot + 1 FROM {leases} l WHERE l.job_name = {key} AND {taken}) c
  WHERE c.slot < {slots} AND NOT EXISTS (SELECT 1 FROM {leases} l WHERE l.job_name = {key} AND l.slot = c.slot AND {taken}));
SET @lr_go = @lr_go AND @lr_slot IS NOT NULL`

	buryPredecessor = bury + ` WHERE @lr_go AND l.job_name = {key} AND l.slot = {slot} AND l.released = 0 AND ` + unrecorded

	takeover = `EXISTS (SELECT 1 FROM {leases} o WHERE o.job_name = {key} AND o.slot = {slot} AND o.released = 0)`

	take = `REPLACE INTO {leases} (job_name, slot, instance_id, token, holder, host, pid, run_id, attempt_count,
  acquire_time, renew_time, expire_time, hold_time, waited_us, ttl_us, released, takeover)
SELECT {key}, {slot}, {owner}, k.token + 1, {holder}, {host}, {pid}, {run}, {attempt},
  {now}, {now}, {expire}, {hold}, {waited}, {ttl}, 0, {takeover}
FROM {keys} k{runs_join} WHERE k.job_name = {key} AND @lr_go`

	countToken = `UPDATE {keys} SET token = token + 1{start} WHERE job_name = {key} AND @lr_go`

	// A done-mark or a count that is too old to be known any more starts anew.
	countRun = `INSERT INTO {runs} (job_name, run_id, attempts, used_time)
SELECT k.job_name, {run}, 1, {now} FROM {keys} k WHERE k.job_name = {key} AND @lr_go
ON DUPLICATE KEY UPDATE attempts = IF({runs}.used_time > {since}, {runs}.attempts + 1, 1), used_time = {now}, done_time = NULL`

	look = `SELECT @lr_go, {now}, k.pause_by, k.pause_reason, k.pause_time, k.pause_until, {run_done_time},
  l.slot, l.instance_id, l.token, l.holder, l.host, l.pid, l.attempt_count, l.acquire_time, l.expire_time, l.hold_time,
  l.released, l.takeover
FROM {keys} k LEFT JOIN {leases} l ON l.job_name = {key}{runs_join} WHERE k.job_name = {key} ORDER BY l.slot`
)

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
	owner, holder, host        string
	token                      int64
	acquired, expires, holding time.Time
	released, takeover         bool
}

func readAnswer(sets sets) (*answer, error) {
	a := &answer{}
	if len(sets) == 0 {
		return a, errors.New("the server gave no answer to the last look")
	}
	for i, r := range sets[len(sets)-1].rows {
		if i == 0 {
			a.granted, a.pausedBy, a.pauseWhy = r.num(0) != 0, r.str(2), r.str(3)
			if err := r.times(map[int]*time.Time{1: &a.now, 4: &a.pausedAt, 5: &a.pauseUntil, 6: &a.done}); err != nil {
				return nil, err
			}
		}
		if r.null(7) {
			continue
		}
		l := answerLease{slot: int(r.num(7)), owner: r.str(8), token: r.num(9), holder: r.str(10), host: r.str(11), pid: int(r.num(12)),
			attempt: int(r.num(13)), released: r.num(17) != 0, takeover: r.num(18) != 0}
		if err := r.times(map[int]*time.Time{14: &l.acquired, 15: &l.expires, 16: &l.holding}); err != nil {
			return nil, err
		}
		a.leases = append(a.leases, l)
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

func (l *answerLease) grant(d time.Duration) backends.Grant {
	d = ttl(d)
	return backends.Grant{Token: l.token, Slot: l.slot, Attempt: l.attempt, AcquiredAt: l.acquired, TTL: d,
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
		return first.held(r.Key, a.now)
	case !a.pausedAt.IsZero() && (a.pauseUntil.IsZero() || a.now.Before(a.pauseUntil)):
		return a.paused(r.Key)
	}
	return nil
}

func (l *answerLease) held(key string, now time.Time) error {
	h := &backends.HeldError{Key: key, Holder: l.holder, Host: l.host, PID: l.pid, Token: l.token, Since: l.acquired,
		Until: l.until(now), Left: l.until(now).Sub(now)}
	if !l.live(now) {
		h.Reason = backends.MinimumHold
	}
	return h
}

func (a *answer) paused(key string) error {
	h := &backends.HeldError{Key: key, Holder: a.pausedBy, Since: a.pausedAt, Until: a.pauseUntil, Paused: true, Reason: a.pauseWhy}
	if !h.Until.IsZero() {
		h.Left = h.Until.Sub(a.now)
	}
	return h
}
