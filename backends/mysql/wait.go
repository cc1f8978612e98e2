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

// Wait listens to the bell of the lease that is in the way, and looks again and again where there is none to listen to. A
// look is one read by primary key, which takes no lock on the tables, so that however many wait, whoever renews or releases
// does not wait for them; asking for the lease instead would lock the key.
//
// A look without an answer ends the waiting: the caller then asks, and learns why.
func (b *backend) Wait(ctx context.Context, r backends.Request) error {
	if err := r.Check(); err != nil {
		return err
	}
	w := &waiting{b: b, r: r, deaf: r.Slots > 1}
	defer w.end()
	for pause := firstLook; ; {
		left, err := w.left(ctx)
		if err != nil || left <= 0 {
			return err
		}
		if w.listens(ctx, left) {
			continue
		}
		if !backends.Sleep(ctx, min(left, pause/2+rand.N(pause/2+1))) {
			return ctx.Err()
		}
		pause = min(2*pause, mostLook)
	}
}

// waiting is one Wait.
type waiting struct {
	b      *backend
	r      backends.Request
	looked bool
	said   time.Time // when it last said that it waits; zero: never

	inTheWay int64 // the token of the lease that was seen last; 0: it is something else
	bell     int64 // the token of the lease whose bell the next look listens to first; 0: to none
	useless  int64 // the token of a lease whose bell was heard although it was still there
	deaf     bool  // there are no bells here
}

// left is how long the key stays taken unless somebody renews or releases; 0 where an Acquire may be worth it.
func (w *waiting) left(ctx context.Context) (time.Duration, error) {
	bell := w.bell
	a, heard, err := w.look(ctx)
	w.bell, w.inTheWay = 0, 0
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case bell != 0 && mysqlCode(err) != 0: // a time limit for statements, say, that is shorter than we listen
		w.deaf = true
		return w.left(ctx)
	case err != nil:
		return 0, err
	}
	var held *backends.HeldError
	if why := a.refuse(w.r); !errors.As(why, &held) {
		return 0, nil
	}
	w.inTheWay = held.Token
	if heard && held.Token == bell {
		w.useless = bell
		w.b.letGo(ctx)
	}
	if held.Until.IsZero() {
		return forever, nil
	}
	return held.Left, nil
}

const forever = time.Duration(1<<63 - 1)

// listens tells whether the next look listens to a bell first: where that is over before left and ctx are.
func (w *waiting) listens(ctx context.Context, left time.Duration) bool {
	end, ends := ctx.Deadline()
	if w.deaf || w.inTheWay == 0 || w.inTheWay == w.useless || left <= ring || ends && time.Until(end) <= 2*ring {
		return false
	}
	select {
	case w.b.ears <- struct{}{}:
		w.bell = w.inTheWay
		return true
	default:
		return false
	}
}

// look reads what an Acquire would decide by and, where it is time, says in the same exchange that somebody waits. The
// first look does not, as the key may well be free. It listens to a bell first, and tells whether it heard it.
func (w *waiting) look(ctx context.Context) (a *answer, heard bool, err error) {
	if w.bell != 0 {
		defer func() { <-w.b.ears }()
	}
	ctx, cancel := context.WithTimeout(ctx, w.b.timeout+ring)
	defer cancel()
	text := w.text()
	err = w.b.do(ctx, "wait", repeatable, func(ctx context.Context, c *conn) error {
		w.deaf = w.deaf || !c.hasBells()
		sets, err := c.query(ctx, text)
		if err == nil && w.bell != 0 && len(sets) > 0 {
			heard, sets = sets.only().num(0) == 1, sets[1:]
		}
		if err == nil {
			a, err = readAnswer(sets)
		}
		return err
	})
	return a, heard, err
}

// text is what the next look says.
func (w *waiting) text() string {
	f := w.b.t.request(w.r, w.b.keep, time.Time{}, false)
	text := "SET @lr_go = 0" + separator + f.fill(look)
	if w.bell != 0 {
		f["heard"] = number(w.bell)
		text = f.fill(listen) + separator + text
	}
	if now := time.Now(); w.looked && now.Sub(w.said) >= stillHere {
		text = w.fields().fill(sayWaiting) + separator + text
		w.said = now
	}
	w.looked = true
	return text
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
