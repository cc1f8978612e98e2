package firestore

import (
	"context"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// drift is what a holder has to take off for clocks that differ in rate.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Acquire takes two round trips: the read tells what is there, and the commit changes it on condition that it still is. A
// refusal takes the read alone. Creating the lease without a read would save one, but no condition of Firestore's can tell
// a key's document or a mark of ours from another program's, which must not be written to.
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
	var l *lease
	asked := false
	err := b.change(ctx, r.Key, r.RunID, 0, func(s *snapshot) (change, error) {
		if own := s.lease.owned(r.Owner); own != nil {
			return b.again(r, s, own, &l), nil
		}
		if s.mark.done {
			return change{}, b.refuse(ctx, r, &backends.DoneError{Key: r.Key, RunID: r.RunID, At: s.mark.at}, s.now)
		}
		if held := s.lease.refusal(r, s.now); held != nil {
			return change{}, b.refuse(ctx, r, held, s.now)
		}
		asked = true
		return b.take(r, s, &l)
	})
	if asked && err != nil && !backends.Positive(err) {
		b.doubt(r.Owner)
	}
	return l, err
}

func newSlot(r backends.Request) *slot {
	return &slot{owner: r.Owner, holder: r.Holder, host: r.Host, run: r.RunID, pid: r.PID, ttl: r.TTL, hold: r.HoldAtLeast,
		waited: r.Waited, loose: r.Loose}
}

// again recognises the lease that an earlier request of the same owner has taken, and counts its time anew.
func (b *backend) again(r backends.Request, s *snapshot, own *slot, l **lease) change {
	own.ttl, s.lease.beat = r.TTL, own.number
	return change{
		writes: append(b.put(s.lease, s.now), b.touch(r.Key, nil, atLeast("token", own.token))),
		done: func(c *committed, sent time.Duration) {
			*l = b.leaseOf(r.Key, own)
			(*l).knows(known{updated: c.updated(0), key: c.updated(1), until: sent + r.TTL, alone: s.lease.alone()})
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
	writes := append(append(append(b.put(d, s.now), b.touch(r.Key, nil, count...)), marks...), swept...)
	return change{writes: writes, done: func(c *committed, sent time.Duration) {
		*l = b.leaseOf(r.Key, own)
		(*l).fresh = s.last == 0
		(*l).knows(known{updated: c.updated(0), key: c.updated(1), until: sent + r.TTL, alone: d.alone()})
	}}, nil
}

// nextStart counts one more start of a run id.
func (b *backend) nextStart(r backends.Request, m markDocument, now time.Time) write {
	f := fields{"key": str(r.Key), "run_id": str(r.RunID), "attempts": num(int64(m.attempts) + 1),
		"expire_at": when(now.Add(b.keep.DoneAge + slack))}
	return write{Update: &document{Name: b.names.mark(r.Key, r.RunID), Fields: f}, Transforms: []transform{stamp("at")}, Current: version(m.updated)}
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
