package redis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// merge is what more than half of the servers say of a key: leases, by owner, that so many have, and a pause that so many
// have. Of the times each server tells, those count that so many servers agree to; all are told by the first one's clock.
func (q *quorum) merge(key string, dumps []dump) dump {
	m := dump{key: key}
	var pauses []*pauseRow
	var tokens []int64
	byOwner := map[string][]row{}
	for i, d := range dumps {
		if i == 0 {
			m.now = d.now
		}
		tokens = append(tokens, d.token)
		if d.waiters != nil && (m.waiters == nil || *d.waiters > *m.waiters) {
			m.waiters = d.waiters
		}
		if d.paused() {
			pauses = append(pauses, d.pause.moved(m.now.Sub(d.now)))
		}
		for _, r := range d.taken() {
			byOwner[r.owner] = append(byOwner[r.owner], r.moved(m.now.Sub(d.now)))
		}
	}
	for _, rows := range byOwner {
		if len(rows) >= q.need {
			m.rows = append(m.rows, q.agreed(rows, m.now))
		}
	}
	slices.SortFunc(m.rows, func(a, b row) int { return cmp.Or(a.slot-b.slot, cmp.Compare(a.token, b.token)) })
	if len(pauses) >= q.need {
		m.pause = pauses[0]
	}
	if slices.Sort(tokens); len(tokens) >= q.need {
		m.token = tokens[len(tokens)-q.need] // what was never confirmed was nobody's
	}
	return m
}

// agreed is the lease that several servers have a copy of.
func (q *quorum) agreed(rows []row, now time.Time) row {
	top := slices.MaxFunc(rows, func(a, b row) int { return cmp.Compare(a.token, b.token) })
	nth := func(of func(row) time.Time) time.Time {
		all := make([]time.Time, len(rows))
		for i, r := range rows {
			all[i] = of(r)
		}
		slices.SortFunc(all, func(a, b time.Time) int { return b.Compare(a) })
		return all[q.need-1]
	}
	top.hold = nth(func(r row) time.Time { return r.hold })
	top.renewed = nth(func(r row) time.Time { return r.renewed })
	top.expires = nth(func(r row) time.Time {
		if !r.live(now) {
			return time.Time{}
		}
		return r.expires
	})
	if top.expires.IsZero() {
		top.state = "R"
	}
	return top
}

// moved tells the times by a clock that is d ahead.
func (r row) moved(d time.Duration) row {
	for _, t := range []*time.Time{&r.acquired, &r.renewed, &r.expires, &r.hold} {
		if !t.IsZero() {
			*t = t.Add(d)
		}
	}
	return r
}

func (p pauseRow) moved(d time.Duration) *pauseRow {
	p.at = p.at.Add(d)
	if !p.until.IsZero() {
		p.until = p.until.Add(d)
	}
	return &p
}

// refusal is why a request is positively refused, nil where it is not.
func (d dump) refusal(r backends.Request) error {
	if d.running(r) == nil && len(d.taken()) < r.Slots && !d.paused() {
		return nil
	}
	return answer{dump: d}.refusal(r)
}

// merged are the keys as more than half of the servers see them.
func (q *quorum) merged(ctx context.Context, op string, keys []string) ([]dump, error) {
	views, err := read(ctx, q, op, func(n *node, ctx context.Context) ([]dump, error) { return n.dumps(ctx, op, keys) })
	if err != nil {
		return nil, err
	}
	all := make([]dump, len(keys))
	for i, key := range keys {
		var of []dump
		for _, v := range views {
			of = append(of, v[i])
		}
		all[i] = q.merge(key, of)
	}
	return all, nil
}

func (q *quorum) keys(ctx context.Context) ([]string, error) {
	lists, err := read(ctx, q, "list keys", (*node).keys)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all), nil
}

func (q *quorum) Status(ctx context.Context, keys ...string) ([]backends.State, error) {
	if len(keys) == 0 {
		var err error
		if keys, err = q.keys(ctx); err != nil {
			return nil, err
		}
	}
	dumps, err := q.merged(ctx, "status", keys)
	if err != nil {
		return nil, err
	}
	var all []backends.State
	for _, d := range dumps {
		all = append(all, d.states()...)
	}
	return all, nil
}

// Attach finds the lease by its token, and goes on by its owner.
func (q *quorum) Attach(ctx context.Context, key string, token int64) (backends.Lease, error) {
	dumps, err := q.merged(ctx, "attach", []string{key})
	if err != nil {
		return nil, err
	}
	d := dumps[0]
	l, err := d.loose(token)
	if err != nil {
		return nil, err
	}
	r := backends.Request{Key: key, Owner: l.owner, Holder: l.who.Holder, Host: l.who.Host, PID: l.who.PID, RunID: l.who.RunID,
		TTL: l.expires.Sub(l.renewed), Slots: anySlots, Waited: time.Duration(l.who.Waited) * time.Microsecond, Loose: true}
	if !l.hold.IsZero() {
		r.HoldAtLeast = l.hold.Sub(l.acquired)
	}
	return &quorumLease{q: q, r: r, g: l.grant(), since: time.Now().Add(l.acquired.Sub(d.now)), round: q.rounds.Add(1)}, nil
}

