package firestore

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/boottime"
)

// change is what follows from a snapshot.
type change struct {
	writes []write                                // nil: nothing has to be written
	done   func(c *committed, sent time.Duration) // called once they are; sent is the boot clock's time of the request
}

// change reads a key's documents, has decide say what follows, and writes that on condition that they are still as they
// were read, the key's own one included; where they are not, it begins again. decide's error ends it and nothing is written.
//
// Where a reply was lost, the same commit is refused as somebody else's change would be, and what the next read shows
// tells: so decide has to recognise what it has done itself. The snapshot says where it may be that.
func (b *backend) change(ctx context.Context, key, runID string, token int64, decide func(*snapshot) (change, error)) error {
	doubtful := false
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		s, err := b.read(ctx, key, runID, token)
		if err != nil {
			return err
		}
		s.doubtful = doubtful
		sent := boottime.Now()
		ch, err := decide(s)
		if err != nil || ch.writes == nil {
			return err
		}
		c, err := b.commit(ctx, b.guarded(key, s, ch.writes))
		switch {
		case err == nil:
			if ch.done != nil {
				ch.done(c, sent)
			}
			return nil
		case !isConflict(err):
			return err
		}
		doubtful = doubtful || isRepeated(err)
		// At once at first: most often it was a beat or a release that came between.
		if pause > firstPause && !backends.Sleep(ctx, rand.N(pause)) {
			return errors.Join(&apiError{Code: 409, Status: "ABORTED", Message: "it was changed by others each time that it was read"}, ctx.Err())
		}
	}
}

// guarded writes the key's document only as it was read: others may have come and gone since, with tokens of their own, or
// another program may have put its own there.
func (b *backend) guarded(key string, s *snapshot, writes []write) []write {
	for i, w := range writes {
		if w.Update != nil && w.Update.Name == b.names.key(key) {
			writes[i].Current = version(s.key.updated)
		}
	}
	return writes
}

// mine is the live slot of a lease, or nil.
func (l *lease) mine(s *snapshot) *slot {
	own := s.lease.slots[l.grant.Slot]
	if own == nil || own.owner != l.owner || own.token != l.grant.Token || !own.live(s.now) {
		return nil
	}
	return own
}

// Abandon undoes an acquire that nobody learnt of, its start included; only the token stays used up. One that the network or
// the server still holds back is made void: its condition is that the key's document is as it was, so that gets another
// version.
func (b *backend) Abandon(ctx context.Context, r backends.Request) error {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	err := b.change(ctx, r.Key, r.RunID, 0, func(s *snapshot) (change, error) {
		own := s.lease.owned(r.Owner)
		switch {
		case own == nil && !b.doubted(r.Owner):
			return change{}, nil
		case own == nil:
			return change{writes: []write{b.touch(r.Key, fields{"nonce": str(nonce())})}}, nil
		}
		delete(s.lease.slots, own.number)
		counted, marks := b.uncount(r.Key, own.run)
		writes := append(b.put(s.lease, s.now), b.touch(r.Key, nil, append(counted, atLeast("token", s.last))...))
		return change{writes: append(writes, marks...)}, nil
	})
	return b.fail(ctx, "give back", err)
}

// doubt remembers that an acquire of owner was asked for and its fate is not known.
func (b *backend) doubt(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.doubts == nil {
		b.doubts = map[string]bool{}
	}
	b.doubts[owner] = true
}

func (b *backend) doubted(owner string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.doubts[owner]
}

// uncount takes one start back: of the key, or of the run id where there is one.
func (b *backend) uncount(key, runID string) (onKey []transform, marks []write) {
	if runID == "" {
		return []transform{add("starts", -1)}, nil
	}
	f := fields{"key": str(key), "run_id": str(runID)}
	return nil, []write{{Update: &document{Name: b.names.mark(key, runID), Fields: f}, Mask: &mask{[]string{"key", "run_id"}},
		Transforms: []transform{add("attempts", -1), stamp("at")}}}
}

// Attach reads who has the token.
func (b *backend) Attach(ctx context.Context, key string, token int64) (backends.Lease, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	sent := boottime.Now()
	s, err := b.read(ctx, key, "", 0)
	if err != nil {
		return nil, b.fail(ctx, "attach", err)
	}
	own := s.lease.byToken(token)
	switch {
	case own == nil || !own.live(s.now):
		return nil, backends.ErrLost
	case !own.loose:
		return nil, own.heldError(key, backends.NotLoose, own.until(s.now), s.now)
	}
	l := b.leaseOf(key, own)
	if s.lease.beaten == own.number { // else a beat has to write down what the last one left open
		l.knows(known{updated: s.lease.updated, key: s.key.updated, until: sent + own.expires().Sub(s.now), alone: s.lease.alone()})
	}
	return l, nil
}

// Break ends leases whoever holds them.
func (b *backend) Break(ctx context.Context, key string, token int64, by string) ([]backends.State, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	var broken []backends.State
	err := b.change(ctx, key, "", 0, func(s *snapshot) (change, error) {
		before := broken
		broken = nil
		var records []write
		for _, st := range s.states(key) {
			if st.State != backends.Held || token != 0 && st.Token != token || s.doubtful && !backends.HasToken(before, st.Token) {
				continue // the last case: who came after the lease that was broken, as an answer that was lost would have told
			}
			broken = append(broken, st)
			own := s.lease.slots[*st.Slot]
			if !own.recorded {
				r := own.record(key)
				r.Outcome, r.Reason, r.EndedAt = backends.Unlocked, by, s.now
				records = append(records, b.putRecord(r, s.now))
			}
			delete(s.lease.slots, own.number)
		}
		switch {
		case broken == nil && s.doubtful:
			broken = before
			return change{}, nil
		case broken == nil:
			return change{}, backends.ErrNotHeld
		}
		writes := append(b.put(s.lease, s.now), b.touch(key, nil, atLeast("token", s.last)))
		return change{writes: append(writes, records...)}, nil
	})
	if err != nil {
		return nil, b.fail(ctx, "unlock", err)
	}
	return broken, nil
}

// Pause sets or replaces a key's pause.
func (b *backend) Pause(ctx context.Context, key string, p backends.Pause) error {
	if err := backends.CheckKey(key); err != nil {
		return err
	}
	ctx, cancel := b.bound(ctx)
	defer cancel()
	err := b.change(ctx, key, "", 0, func(s *snapshot) (change, error) {
		s.lease.pause = &pause{by: p.By, reason: p.Reason, at: s.now}
		if p.For > 0 {
			s.lease.pause.until = s.now.Add(p.For)
		}
		return change{writes: append(b.put(s.lease, s.now), b.touch(key, nil))}, nil
	})
	return b.fail(ctx, "pause", err)
}

// Resume ends a pause.
func (b *backend) Resume(ctx context.Context, key string) error {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	err := b.change(ctx, key, "", 0, func(s *snapshot) (change, error) {
		switch active := s.lease.pause.active(s.now); {
		case !active && s.doubtful:
			return change{}, nil
		case !active:
			return change{}, backends.ErrNotHeld
		}
		s.lease.pause = nil
		return change{writes: append(b.put(s.lease, s.now), b.touch(key, nil, atLeast("token", s.last)))}, nil
	})
	return b.fail(ctx, "resume", err)
}
