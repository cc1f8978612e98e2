package mysql

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockrun/lockrun/backends"
)

var _ backends.Waiter = (*backend)(nil)

// A waiter looks after firstLook, then after pauses that double up to mostLook. It says every stillHere that it waits, and
// counts as waiting until it has been silent for goneAfter.
const (
	firstLook = 20 * time.Millisecond
	mostLook  = 250 * time.Millisecond
	stillHere = 5 * time.Second
	goneAfter = 15 * time.Second
)

// goodbye bounds how long the end of a wait is held up by saying so.
const goodbye = 300 * time.Millisecond

// Wait looks, since the server has nothing to tell with. A look is one read by primary key, which takes no lock, so that
// however many wait, whoever renews or releases does not wait for them; asking for the lease instead would lock the key.
//
// A look without an answer ends the waiting: the caller then asks, and learns why.
func (b *backend) Wait(ctx context.Context, r backends.Request) error {
	if err := r.Check(); err != nil {
		return err
	}
	w := &waiting{b: b, r: r}
	defer w.end()
	for pause := firstLook; ; pause = min(2*pause, mostLook) {
		left, err := w.left(ctx)
		if err != nil || left <= 0 {
			return err
		}
		if !backends.Sleep(ctx, min(left, pause/2+rand.N(pause/2+1))) {
			return ctx.Err()
		}
	}
}

// waiting is one Wait.
type waiting struct {
	b      *backend
	r      backends.Request
	looked bool
	said   time.Time // when it last said that it waits; zero: never
}

// left is how long the key stays taken unless somebody renews or releases; 0 where an Acquire may be worth it.
func (w *waiting) left(ctx context.Context) (time.Duration, error) {
	a, err := w.look(ctx)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, err
	}
	var held *backends.HeldError
	switch why := a.refuse(w.r); {
	case !errors.As(why, &held):
		return 0, nil
	case held.Until.IsZero():
		return forever, nil
	}
	return held.Left, nil
}

const forever = time.Duration(1<<63 - 1)

// look reads what an Acquire would decide by and, where it is time, says in the same exchange that somebody waits. The
// first look does not, as the key may well be free.
func (w *waiting) look(ctx context.Context) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, w.b.timeout)
	defer cancel()
	text := "SET @lr_go = 0" + separator + w.b.t.request(w.r, w.b.keep, time.Time{}).fill(look)
	if now := time.Now(); w.looked && now.Sub(w.said) >= stillHere {
		text = w.fields().fill(sayWaiting) + separator + text
		w.said = now
	}
	w.looked = true
	var a *answer
	err := w.b.do(ctx, "wait", repeatable, func(ctx context.Context, c *conn) error {
		sets, err := c.query(ctx, text)
		if err == nil {
			a, err = readAnswer(sets)
		}
		return err
	})
	return a, err
}

func (w *waiting) fields() statement {
	f := w.b.t.fields(w.r.Key)
	f["owner"], f["gone"] = text(w.r.Owner), before(goneAfter)
	return f
}

// A waiter that died is removed by the next one that waits for the key.
const (
	sayWaiting = `DELETE FROM {waiters} WHERE job_name = {key} AND seen_time < {gone}` + separator + `
INSERT INTO {waiters} (job_name, instance_id, seen_time) VALUES ({key}, {owner}, {now}) ON DUPLICATE KEY UPDATE seen_time = {now}`

	countWaiters = `(SELECT COUNT(*) FROM {waiters} w WHERE w.job_name = k.job_name AND w.seen_time >= {gone})`
)

// end takes back what was said. Where that fails the waiter counts a little longer.
func (w *waiting) end() {
	if w.said.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	_ = w.b.do(ctx, "wait", repeatable, func(ctx context.Context, c *conn) error {
		_, err := c.exec(ctx, w.fields().fill(`DELETE FROM {waiters} WHERE job_name = {key} AND instance_id = {owner}`))
		return err
	})
}