// Break breaks by owner, since a server may have the lease under a token that was never confirmed.
func (q *quorum) Break(ctx context.Context, key string, token int64, by string) ([]backends.State, error) {
	ctx, cancel := q.c.bound(ctx)
	defer cancel()
	dumps, err := q.merged(ctx, "unlock", []string{key})
	if err != nil {
		return nil, err
	}
	d := dumps[0]
	var broken []backends.State
	for _, l := range d.taken() {
		if token != 0 && l.token != token {
			continue
		}
		err := q.majority(ctx, "unlock", func(ctx context.Context, n *node) error {
			_, _, err := n.breakLease(ctx, key, l.token, l.owner, by)
			return err
		})
		if err != nil {
			return broken, err
		}
		broken = append(broken, d.state(l))
	}
	if broken == nil {
		return nil, backends.ErrNotHeld
	}
	return broken, nil
}

// History is what any server has, each run once: a server that was away, or forgot, is made up for by the others.
func (q *quorum) History(ctx context.Context, query backends.Query) ([]backends.Record, error) {
	ctx, cancel := q.c.bound(ctx)
	defer cancel()
	keys := []string{query.Key}
	if query.Key == "" {
		var err error
		if keys, err = q.keys(ctx); err != nil {
			return nil, err
		}
	}
	lists, err := read(ctx, q, "history", func(n *node, ctx context.Context) ([]stored, error) { return n.records(ctx, keys) })
	if err != nil {
		return nil, err
	}
	return newest(q.unite(lists), query), nil
}

// unite keeps one of the copies of each run: the one that says most.
func (q *quorum) unite(lists [][]stored) []stored {
	type copies struct {
		best stored
		n    int
	}
	byName := map[string]*copies{}
	var order []*copies
	for _, list := range lists {
		for _, r := range list {
			// Copies have the id of the run in common, and its token where a server was told of it by Record alone.
			id, token := r.Key+"\x00"+r.id, fmt.Sprint(r.Key, "\x00#", r.Token)
			c := byName[id]
			if c == nil && r.Token != 0 {
				c = byName[token]
			}
			if c == nil {
				c = &copies{best: r}
				order = append(order, c)
			}
			c.n++
			byName[id] = c
			if r.Token != 0 {
				byName[token] = c
			}
			if telling(r.Outcome) > telling(c.best.Outcome) || telling(r.Outcome) == telling(c.best.Outcome) && r.Token > c.best.Token {
				c.best = r
			}
		}
	}
	var all []stored
	surplus := q.surplus(lists)
	for _, c := range order {
		if c.n >= q.need || !surplus(c.best) {
			all = append(all, c.best)
		}
	}
	return all
}

// telling ranks outcomes by who wrote them: the run itself, an operator, a taker that had to assume.
func telling(o backends.Outcome) int {
	switch {
	case o.Released():
		return 3
	case o == backends.Unlocked:
		return 2
	case o == backends.Crashed:
		return 0
	}
	return 1
}

// part is what is kept apart from the rest: the runs or the refusals of a key.
type part struct {
	key     string
	refusal bool
}

func partOf(r stored) part { return part{r.Key, r.Outcome.Refusal()} }

// extent is how much a server has of a part, and how far back.
type extent struct {
	n      int
	oldest time.Time
}

// surplus tells the records that all but a few servers have trimmed. A server that was away for some runs has kept older
// ones in their place: they are older than anything that a majority of servers has, whose lists are as long as any.
func (q *quorum) surplus(lists [][]stored) func(stored) bool {
	extents := make([]map[part]extent, len(lists))
	longest := map[part]int{}
	for i, list := range lists {
		extents[i] = map[part]extent{}
		for _, r := range list {
			e := extents[i][partOf(r)]
			if e.n++; e.oldest.IsZero() || r.EndedAt.Before(e.oldest) {
				e.oldest = r.EndedAt
			}
			extents[i][partOf(r)] = e
			longest[partOf(r)] = max(longest[partOf(r)], e.n)
		}
	}
	return func(r stored) bool {
		n := 0
		for _, of := range extents {
			if e := of[partOf(r)]; e.n == longest[partOf(r)] && r.EndedAt.Before(e.oldest) {
				n++
			}
		}
		return n >= q.need
	}
}
