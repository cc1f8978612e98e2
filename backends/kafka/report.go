package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/ledger"
	"github.com/lockrun/lockrun/backends/kafka/wire"
)

// Status reads only. What time is left is told by the brokers' clock where this process has appended something, else by
// this host's, since Kafka tells a reader no time.
func (b *backend) Status(ctx context.Context, keys ...string) ([]backends.State, error) {
	if err := b.agree(ctx, false); err != nil {
		return nil, b.fail("status", err)
	}
	if len(keys) == 0 {
		all, err := b.everyKey(ctx)
		return all, b.fail("status", err)
	}
	fresh := map[*log]int32{}
	var all []backends.State
	for _, key := range keys {
		l := b.log(key)
		err := l.with(ctx, func(book *ledger.Book) error {
			epoch, ok := fresh[l]
			if !ok {
				var err error
				if epoch, err = l.epoch(book); err != nil {
					return err
				}
				fresh[l] = epoch
			}
			s, err := book.State(key)
			if err == nil {
				now := l.clock.now()
				all = append(all, states(key, s.AsOf(now, epoch), now)...)
			}
			return err
		})
		if err != nil {
			return nil, b.fail("status", err)
		}
	}
	return all, nil
}

// everyKey are the states of all keys in all partitions.
func (b *backend) everyKey(ctx context.Context) ([]backends.State, error) {
	byKey := map[string][]backends.State{}
	for _, l := range b.logs {
		err := l.with(ctx, func(book *ledger.Book) error {
			epoch, err := l.epoch(book)
			if err != nil {
				return err
			}
			found, err := book.Keys()
			if err != nil {
				return err
			}
			for _, key := range found {
				s, err := book.State(key)
				if err != nil {
					return err
				}
				now := l.clock.now()
				byKey[key] = states(key, s.AsOf(now, epoch), now)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	var all []backends.State
	for _, key := range sorted(byKey) {
		all = append(all, byKey[key]...)
	}
	return all, nil
}

// epoch reads what is new, and tells under which leader.
func (l *log) epoch(book *ledger.Book) (int32, error) {
	epoch, err := l.b.client.Epoch(l.ctx, l.id)
	if err == nil {
		err = l.catchUp(book)
	}
	return epoch, err
}

// states is one State for each taken slot, or one for a key that is free or paused.
func states(key string, s *ledger.State, now int64) []backends.State {
	var all []backends.State
	paused := s.Pause.Holds(now)
	for i := range s.Leases {
		if l := &s.Leases[i]; l.Taken(now) {
			st := leaseState(key, l, now)
			if paused {
				st.AlsoPaused(s.Pause.Held(key, now))
			}
			all = append(all, st)
		}
	}
	if all != nil {
		return all
	}
	st := backends.State{Key: key, State: backends.Free, Token: s.Token}
	if paused {
		p := s.Pause
		st.State, st.Holder, st.Reason = backends.Paused, p.By, p.Reason
		st.AcquiredAt = instant(p.At)
		if p.Until != 0 {
			st.ExpiresAt, st.ExpiresIn = instant(p.Until), length(p.Until-now)
		}
	}
	return []backends.State{st}
}

func leaseState(key string, l *ledger.Lease, now int64) backends.State {
	slot := l.Slot
	st := backends.State{Key: key, State: backends.Held, Holder: l.Holder, Host: l.Host, PID: l.PID, Token: l.Token, Slot: &slot,
		RunID: l.RunID, Attempt: l.Attempt, AcquiredAt: instant(l.At), RenewedAt: instant(l.Renewed),
		ExpiresAt: instant(l.Until(now)), ExpiresIn: length(l.Until(now) - now)}
	if !l.Live(now) {
		st.Reason = backends.MinimumHold
	}
	return st
}

func instant(ms int64) *time.Time {
	t := ledger.Instant(ms)
	return &t
}

func length(ms int64) *time.Duration {
	d := ledger.Length(ms)
	return &d
}

// History replays the topic from its beginning: every record of it that tells of a run.
func (b *backend) History(ctx context.Context, q backends.Query) ([]backends.Record, error) {
	if err := b.agree(ctx, false); err != nil {
		return nil, b.fail("history", err)
	}
	var all []backends.Record
	logs := b.logs
	if q.Key != "" {
		logs = []*log{b.log(q.Key)}
	}
	for _, l := range logs {
		found, err := l.history(ctx, q)
		if err != nil {
			return nil, b.fail("history", err)
		}
		all = append(all, found...)
	}
	if len(logs) > 1 {
		sortNewest(all)
	}
	return q.Select(all), nil
}

func (l *log) history(ctx context.Context, q backends.Query) ([]backends.Record, error) {
	t, err := l.tellFrom(ctx, q)
	if err != nil {
		return nil, err
	}
	for {
		found, err := t.next(ctx, 0)
		if err != nil {
			return nil, err
		}
		if t.at >= found.HighWater {
			break
		}
	}
	epoch, err := l.b.client.Epoch(ctx, l.id)
	if err != nil {
		return nil, err
	}
	return t.journal.Records(l.guess(ctx, t.seen), epoch, l.b.c.keep), ctx.Err()
}

// telling reads a partition from its beginning and makes run records of it.
type telling struct {
	l       *log
	key     string // only of this one; "" for all
	at      int64  // the offset to go on with
	seen    int64  // the latest time of a record
	journal *ledger.Journal
	tell    func([]backends.Record) error // may be nil
}

func (l *log) tellFrom(ctx context.Context, q backends.Query) (*telling, error) {
	start, _, err := l.b.client.Offsets(ctx, l.id)
	if err != nil {
		return nil, err
	}
	return &telling{l: l, key: q.Key, at: start, journal: ledger.NewJournal(l.b.c.name)}, nil
}

// historyChunk is how much is read at once of a log that is read from its beginning.
const historyChunk = 4 << 20

// next reads a chunk, waiting for one where there is none. Where the log's beginning has been cut away meanwhile it goes on
// with what is left.
func (t *telling) next(ctx context.Context, wait time.Duration) (wire.Fetched, error) {
	found, err := t.l.b.client.Fetch(ctx, t.l.id, t.at, wait, historyChunk)
	if errors.Is(err, wire.OffsetOutOfRange) {
		start, end, err2 := t.l.b.client.Offsets(ctx, t.l.id)
		if err2 == nil && start > t.at {
			t.at = start
			return wire.Fetched{HighWater: max(end, start+1)}, nil
		}
		return found, errors.Join(err, err2)
	}
	if err != nil {
		return found, err
	}
	for _, r := range found.Records {
		if r.Appended {
			t.seen = max(t.seen, r.Time.UnixMilli())
		}
		if t.key != "" && !ledger.HasKey(r.Key, t.key) {
			continue
		}
		line, err := ledger.Read(ledgerRecord(r))
		if err != nil {
			return found, fmt.Errorf("partition %d: %w", t.l.id, err)
		}
		if new := t.journal.Add(line); t.tell != nil && len(new) > 0 {
			if err := t.tell(new); err != nil {
				return found, err
			}
		}
	}
	t.at = found.Next
	return found, nil
}

// Walk reads the topic once, where the histories of all keys would read it once for each key. See backends.Walker.
func (b *backend) Walk(ctx context.Context, q backends.Query, f func(r *backends.Record) error) error {
	q.Limit = 0
	all, err := b.History(ctx, q)
	if err != nil {
		return err
	}
	for i := range all {
		if err := f(&all[i]); err != nil {
			return err
		}
	}
	return nil
}
