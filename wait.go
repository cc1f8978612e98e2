package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/boottime"
)

// abandonBound is how long giving back an unanswered acquire may take, so that an attempt without an answer ends within
// the backend timeout and one second.
const abandonBound = 700 * time.Millisecond

// acquirer asks one backend for one lease, again where nobody knows the answer, and waits where it is held.
type acquirer struct {
	b       backends.Backend
	req     backends.Request
	wait    time.Duration // 0 refuses at once, WaitForever never gives up
	timeout time.Duration // bound on each exchange, and on all attempts that stay without an answer
	now     func() time.Duration
	waiting func(*backends.HeldError) // told once, before the first wait
	silent  func(error)               // told once, where the store stops answering a waiter; nil: an outage ends the wait

	took *time.Duration // out: from asking for the last time to the answer; nil: there was none
}

// granted is a lease and when it was asked for.
type granted struct {
	lease  backends.Lease
	sentAt time.Duration
}

// acquire returns a lease, or the refusal, or an error that means "not known". patience ends the waiting at once, and where
// it has ended before anything was asked nothing is: the answer might find nobody who gives the lease back. ctx ends the
// exchange under way as well. After an error that is not a refusal nothing is left behind, as far as the store
// could be reached.
//
// A first attempt without an answer is the last one. A waiter, who knows from an earlier answer that the store and its key
// are there, sits an outage out for as long as it would have waited anyway.
func (a *acquirer) acquire(ctx, patience context.Context) (granted, error) {
	if err := patience.Err(); err != nil {
		return granted{}, err
	}
	start := a.now()
	refused, silent := false, false
	for back := (backoff{first: 25 * time.Millisecond, most: time.Second}); ; {
		if refused {
			a.req.Waited = a.now() - start
		}
		a.req.Last = a.over(start)
		began := a.now()
		g, err := a.ask(ctx, patience)
		unknown := err != nil && codeOf(err) == codeUnavailable
		if took := a.now() - began; !unknown {
			a.took = &took
		}
		var held *backends.HeldError
		switch {
		case unknown && (!refused || a.silent == nil || backends.IsPermanent(err) || a.over(start) || patience.Err() != nil):
			a.abandon()
			return g, err
		case unknown:
			if !silent {
				a.silent(err)
			}
			silent = true
			backends.Sleep(patience, min(back.next(), a.left(start)))
			continue
		case !errors.As(err, &held) || a.req.Last || patience.Err() != nil:
			return g, err
		}
		if !refused && a.waiting != nil {
			a.waiting(held)
		}
		refused = true
		a.pause(patience, start, back.next())
	}
}

// over tells whether the time to wait is.
func (a *acquirer) over(start time.Duration) bool { return a.left(start) == 0 }

// left is what is left of the time to wait.
func (a *acquirer) left(start time.Duration) time.Duration {
	if a.wait == WaitForever {
		return WaitForever
	}
	return max(a.wait-(a.now()-start), 0)
}

// pause waits until the key may be free, the time to wait is over, or patience ends; never longer than the backend
// needs to tell, and d where it cannot tell.
func (a *acquirer) pause(patience context.Context, start, d time.Duration) {
	left := a.left(start)
	w, ok := a.b.(backends.Waiter)
	if !ok {
		backends.Sleep(patience, min(d, left))
		return
	}
	ctx, cancel := patience, context.CancelFunc(func() {})
	if left != WaitForever {
		ctx, cancel = context.WithTimeout(patience, left)
	}
	defer cancel()
	if err := w.Wait(ctx, a.req); err != nil && ctx.Err() == nil {
		backends.Sleep(ctx, min(d, left))
	}
}

// ask sends one acquire, and the same again with the same owner while the answer is not known and the backend timeout
// lasts. It gives nothing back: whoever asks again finds by its owner what an unanswered try has taken.
//
//	nil                           the lease is ours
//	*HeldError, *DoneError, ...   the store positively refused: final here
//	permanent                     not known, and asking again is useless
//	anything else                 not known: ask again
func (a *acquirer) ask(ctx, patience context.Context) (granted, error) {
	giveUp := a.now() + a.timeout
	var why error // the last try is often cut short, and an earlier one says more than that it was
	for back := (backoff{first: 20 * time.Millisecond, most: 500 * time.Millisecond}); ; {
		g, err := a.once(ctx, giveUp-a.now())
		if err == nil || codeOf(err) != codeUnavailable {
			return g, err
		}
		if why == nil || !errors.Is(err, context.DeadlineExceeded) {
			why = err
		}
		d := back.next()
		if backends.IsPermanent(err) || a.now()+d >= giveUp || !backends.Sleep(patience, d) {
			return granted{}, why
		}
	}
}

// once is one exchange. A grant whose lease has already run out on its way is no grant.
func (a *acquirer) once(ctx context.Context, bound time.Duration) (granted, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	g := granted{sentAt: a.now()}
	lease, err := a.b.Acquire(ctx, a.req)
	if err != nil {
		return granted{}, err
	}
	if err := lease.Grant().Check(a.req); err != nil {
		return granted{}, &backends.Error{Op: "acquire", Backend: a.b.Name(), Err: err, Permanent: true,
			Remedy: "its records are damaged, or it is no store of lockrun's; lockrun status shows what it has"}
	}
	g.lease = lease
	if took, l := a.now()-g.sentAt, lease.Grant(); took >= l.TTL-l.Drift {
		return granted{}, &backends.Error{Op: "acquire", Backend: a.b.Name(),
			Err:    fmt.Errorf("the answer took %v and so outlived the lease of %v", took.Round(time.Millisecond), l.TTL),
			Remedy: "use a longer --ttl or a faster backend"}
	}
	return g, nil
}

// abandon gives back what an unanswered acquire may have taken.
func (a *acquirer) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), min(abandonBound, a.timeout))
	defer cancel()
	_ = a.b.Abandon(ctx, a.req) // the last resort: where it fails too, the lease runs out by itself
}

// backoff grows from first to most, jittered over its upper half, so that many hosts that were refused together do not
// come back together.
type backoff struct{ first, most, cur time.Duration }

// next is the next pause.
func (b *backoff) next() time.Duration {
	if b.cur == 0 {
		b.cur = b.first
	}
	d := b.cur/2 + rand.N(b.cur/2+1)
	b.cur = min(2*b.cur, b.most)
	return d
}

// bootNow is the clock of all deadlines; see package boottime.
func bootNow() time.Duration { return boottime.Now() }
