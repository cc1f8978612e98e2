package zookeeper

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockrun/lockrun/backends"
)

// sequence is the number at the end of a sequential node's name, or -1.
func sequence(name string) int64 {
	n, err := strconv.ParseInt(name[max(0, len(name)-10):], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func bySequence(a, b string) int { return cmp.Compare(sequence(a), sequence(b)) }

// reader is a session that has caught up.
func (b *backend) reader(ctx context.Context) (*session, error) {
	s, err := b.session(ctx)
	if err == nil {
		err = s.barrier(ctx)
	}
	return s, err
}

// keys are all keys that the store knows, in byte order.
func (b *backend) keys(ctx context.Context, s *session) ([]string, error) {
	all, err := s.children(ctx, b.c.keysPath())
	if err != nil {
		return nil, err
	}
	if !all.found {
		return nil, errNotInitialised
	}
	var keys []string
	for _, name := range all.children {
		if key, ok := decode(name); ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

// views reads keys for those who only look. The time is asked for where something depends on it, since asking takes a write.
// Where all keys are listed, those of others are passed over: one odd node must not hide all the rest. The doctor tells.
func (b *backend) views(ctx context.Context, s *session, keys []string, named bool) ([]*view, error) {
	all := make([]*view, len(keys))
	err := parallel(len(keys), func(i int) (err error) {
		all[i], err = b.load(ctx, s, keys[i], query{waiters: true, timeless: true})
		if !named && (isKeyFault(err) || err == nil && !all[i].found) {
			all[i] = nil // not ours, or gone since it was listed
			return nil
		} else if err == nil && all[i].timely() {
			all[i].now, err = b.nowOrHost(ctx, s)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(v *view) bool { return v == nil })
	if named && !slices.ContainsFunc(all, func(v *view) bool { return v.found }) {
		_, err = b.keys(ctx, s) // none of them is known: is there a store at all?
	}
	return all, err
}

// timely tells whether what is shown of a key depends on the time.
func (v *view) timely() bool {
	return v.s.Pause != nil && v.s.Pause.Until != 0 ||
		v.s.find(func(l *slot) bool { return l.Hold > v.s.At || !l.Recorded && !v.live(l) }) != nil
}

// Status tells the state of the keys. It says nothing of when leases were renewed and will expire: a session's end is known
// to the leader alone.
func (b *backend) Status(ctx context.Context, keys ...string) ([]backends.State, error) {
	s, err := b.reader(ctx)
	if err != nil {
		return nil, b.fail(ctx, "status", err)
	}
	named := len(keys) > 0
	if !named {
		keys, err = b.keys(ctx, s)
	}
	var all []backends.State
	if err == nil {
		var views []*view
		views, err = b.views(ctx, s, keys, named)
		for _, v := range views {
			all = append(all, v.states()...)
		}
	}
	if err != nil {
		return nil, b.fail(ctx, "status", err)
	}
	return all, nil
}

// states is one State for each taken slot, or one for a key that is free or paused.
func (v *view) states() []backends.State {
	var all []backends.State
	for i := range v.s.Slots {
		if l := &v.s.Slots[i]; v.taken(l) {
			s := v.slotState(l)
			s.Waiters = pointer(v.waiters)
			if v.paused() {
				s.AlsoPaused(v.pausedError())
			}
			all = append(all, s)
		}
	}
	if all != nil {
		return all
	}
	s := backends.State{Key: v.key, State: backends.Free, Token: v.s.Token, Waiters: pointer(v.waiters)}
	if v.paused() {
		p := v.s.Pause
		s.State, s.Holder, s.Reason, s.AcquiredAt = backends.Paused, p.By, p.Reason, pointer(instant(p.At))
		if p.Until != 0 {
			s.ExpiresAt, s.ExpiresIn = pointer(instant(p.Until)), pointer(length(p.Until-v.at()))
		}
	}
	return []backends.State{s}
}

func (v *view) slotState(l *slot) backends.State {
	s := backends.State{Key: v.key, State: backends.Held, Holder: l.Holder, Host: l.Host, PID: l.PID, Token: l.Token,
		Slot: pointer(l.Slot), RunID: l.RunID, Attempt: l.Attempt, AcquiredAt: pointer(instant(l.At))}
	if !v.live(l) {
		s.Reason = backends.MinimumHold
		s.ExpiresAt, s.ExpiresIn = pointer(instant(l.Hold)), pointer(length(l.Hold-v.at()))
	}
	return s
}

// History adds leases that ran out and that nobody took since, so that a crash shows without another run.
func (b *backend) History(ctx context.Context, q backends.Query) ([]backends.Record, error) {
	all, err := b.history(ctx, q)
	if err != nil {
		return nil, b.fail(ctx, "history", err)
	}
	slices.SortStableFunc(all, func(x, y backends.Record) int {
		return cmp.Or(y.EndedAt.Compare(x.EndedAt), cmp.Compare(y.Token, x.Token))
	})
	return q.Select(all), nil
}

func (b *backend) history(ctx context.Context, q backends.Query) ([]backends.Record, error) {
	s, err := b.reader(ctx)
	if err != nil {
		return nil, err
	}
	keys := []string{q.Key}
	if q.Key == "" {
		if keys, err = b.keys(ctx, s); err != nil {
			return nil, err
		}
	}
	views, err := b.views(ctx, s, keys, q.Key != "")
	if err != nil {
		return nil, err
	}
	var all []backends.Record
	for _, v := range views {
		records, err := b.recordsOf(ctx, s, v, q)
		if err != nil {
			return nil, err
		}
		all = append(all, records...)
	}
	return all, nil
}

// recordsOf reads the records of a key that q asks for, and perhaps more.
func (b *backend) recordsOf(ctx context.Context, s *session, v *view, q backends.Query) ([]backends.Record, error) {
	if !v.found {
		return nil, nil
	}
	var all []backends.Record
	for i := range v.s.Slots {
		if l := &v.s.Slots[i]; !l.Recorded && !v.live(l) {
			all = append(all, v.crashed(l, b.Name()))
		}
	}
	var runs []string
	for n := v.s.Next - 1; n >= v.s.First; n-- {
		runs = append(runs, runPath(v.path, n))
	}
	dir := v.path + "/" + refusedName
	refused, err := s.children(ctx, dir)
	if err != nil && !errors.Is(err, zk.ErrNoAuth) {
		return nil, err
	}
	slices.SortFunc(refused.children, func(x, y string) int { return bySequence(y, x) })
	for i, name := range refused.children {
		refused.children[i] = dir + "/" + name
	}
	for _, paths := range [][]string{runs, refused.children} {
		some, err := b.readRecords(ctx, s, v.key, paths, q)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// readAtOnce is how many records are read before it is seen whether more are wanted.
const readAtOnce = 128

// readRecords reads records, the newest first, until there are as many as are wanted, or the rest is too old.
func (b *backend) readRecords(ctx context.Context, s *session, key string, paths []string, q backends.Query) ([]backends.Record, error) {
	var all []backends.Record
	for some := range slices.Chunk(paths, readAtOnce) {
		records := make([]*backends.Record, len(some))
		older := make([]bool, len(some))
		err := parallel(len(some), func(i int) error {
			n, err := s.get(ctx, some[i])
			switch {
			case errors.Is(err, zk.ErrNoAuth):
				return nil // a host with other credentials wrote it; the doctor tells
			case err != nil || !n.found: // not found: it was taken away meanwhile
				return err
			}
			r := &backends.Record{}
			if json.Unmarshal(n.data, r) == nil && r.Key == key {
				records[i] = r
			}
			older[i] = time.UnixMilli(n.stat.Mtime).Before(q.Since.Add(-time.Minute)) // a minute for clocks that were set
			return nil
		})
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			if r != nil && q.Matches(*r) {
				all = append(all, *r)
			}
		}
		if q.Limit > 0 && len(all) >= q.Limit || older[len(some)-1] {
			break
		}
	}
	return all, nil
}
