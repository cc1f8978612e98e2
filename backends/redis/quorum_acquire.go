package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// errSplit is a round in which neither we nor anybody else got the majority.
var errSplit = errors.New("nobody got a majority")

// Acquire asks all servers at once, in rounds: contenders that split the servers between them give back what they got
// and come again, each after another pause. A split that lasts as long as ctx is no refusal: nobody knows then.
func (q *quorum) Acquire(ctx context.Context, r backends.Request) (backends.Lease, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, q.c.timeout)
	defer cancel()
	if ctx.Err() != nil {
		return nil, q.none("acquire", []error{q.c.explain("acquire", q.c.name, &phaseError{"ask", "the servers", ctx.Err()})})
	}
	last := r.Last
	r.Last = false // a server that refuses is not the quorum yet
	want := -1
	if r.Slots == 1 {
		want = 0
	}
	for round := 1; ; round++ {
		l, err := q.round(ctx, r, want)
		if round > 1 && ctx.Err() != nil && err != nil && !refusal(err) {
			err = errSplit // the time is over, and that is why
		}
		if !errors.Is(err, errSplit) {
			if last {
				q.recordRefusal(ctx, r, err)
			}
			return l, err
		}
		if !pause(ctx, time.Duration(min(round, 8))*10*time.Millisecond) {
			return nil, q.none("acquire", []error{&backends.Error{Err: errSplit}})
		}
		want = rand.IntN(min(r.Slots, 32<<min(round, 20))) // low where there are many, so that slots stay small numbers
	}
}

// recordRefusal writes a refusal into the history. Failing to do so changes nothing.
func (q *quorum) recordRefusal(ctx context.Context, r backends.Request, err error) {
	if refusal(err) {
		_ = q.majority(ctx, "record", func(ctx context.Context, n *node) error {
			return n.record(ctx, r.Refused(err, time.Time{}), r.Owner[:16])
		})
	}
}

// refusal tells what a majority positively said from not knowing.
func refusal(err error) bool {
	var held *backends.HeldError
	var done *backends.DoneError
	return errors.As(err, &held) || errors.As(err, &done)
}

// round asks once. What it does not return as a lease it has given back.
func (q *quorum) round(ctx context.Context, r backends.Request, want int) (backends.Lease, error) {
	start, number := time.Now(), q.rounds.Add(1)
	var l *quorumLease
	var settled sync.WaitGroup // until it is known what becomes of a grant that comes late
	settled.Add(1)
	all := poll(ctx, q, func(ctx context.Context, n *node) (answer, error) { return n.acquire(ctx, r, want, number) },
		func(all []reply[answer]) bool { return q.judge(all, r).final },
		func(ctx context.Context, late reply[answer]) {
			settled.Wait()
			switch {
			case l == nil:
				_ = late.node.abandon(ctx, r, number)
			case late.err == nil && late.v.granted != nil:
				_ = l.adopt(ctx, late)
			}
		})
	defer settled.Done()
	v := q.judge(all, r)
	if v.slot < 0 {
		q.undo(ctx, r, number, all, -1)
		return nil, v.err
	}
	q.undo(ctx, r, number, all, v.slot)
	granted := &quorumLease{q: q, r: r, since: start, round: number, g: v.grant(r, q.need)}
	err := q.majority(ctx, "acquire", func(ctx context.Context, n *node) error { return n.confirm(ctx, r, granted.asGranted()) })
	if took := time.Since(start); err == nil && took >= r.TTL-granted.g.Drift {
		err = q.none("acquire", []error{&backends.Error{Err: errors.New("the servers took longer than the lease lasts")}})
	}
	if err != nil {
		q.undo(ctx, r, number, all, -1)
		return nil, err
	}
	l = granted
	return l, nil
}

// undo gives back at once what the servers have granted, all but one slot. It waits only for servers that have answered;
// the reply of another may be lost and the lease be there. Once ctx has ended that is left to Abandon.
func (q *quorum) undo(ctx context.Context, r backends.Request, round int64, all []reply[answer], keep int) {
	var wg sync.WaitGroup
	for _, a := range all {
		has := a.err == nil && a.v.granted != nil && a.v.granted.slot != keep
		if !has && (a.err == nil || keep >= 0 || ctx.Err() != nil) {
			continue
		}
		if has {
			wg.Add(1)
		}
		q.bg.do(ctx, courtesy, func(ctx context.Context) {
			_ = a.node.abandon(ctx, r, round)
			if has {
				wg.Done()
			}
		})
	}
	wg.Wait()
}

// verdict is what the answers of a round come to.
type verdict struct {
	final bool      // more answers would change nothing
	slot  int       // that a majority has granted; -1: none
	by    []granted // the grants of that slot
	err   error     // without a slot: why
}

// judge counts the answers so far.
func (q *quorum) judge(all []reply[answer], r backends.Request) verdict {
	bySlot := map[int][]granted{}
	var dumps []dump
	for _, a := range good(all) {
		switch {
		case !a.v.doneAt.IsZero():
			// One server is enough: a done-mark is written by nothing but a release of a run that succeeded.
			return verdict{final: true, slot: -1, err: &backends.DoneError{Key: r.Key, RunID: r.RunID, At: a.v.doneAt}}
		case a.v.granted != nil:
			bySlot[a.v.granted.slot] = append(bySlot[a.v.granted.slot], *a.v.granted)
		}
		dumps = append(dumps, a.v.dump.without(r.Owner))
	}
	for slot, by := range bySlot {
		if len(by) >= q.need {
			return verdict{final: true, slot: slot, by: by}
		}
	}
	if held := q.merge(r.Key, dumps).refusal(r); held != nil {
		return verdict{final: true, slot: -1, err: held}
	}
	if errs := errorsOf(all); len(errs) > q.spare() {
		return verdict{final: true, slot: -1, err: q.none("acquire", errs)}
	}
	return verdict{slot: -1, err: errSplit}
}

// grant is what the grants of a majority come to.
func (v verdict) grant(r backends.Request, need int) backends.Grant {
	g := backends.Grant{Slot: v.slot, TTL: r.TTL, Drift: drift(r.TTL)}
	by := v.by
	if sure := slices.DeleteFunc(slices.Clone(by), func(g granted) bool { return !g.sure }); len(sure) > 0 {
		by = sure // the reply to an earlier request was lost: what was agreed on then stays
	}
	for _, by := range by {
		g.Takeover = g.Takeover || by.takeover
		g.Token = max(g.Token, by.token)
	}
	// The lease is held since the majority was, not since the last server: minimum holds count from there.
	by = slices.SortedFunc(slices.Values(by), func(a, b granted) int { return a.at.Compare(b.at) })
	g.AcquiredAt = by[min(need, len(by))-1].at
	g.Attempt = attemptOf(r, by)
	return g
}

// attemptOf is the attempt that the servers come to. Of a run id the greatest count is right: it only falls where COMMAND
// could not be started. Without one it also falls at a success, of which a server may not have heard; so the count that
// comes from the latest lease is right, and of equals the lowest.
func attemptOf(r backends.Request, by []granted) int {
	best := by[0]
	for _, g := range by[1:] {
		switch {
		case r.RunID != "" || g.sure:
			best.attempt = max(best.attempt, g.attempt)
		case g.by > best.by, g.by == best.by && g.attempt < best.attempt:
			best = g
		}
	}
	return best.attempt
}
