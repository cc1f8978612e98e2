package firestore

import (
	"context"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/boottime"
)

// drift is what a holder has to take off for clocks that differ in rate.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Acquire takes one round trip for a key that is free, or that is held and has to be refused, and two for one whose lease
// ran out, or whose run id was started before.
func (b *backend) Acquire(ctx context.Context, r backends.Request) (backends.Lease, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	ctx, cancel := b.bound(ctx)
	defer cancel()
	l, err := b.acquire(ctx, r)
	if err != nil {
		return nil, b.fail(ctx, "acquire", err)
	}
	return l, nil
}

func (b *backend) acquire(ctx context.Context, r backends.Request) (*lease, error) {
	var first *snapshot
	if r.Token == 0 { // one that is told can be judged only by who has read the last one
		l, s, err := b.create(ctx, r)
		if l != nil || err != nil {
			return l, err
		}
		first = s
	}
	var l *lease
	err := b.change(ctx, r.Key, r.RunID, 0, first, func(s *snapshot) (change, error) {
		if own := s.lease.owned(r.Owner); own != nil {
			return b.again(r, s, own, &l), nil
		}
		if s.mark.done {
			return change{}, b.refuse(ctx, r, &backends.DoneError{Key: r.Key, RunID: r.RunID, At: s.mark.at}, s.now)
		}
		if held := s.lease.refusal(r, s.now); held != nil {
			return change{}, b.refuse(ctx, r, held, s.now)
		}
		return b.take(r, s, &l)
	})
	return l, err
}

// create takes a key whose document is absent, by one commit that creates it, and reads at the same time what there is if
// it is not absent. It returns the lease; or the snapshot, nil where that has to be read again; or an error that says that
// the answer is not known.
func (b *backend) create(ctx context.Context, r backends.Request) (*lease, *snapshot, error) {
	type readAnswer struct {
		s   *snapshot
		err error
	}
	type commitAnswer struct {
		c   *committed
		err error
	}
	commits, reads := make(chan commitAnswer, 1), make(chan readAnswer, 1)
	on := make(chan struct{})
	ready := sync.OnceFunc(func() { close(on) })
	sent := boottime.Now()
	go func() {
		c, err := b.commit(onItsWay(ctx, ready), b.creation(r))
		commits <- commitAnswer{c, err}
		ready()
	}()
	<-on
	go func() {
		s, err := b.read(ctx, r.Key, r.RunID, 0)
		reads <- readAnswer{s, err}
	}()
	c := <-commits
	switch {
	case c.err == nil:
		return b.created(r, c.c, sent), nil, nil
	case !isConflict(c.err):
		return nil, nil, c.err
	}
	read := <-reads
	return nil, read.s, read.err
}

// creation is the commit that takes a free key: the lease's document, one more start, and the mark of the run id.
func (b *backend) creation(r backends.Request) []write {
	s := newSlot(r)
	l := &leaseDocument{key: r.Key, slots: map[int]*slot{0: s}, beat: 0}
	count := []transform{atLeast("token", 0)}
	var marks []write
	if r.RunID == "" {
		count = append(count, add("starts", 1))
	} else {
		s.attempt = 1
		marks = append(marks, b.firstStart(r, ""))
	}
	return append([]write{
		{Update: &document{Name: b.names.lease(r.Key), Fields: l.fields()}, Current: version("")},
		b.touch(r.Key, nil, count...),
	}, marks...)
}

func newSlot(r backends.Request) *slot {
	return &slot{owner: r.Owner, holder: r.Holder, host: r.Host, run: r.RunID, pid: r.PID, ttl: r.TTL, hold: r.HoldAtLeast,
		waited: r.Waited, loose: r.Loose}
}

// firstStart writes the mark of a run id that starts for the first time, or as if for the first time.
func (b *backend) firstStart(r backends.Request, updated string) write {
	f := fields{"key": str(r.Key), "run_id": str(r.RunID), "attempts": num(1)}
	return write{Update: &document{Name: b.names.mark(r.Key, r.RunID), Fields: f}, Transforms: []transform{stamp("at")}, Current: version(updated)}
}

