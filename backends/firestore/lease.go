package firestore

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/boottime"
)

// lease is a holder's view of its slot.
type lease struct {
	b                 *backend
	key, owner, runID string
	holder, host      string
	pid               int
	hold, waited      time.Duration
	grant             backends.Grant
	fresh             bool // it is the key's first lease

	mu    sync.Mutex
	known known
}

// known is what a holder knows of its document without reading it.
type known struct {
	updated string        // the version that this lease wrote last
	key     string        // the version of the key's document that belongs to it
	until   time.Duration // on the boot clock: the lease does not run out before that
	alone   bool          // in that version there is nothing but this slot
}

func (b *backend) lease(key, owner, runID string, g backends.Grant) *lease {
	return &lease{b: b, key: key, owner: owner, runID: runID, grant: g}
}

// leaseOf is the view of the one who holds own.
func (b *backend) leaseOf(key string, own *slot) *lease {
	l := b.lease(key, own.owner, own.run, backends.Grant{Token: own.token, Slot: own.number, Attempt: own.attempt,
		AcquiredAt: own.acquired, TTL: own.ttl, Drift: drift(own.ttl), Takeover: own.takeover})
	return l.describe(own)
}

// describe keeps what the run's record needs.
func (l *lease) describe(s *slot) *lease {
	l.holder, l.host, l.pid, l.hold, l.waited = s.holder, s.host, s.pid, s.hold, s.waited
	return l
}

// knows takes in what a write of ours has made of the document, or a read has shown. until counts from when that was asked
// for, which is before the moment from which the lease has its length.
func (l *lease) knows(k known) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known.updated == "" || parseTime(k.updated).After(parseTime(l.known.updated)) {
		l.known = k
	}
}

// current is what is known, and whether that is enough to act without a read.
func (l *lease) current() (known, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known, l.known.updated != "" && boottime.Now() < l.known.until
}

// stale says that the document is another by now.
func (l *lease) stale(k known) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == k {
		l.known = known{}
	}
}

func (l *lease) Grant() backends.Grant { return l.grant }

// Renew is one write as long as nobody else changes the document; else a read and a write.
func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	ctx, cancel := l.b.bound(ctx)
	defer cancel()
	return l.b.fail(ctx, "renew", l.renew(ctx, ttl))
}

func (l *lease) renew(ctx context.Context, ttl time.Duration) error {
	if k, ok := l.current(); ok {
		path := "slots.s" + strconv.Itoa(l.grant.Slot)
		slots := fields{path[len("slots."):]: sub(fields{"ttl_us": num(micros(ttl))})}
		sent := boottime.Now()
		c, err := l.b.commit(ctx, []write{{
			Update:  &document{Name: l.b.names.lease(l.key), Fields: fields{"nonce": str(nonce()), "slots": sub(slots)}},
			Mask:    &mask{[]string{"nonce", path + ".ttl_us"}},
			Current: version(k.updated),
		}})
		if err == nil {
			k.updated, k.until = c.updated(0), sent+ttl
			l.knows(k)
			return nil
		}
		if !isConflict(err) {
			return err
		}
		l.stale(k)
	}
	return l.b.change(ctx, l.key, "", 0, func(s *snapshot) (change, error) {
		own := l.mine(s)
		if own == nil {
			return change{}, backends.ErrLost
		}
		own.ttl, s.lease.beat = ttl, own.number
		return change{writes: l.b.put(s.lease, s.now), done: func(c *committed, sent time.Duration) {
			if len(s.lease.slots) == 1 { // where others beat as well, the next beat would find another version anyway
				l.knows(known{updated: c.updated(0), key: s.key.updated, until: sent + ttl, alone: s.lease.alone()})
			}
		}}, nil
	})
}

// Release is one commit as long as nobody else has changed the document; else a read and a commit.
func (l *lease) Release(ctx context.Context, end backends.End) error {
	ctx, cancel := l.b.bound(ctx)
	defer cancel()
	return l.b.fail(ctx, "release", l.release(ctx, end))
}

