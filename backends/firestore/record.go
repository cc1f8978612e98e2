package firestore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// record is that of a slot's run, without its end.
func (s *slot) record(key string) backends.Record {
	return backends.Record{Key: key, RunID: s.run, Attempt: s.attempt, Holder: s.holder, Host: s.host, PID: s.pid,
		Token: s.token, Slot: &s.number, StartedAt: s.acquired, Waited: s.waited}
}

// crashed is the record of a run whose lease ran out without a release.
func (s *slot) crashed(key string, now time.Time) backends.Record {
	r := s.record(key)
	r.Outcome, r.EndedAt = backends.Crashed, s.expires()
	if now.Before(r.EndedAt) {
		r.EndedAt = now
	}
	return r
}

// slack is how much longer than asked for a TTL policy keeps what lockrun removes itself.
const slack = 24 * time.Hour

// encode makes a document's fields of a record. known is a time of the server's that is near; zero where there is none.
// A field that says when Firestore may delete the document is left out then: it must not come from this host's clock.
func (b *backend) encode(r backends.Record, known time.Time) fields {
	f := fields{"key": str(r.Key), "outcome": str(string(r.Outcome))}
	f.setStr("run_id", r.RunID)
	f.setNum("attempt", int64(r.Attempt))
	f.setStr("holder", r.Holder)
	f.setStr("host", r.Host)
	f.setNum("pid", int64(r.PID))
	f.setNum("token", r.Token)
	f.setStr("reason", r.Reason)
	f.setTime("started", r.StartedAt)
	f.setTime("ended", r.EndedAt)
	f.setLength("waited_us", r.Waited)
	if r.Slot != nil {
		f["slot"] = num(int64(*r.Slot))
	}
	if r.ExitCode != nil {
		f["exit_code"] = num(int64(*r.ExitCode))
	}
	if r.Duration != nil {
		f["duration_us"] = num(micros(*r.Duration))
	}
	if known.IsZero() {
		known = r.StartedAt // a run's start is the server's time as well
	}
	f["expire_at"] = when(known.Add(b.keep.Age + slack))
	return f
}

// parseRecord reads what encode made.
func (b *backend) parseRecord(key string, d *document) backends.Record {
	f := d.Fields
	r := backends.Record{Key: key, RunID: f.str("run_id"), Attempt: int(f.num("attempt")), Holder: f.str("holder"), Host: f.str("host"),
		PID: int(f.num("pid")), Token: f.num("token"), Outcome: backends.Outcome(f.str("outcome")), Reason: f.str("reason"),
		StartedAt: f.time("started"), EndedAt: f.time("ended"), Waited: f.length("waited_us"), Backend: b.name}
	if f.has("slot") {
		n := int(f.num("slot"))
		r.Slot = &n
	}
	if f.has("exit_code") {
		n := int(f.num("exit_code"))
		r.ExitCode = &n
	}
	if f.has("duration_us") {
		d := f.length("duration_us")
		r.Duration = &d
	}
	// The end is told in milliseconds where only the server could say when it was.
	if r.EndedAt.Before(r.StartedAt) {
		r.EndedAt = r.StartedAt
	}
	return r
}

func outcomeOf(d *document) backends.Outcome { return backends.Outcome(d.Fields.str("outcome")) }

// newRecord writes a run's record that must not be there yet. A record without an end gets the server's time of the commit.
func (b *backend) newRecord(r backends.Record, known time.Time) write {
	w := b.putRecord(r, known)
	w.Current = version("")
	return w
}

// putRecord writes a run's record in place of the one that may be there.
func (b *backend) putRecord(r backends.Record, known time.Time) write {
	w := write{Update: &document{Name: b.names.record(r.Key, r.Token), Fields: b.encode(r, known)}}
	if r.EndedAt.IsZero() {
		w.Transforms = []transform{stamp("ended")}
	}
	return w
}

// Record adds what no release tells.
func (b *backend) Record(ctx context.Context, r backends.Record) error {
	if err := backends.CheckKey(r.Key); err != nil {
		return err
	}
	ctx, cancel := b.bound(ctx)
	defer cancel()
	return b.fail(ctx, "record", b.record(ctx, r))
}

func (b *backend) record(ctx context.Context, r backends.Record) error {
	if r.Token == 0 {
		s, err := b.read(ctx, r.Key, "", 0)
		if err != nil {
			return err
		}
		now := s.now
		if r.StartedAt.IsZero() {
			r.StartedAt = now
		}
		if r.EndedAt.IsZero() {
			r.EndedAt = now
		}
		if r.Outcome.Refusal() {
			return b.addRefusal(ctx, r, backends.NewOwner(), b.touch(r.Key, nil))
		}
		return b.addLoose(ctx, b.names.runs(), r, backends.NewOwner(), b.touch(r.Key, nil))
	}
	return b.change(ctx, r.Key, "", r.Token, func(s *snapshot) (change, error) {
		return change{writes: b.complete(s, r)}, nil
	})
}

// complete puts a record in the place of, or beside, what the store has for its token.
func (b *backend) complete(s *snapshot, r backends.Record) []write {
	if r.StartedAt.IsZero() {
		r.StartedAt = s.now
	}
	if r.EndedAt.IsZero() {
		r.EndedAt = s.now
	}
	writes := []write{b.touch(r.Key, nil)}
	own := s.lease.byToken(r.Token)
	switch {
	case s.record != nil:
		old := b.parseRecord(r.Key, s.record)
		w := b.putRecord(backends.Complete(old, r), s.now)
		w.Current = version(s.record.Updated)
		return append(writes, w)
	case own != nil && !own.recorded:
		r = backends.Complete(own.crashed(r.Key, s.now), r)
		own.recorded = true
		writes = append(b.put(s.lease, s.now), writes...)
	}
	return append(writes, b.newRecord(r, s.now))
}

// addRefusal writes a refusal, and now and then cleans up. Refusals are many, and of one moment; so each is a document of
// its own, and nothing that they share is written.
func (b *backend) addRefusal(ctx context.Context, r backends.Record, owner string, more ...write) error {
	if err := b.addLoose(ctx, b.names.skips(), r, owner, more...); err != nil {
		return err
	}
	b.tidySkips(ctx, r.Key, r.EndedAt)
	return nil
}

// addLoose writes a record that has no token. Its name is the same when it is sent again.
func (b *backend) addLoose(ctx context.Context, collection string, r backends.Record, owner string, more ...write) error {
	r.Reason = strings.ToValidUTF8(r.Reason, "?")
	name := b.names.loose(collection, r.Key, fmt.Sprintf("%016d", max(0, r.EndedAt.UnixMicro())), owner)
	writes := append([]write{{Update: &document{Name: name, Fields: b.encode(r, r.EndedAt)}, Current: version("")}}, more...)
	_, err := b.commit(ctx, writes)
	if isConflict(err) {
		return nil // it is there already, and so was sent before
	}
	return err
}
