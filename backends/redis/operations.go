package redis

import (
	"context"
	"strconv"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// granted is what lua/acquire.lua grants.
type granted struct {
	now, at  time.Time
	token    int64
	slot     int
	attempt  int
	takeover bool
	sure     bool  // a quorum has agreed on the token
	by       int64 // the token that the count of attempts before this one comes from
}

// answer is one of the three that lua/acquire.lua gives.
type answer struct {
	granted *granted
	doneAt  time.Time // where the run id has succeeded
	dump    dump      // where the key is taken or paused; of a quorum's server also with a grant, as it was before
}

// acquire asks for any slot, or for one that a quorum wants. round is 0 but for a quorum: of two requests of one owner the
// later one counts, in whatever order they arrive.
func (n *node) acquire(ctx context.Context, r backends.Request, want int, round int64) (answer, error) {
	state := "L"
	if round != 0 {
		state = "P"
	}
	k := n.c.names(r.Key)
	v, err := n.script(ctx, "acquire", r.Key, scripts.acquire, n.c.replicas,
		[]string{k.lease, k.runs, k.skips, k.done, k.tries, k.index, k.waiters},
		r.Owner, length(r.TTL), length(r.HoldAtLeast), r.RunID, r.Slots, want, flag(r.Last), flag(r.Waited > 0), whoOf(r).text(), r.Key,
		n.c.keep.Runs, length(n.c.keep.Age), length(n.c.keep.DoneAge), round, state, r.Token)
	if err != nil {
		return answer{}, err
	}
	switch {
	case v[0] == "granted" && len(v) >= 8:
		g := &granted{now: micros(text(v[1])), token: number(v[2]), slot: int(number(v[3])), attempt: int(number(v[4])),
			at: micros(text(v[5])), takeover: number(v[6]) != 0, sure: v[7] != "P"}
		a := answer{granted: g}
		if len(v) == 10 {
			g.by = number(v[8])
			var err error
			if a.dump, err = parseDump(r.Key, g.now, fields(v[9])); err != nil {
				return answer{}, n.c.explain("acquire", n.name, err)
			}
		}
		return a, nil
	case v[0] == "done" && len(v) == 3:
		return answer{doneAt: micros(text(v[2]))}, nil
	case v[0] == "held" && len(v) == 3:
		d, err := parseDump(r.Key, micros(text(v[1])), fields(v[2]))
		return answer{dump: d}, n.c.explain("acquire", n.name, err)
	}
	return answer{}, n.odd("acquire", v)
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}

func number(v any) int64 {
	n, _ := strconv.ParseInt(text(v), 10, 64)
	return n
}

// fields turns the flat list of HGETALL inside a script into a map.
func fields(v any) map[string]string {
	flat, _ := v.([]any)
	m := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		m[text(flat[i])] = text(flat[i+1])
	}
	return m
}

// found is how the row of a lease was found by a renewal.
type found int

const (
	ours   found = iota
	others       // it ran out, or somebody else has the slot
	absent       // there is no such row: released, broken, evicted or forgotten
)

func (n *node) renew(ctx context.Context, key, owner string, slot int, ttl time.Duration) (found, error) {
	ctx, cancel := n.c.bound(ctx)
	defer cancel()
	run := func() ([]any, error) {
		return n.script(ctx, "renew", key, scripts.renew, n.c.replicas, []string{n.c.names(key).lease}, owner, slot, length(ttl))
	}
	deposed := n.watch(ctx)
	v, err := run()
	if err == nil && deposed() {
		v, err = run()
	}
	switch {
	case err != nil:
		return ours, err
	case v[0] == "ok":
		return ours, nil
	case v[0] == "lost" && len(v) == 2 && number(v[1]) == 0:
		return absent, nil
	case v[0] == "lost":
		return others, nil
	}
	return ours, n.odd("renew", v)
}

// watch asks the Sentinels, where there are any, while a request is on its way. The answer is waited for a moment only:
// Sentinels that are slow do not make a renewal fail.
func (n *node) watch(ctx context.Context) (deposed func() bool) {
	r, ok := n.route.(*sentinel)
	if !ok {
		return func() bool { return false }
	}
	answer := make(chan bool, 1)
	go func() { answer <- r.deposed(ctx) }()
	return func() bool {
		t := time.NewTimer(courtesy)
		defer t.Stop()
		select {
		case d := <-answer:
			return d
		case <-t.C:
			return false
		}
	}
}

// ending is a lease that is to be released.
type ending struct {
	key, owner, runID string
	token             int64
	slot              int
}