// created is the lease that creation has taken.
func (b *backend) created(r backends.Request, c *committed, sent time.Duration) *lease {
	at := parseTime(c.updated(0))
	attempt := 1
	if r.RunID == "" {
		attempt = max(1, int(c.number(1, 1)))
	}
	last := c.number(1, 0)
	l := b.lease(r.Key, r.Owner, r.RunID, backends.Grant{Token: max(at.UnixMicro(), last+1), Attempt: attempt, AcquiredAt: at,
		TTL: r.TTL, Drift: drift(r.TTL)})
	l.describe(newSlot(r)).knows(c.updated(0), sent, r.TTL, true)
	l.fresh = last == 0
	return l
}

// again recognises the lease that an earlier request of the same owner has taken, and counts its time anew.
func (b *backend) again(r backends.Request, s *snapshot, own *slot, l **lease) change {
	own.ttl, s.lease.beat = r.TTL, own.number
	return change{
		writes: append(b.put(s.lease, s.now), b.touch(r.Key, nil, atLeast("token", own.token))),
		done: func(c *committed, sent time.Duration) {
			*l = b.leaseOf(r.Key, own)
			(*l).knows(c.updated(0), sent, r.TTL, len(s.lease.slots) == 1 && s.lease.pause == nil)
		},
	}
}

// take fills the lowest free slot of a document that was read.
func (b *backend) take(r backends.Request, s *snapshot, l **lease) (change, error) {
	d := s.lease
	n := d.free(s.now)
	old := d.slots[n]
	swept := b.sweep(d, s.now)
	if len(d.slots) >= maxSlots {
		return change{}, errCrowded
	}
	own := newSlot(r)
	own.number, own.acquired, own.takeover = n, s.now, old != nil && !old.released
	own.token = max(s.last+1, r.Token)
	if r.Token == 0 {
		// Above what the clock gave before, and below what it will give to whoever creates the document later.
		own.token = max(own.token, s.now.UnixMicro(), parseTime(d.updated).UnixMicro()+1)
	}
	count, marks := []transform{atLeast("token", own.token)}, []write(nil)
	if r.RunID == "" {
		own.attempt = max(0, s.key.starts) + 1
		count = append(count, add("starts", 1))
	} else {
		own.attempt = s.mark.attempts + 1
		marks = append(marks, b.nextStart(r, s.mark, s.now))
	}
	d.slots[n], d.beat = own, n
	key := b.touch(r.Key, nil, count...)
	if d.updated == "" {
		// Nothing else would tell that others have come and gone since the read, with tokens of their own.
		key.Current = version(s.key.updated)
	}
	writes := append(append(append(b.put(d, s.now), key), marks...), swept...)
	return change{writes: writes, done: func(c *committed, sent time.Duration) {
		*l = b.leaseOf(r.Key, own)
		(*l).knows(c.updated(0), sent, r.TTL, len(d.slots) == 1 && d.pause == nil)
	}}, nil
}

// nextStart counts one more start of a run id.
func (b *backend) nextStart(r backends.Request, m markDocument, now time.Time) write {
	w := b.firstStart(r, m.updated)
	w.Update.Fields["expire_at"] = when(now.Add(b.keep.DoneAge + slack))
	w.Update.Fields["attempts"] = num(int64(m.attempts) + 1)
	return w
}

// refuse records a refusal where the caller gives up, and returns it. Failing to record it changes nothing.
func (b *backend) refuse(ctx context.Context, r backends.Request, refusal error, now time.Time) error {
	if r.Last {
		ctx, cancel := context.WithTimeout(ctx, min(b.timeout, time.Second))
		defer cancel()
		_ = b.addRefusal(ctx, r.Refused(refusal, now), r.Owner)
	}
	return refusal
}
