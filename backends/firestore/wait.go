package firestore

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// A waiter looks again after a twentieth of the time that it has waited so far, within these bounds: it comes at most that
// much late, and who waits for hours does not pay for a read each second. Firestore could tell of changes by itself, but
// only through a stream of the gRPC interface.
const (
	soonest    = 50 * time.Millisecond
	latest     = 5 * time.Second
	waitedPart = 20
)

// A waiter that has waited for a while puts its name on a list, for status. That costs two writes, so short waits do not.
const (
	listedAfter = time.Second
	listedFor   = 3 * time.Minute // a waiter that was killed is not counted any longer than that
	listedAgain = time.Minute
)

// Wait looks at the key again and again.
func (b *backend) Wait(ctx context.Context, r backends.Request) error {
	began := time.Now()
	var listed time.Time // when the name was last put on the list
	defer func() {
		if !listed.IsZero() {
			b.later(ctx, func(ctx context.Context) { b.unlist(ctx, r) })
		}
	}()
	for {
		held, now, err := b.look(ctx, r)
		if err != nil || held == nil {
			return err
		}
		if time.Since(began) >= listedAfter && time.Since(listed) >= listedAgain && b.list(ctx, r, now) == nil {
			listed = time.Now()
		}
		d := min(max((r.Waited+time.Since(began))/waitedPart, soonest), latest)
		d = d/2 + rand.N(d/2+1)
		if !held.Until.IsZero() {
			d = min(d, max(held.Left, time.Millisecond))
		}
		if !backends.Sleep(ctx, d) {
			return ctx.Err()
		}
	}
}

// look tells who is in the way; nil where nobody is, or the run is done, which is for Acquire to tell.
func (b *backend) look(ctx context.Context, r backends.Request) (*backends.HeldError, time.Time, error) {
	bounded, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	list := []string{b.names.lease(r.Key)}
	if r.RunID != "" {
		list = append(list, b.names.mark(r.Key, r.RunID))
	}
	found, now, err := b.client.read(bounded, list...)
	var m markDocument
	if err == nil && r.RunID != "" {
		m, err = parseMark(r.Key, r.RunID, found[list[1]], now.Add(-b.keep.DoneAge))
	}
	if err == nil && m.done {
		return nil, now, nil
	}
	var l *leaseDocument
	if err == nil {
		l, err = parseLease(r.Key, found[list[0]])
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, now, ctx.Err()
		}
		return nil, now, b.fail(bounded, "wait", err)
	}
	return l.refusal(r, now), now, nil
}

// list puts a waiter's name on the list, or says that it still waits, and takes off names that killed waiters left.
func (b *backend) list(ctx context.Context, r backends.Request, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	f := fields{"key": str(r.Key), "expire_at": when(now.Add(listedFor))}
	f.setStr("holder", r.Holder)
	f.setStr("host", r.Host)
	writes := []write{{Update: &document{Name: b.names.waiter(r.Key, r.Owner), Fields: f}}}
	dead, _, err := b.find(ctx, "", query{Select: only(), From: []from{{b.names.waiters()}},
		Where: where("expire_at", "LESS_THAN", when(now)), Limit: 20})
	for _, d := range dead {
		writes = append(writes, write{Delete: d.Name})
	}
	if err == nil {
		_, err = b.commit(ctx, writes)
	}
	return err
}

func (b *backend) unlist(ctx context.Context, r backends.Request) {
	_, _ = b.commit(ctx, []write{{Delete: b.names.waiter(r.Key, r.Owner)}})
}

// waiting counts the waiters of each key. Names that killed waiters left are over after a while.
func (b *backend) waiting(ctx context.Context) (map[string]int, error) {
	found, now, err := b.find(ctx, "", query{From: []from{{b.names.waiters()}}})
	if err != nil {
		return nil, err
	}
	n := map[string]int{}
	for _, d := range found {
		if now.Before(d.Fields.time("expire_at")) {
			n[d.Fields.str("key")]++
		}
	}
	return n, nil
}