// release tells whether there was such a lease, or its release was carried out before.
func (n *node) release(ctx context.Context, e ending, end backends.End) (bool, error) {
	k := n.c.names(e.key)
	exit := "-"
	if end.ExitCode != nil {
		exit = strconv.Itoa(*end.ExitCode)
	}
	v, err := n.script(ctx, "release", e.key, scripts.release, n.c.replicas, []string{k.lease, k.runs, k.done, k.tries, k.waiters, k.wake},
		e.owner, e.token, e.slot, string(end.Outcome), exit, strconv.FormatInt(end.Duration.Microseconds(), 10), clean(end.Reason), e.runID,
		n.c.keep.Runs, length(n.c.keep.Age), length(n.c.keep.DoneAge))
	return n.ok("release", v, err)
}

// anyRound is greater than every round.
const anyRound = 1 << 53

// abandon gives back what a round up to this one has taken.
func (n *node) abandon(ctx context.Context, r backends.Request, round int64) error {
	k := n.c.names(r.Key)
	v, err := n.script(ctx, "give back", r.Key, scripts.abandon, 0, []string{k.lease, k.tries, k.waiters, k.wake}, r.Owner, r.RunID, round)
	_, err = n.ok("give back", v, err)
	return err
}

func (n *node) record(ctx context.Context, r backends.Record, id string) error {
	if err := backends.CheckKey(r.Key); err != nil {
		return err
	}
	k := n.c.names(r.Key)
	v, err := n.script(ctx, "record", r.Key, scripts.record, 0, []string{k.lease, k.runs, k.skips, k.index}, recordArgs(r, id, n.c.keep)...)
	_, err = n.ok("record", v, err)
	return err
}

// breakLease breaks by owner where there is one, else by token, 0 for all. It returns the rows as they were.
func (n *node) breakLease(ctx context.Context, key string, token int64, owner, by string) (dump, []row, error) {
	k := n.c.names(key)
	v, err := n.script(ctx, "unlock", key, scripts.breakLease, n.c.replicas, []string{k.lease, k.runs, k.waiters, k.wake},
		token, owner, clean(by), n.c.keep.Runs, length(n.c.keep.Age))
	if err != nil {
		return dump{}, nil, err
	}
	if len(v) != 3 {
		return dump{}, nil, n.odd("unlock", v)
	}
	d, err := parseDump(key, micros(text(v[0])), fields(v[1]))
	if err != nil {
		return dump{}, nil, n.c.explain("unlock", n.name, err)
	}
	list, _ := v[2].([]any)
	var rows []row
	for _, r := range d.rows {
		for _, slot := range list {
			if int(number(slot)) == r.slot {
				rows = append(rows, r)
			}
		}
	}
	return d, rows, nil
}

func (n *node) pause(ctx context.Context, key string, p backends.Pause) error {
	if err := backends.CheckKey(key); err != nil {
		return err
	}
	k := n.c.names(key)
	v, err := n.script(ctx, "pause", key, scripts.pause, n.c.replicas, []string{k.lease, k.index},
		length(p.For), who{Holder: p.By, Reason: p.Reason}.text(), key)
	_, err = n.ok("pause", v, err)
	return err
}

// resume tells whether the key was paused.
func (n *node) resume(ctx context.Context, key string) (bool, error) {
	k := n.c.names(key)
	v, err := n.script(ctx, "resume", key, scripts.resume, n.c.replicas, []string{k.lease, k.waiters, k.wake})
	return n.ok("resume", v, err)
}

// confirm writes the token and the attempt that a quorum has agreed on.
func (n *node) confirm(ctx context.Context, r backends.Request, g granted) error {
	k := n.c.names(r.Key)
	v, err := n.script(ctx, "acquire", r.Key, scripts.confirm, 0, []string{k.lease, k.tries}, r.Owner, g.token, g.attempt, r.RunID, stamp(g.at))
	_, err = n.ok("acquire", v, err)
	return err
}

// restore writes a lease into a server that has forgotten it.
func (n *node) restore(ctx context.Context, l *quorumLease, ttl time.Duration) error {
	k := n.c.names(l.r.Key)
	age := time.Since(l.since)
	v, err := n.script(ctx, "renew", l.r.Key, scripts.restore, 0, []string{k.lease, k.runs, k.index},
		l.r.Owner, l.g.Token, l.g.Slot, l.g.Attempt, length(ttl), length(max(0, l.r.HoldAtLeast-age)), stamp(l.g.AcquiredAt), l.r.Slots,
		whoOf(l.r).text(), l.r.Key, n.c.keep.Runs, length(n.c.keep.Age), l.round)
	_, err = n.ok("renew", v, err)
	return err
}

// ok reads an answer that is either ok or a refusal.
func (n *node) ok(op string, v []any, err error) (bool, error) {
	switch {
	case err != nil:
		return false, err
	case v[0] == "ok":
		return true, nil
	case v[0] == "lost", v[0] == "held":
		return false, nil
	}
	return false, n.odd(op, v)
}