func (l *lease) release(ctx context.Context, end backends.End) error {
	if k, ok := l.current(); ok && k.alone && (l.hold == 0 || end.Outcome == backends.NotStarted) {
		writes := append([]write{{Delete: l.b.names.lease(l.key), Current: version(k.updated)}}, l.ending(end, l.grant.Token)...)
		writes[1].Current = version(k.key)
		writes = append(writes, l.b.newRecord(l.record(end), time.Time{}))
		c, err := l.b.commit(ctx, writes)
		if err == nil {
			if !l.fresh {
				l.b.tidyRuns(ctx, l.key, c.at(), c.number(1, 0))
			}
			return nil
		}
		if !isConflict(err) {
			return err
		}
		l.stale(k)
	}
	return l.b.change(ctx, l.key, "", l.grant.Token, func(s *snapshot) (change, error) {
		own := l.mine(s)
		if own == nil {
			if s.record != nil && outcomeOf(s.record).Released() {
				return change{}, nil // an earlier request was carried out
			}
			return change{}, backends.ErrLost
		}
		writes := append(l.giveBack(s, own, end), l.ending(end, s.last)...)
		return change{writes: writes, done: func(c *committed, _ time.Duration) {
			if !l.fresh {
				l.b.tidyRuns(ctx, l.key, c.at(), max(0, s.key.cleaned.UnixMicro()))
			}
		}}, nil
	})
}

// ending is what a release changes beside lease and record. The write of the key comes first, and its first transform
// tells when the records were cleaned up.
func (l *lease) ending(end backends.End, last int64) []write {
	more := fields{}
	ts := []transform{atLeast("cleaned_us", 0), atLeast("token", last)}
	if l.fresh { // there is nothing to clean up
		ts[0] = atLeast("cleaned_us", l.grant.AcquiredAt.UnixMicro())
	}
	var marks []write
	switch {
	case end.Outcome == backends.Succeeded:
		more["starts"] = num(0)
		if l.runID != "" {
			marks = append(marks, l.b.markDone(l.key, l.runID, l.grant.AcquiredAt))
		}
	case end.Outcome == backends.NotStarted:
		var onKey []transform
		onKey, marks = l.b.uncount(l.key, l.runID)
		ts = append(ts, onKey...)
	}
	return append([]write{l.b.touch(l.key, more, ts...)}, marks...)
}

// markDone says that a run id, started at a moment of the server's clock, has succeeded. The write's own time is when.
func (b *backend) markDone(key, runID string, started time.Time) write {
	f := fields{"key": str(key), "run_id": str(runID), "done": flag(true), "expire_at": when(started.Add(b.keep.DoneAge + slack))}
	return write{Update: &document{Name: b.names.mark(key, runID), Fields: f}, Mask: &mask{[]string{"key", "run_id", "done", "expire_at"}},
		Transforms: []transform{stamp("at")}}
}

// giveBack takes the slot out of the document, or leaves it to its minimum hold, and writes the record.
func (l *lease) giveBack(s *snapshot, own *slot, end backends.End) []write {
	l.describe(own)
	recorded := own.recorded
	if own.hold > 0 && s.now.Before(own.held()) && end.Outcome != backends.NotStarted {
		own.released, own.recorded = true, true
	} else {
		delete(s.lease.slots, own.number)
	}
	writes := l.b.put(s.lease, s.now)
	if recorded && s.record != nil { // as lost, while it still lived
		r := l.record(end)
		r.EndedAt = s.now
		done := backends.Complete(l.b.parseRecord(l.key, s.record), r)
		return append(writes, l.b.putRecord(done, s.now))
	}
	return append(writes, l.b.newRecord(l.record(end), s.now))
}

// record is the record of the run as it ended; the server tells when.
func (l *lease) record(end backends.End) backends.Record {
	return backends.Record{Key: l.key, RunID: l.runID, Attempt: l.grant.Attempt, Holder: l.holder, Host: l.host, PID: l.pid,
		Token: l.grant.Token, Slot: &l.grant.Slot, StartedAt: l.grant.AcquiredAt, Waited: l.waited,
		Outcome: end.Outcome, Reason: end.Reason, ExitCode: end.ExitCode, Duration: &end.Duration}
}
