package kafka

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/ledger"
)

// A process waits for the broker three times for its lease, and once to give it back: the topic with its settings and the
// log's end, its last records, the LOCK; the RELEASE. What else it asks for comes along, and nobody waits for it. Who takes one
// lease after the other waits once for each step.
func TestRoundTrips(t *testing.T) {
	s, p := proxied(t)
	s.take(s.behind, request("other", 9)) // the first lease of a topic costs one more, to look who has said the number of partitions
	before, dialled := p.Requests(), p.Accepted()
	trips := func(what string, want int) {
		t.Helper()
		if n := p.Requests() - before; n != want {
			t.Errorf("%s: %d round trips, want %d", what, n, want)
		}
		before = p.Requests()
	}
	b, other := s.open(backends.Options{Timeout: time.Minute}), s.open(backends.Options{Timeout: time.Minute})
	b.c.justNow, other.c.justNow = time.Hour, time.Hour // this machine may be slow
	l := s.take(b, request("k", 1))
	trips("the first acquire", 3)
	if n := p.Accepted() - dialled; n != 1 {
		t.Errorf("%d connections", n)
	}
	s.renewed(l)
	trips("a beat just after", 1)
	s.renewed(l)
	trips("a beat after one", 2)
	s.refused(other, request("k", 2))
	trips("a refusal", 3)
	s.again("release", func(ctx context.Context) error { return l.Release(ctx, backends.End{Outcome: backends.Failed}) })
	trips("a release after a beat", 2)
	l = s.take(b, request("k", 3))
	trips("an acquire by who knows the key", 2)
	s.again("release", func(ctx context.Context) error { return l.Release(ctx, backends.End{Outcome: backends.Failed}) })
	trips("a release just after", 1)
	s.take(b, request("k", 4))
	trips("the next acquire", 1)
}

func (s *store) renewed(l backends.Lease) {
	s.Helper()
	s.again("renew", func(ctx context.Context) error { return l.Renew(ctx, longLease) })
}

// Where nothing has come between, nobody reads back what they have appended. What they were told is what the log says all
// the same, also where the leader has changed between one operation and the next, or in the middle of one.
func TestAnswersThatWereNotReadAreWhatTheLogSays(t *testing.T) {
	s := newStore(t, 3)
	k := s.cluster
	k.InSync(s.topic, 0, 3)
	b := s.open(backends.Options{Timeout: time.Minute})
	b.c.justNow = time.Hour
	move := func() {
		leader := k.Leader(s.topic, 0)
		k.MoveLeader(s.topic, 0, k.Nodes[leader.ID()%3])
	}
	told := map[int64]backends.Grant{}
	for i := range 12 {
		r := request("k", i)
		r.Slots = 2
		r.RunID = fmt.Sprint("run ", i%2)
		if i%4 == 1 {
			move()
		}
		l := s.take(b, r)
		told[l.Grant().Token] = l.Grant()
		if i%4 == 2 {
			move()
		}
		if i%3 == 0 {
			s.renewed(l)
		}
		s.again("release", func(ctx context.Context) error { return l.Release(ctx, backends.End{Outcome: backends.Failed}) })
		if err := l.Release(t.Context(), backends.End{Outcome: backends.Failed}); err != nil {
			t.Errorf("the release again: %v", err)
		}
	}
	var st ledger.State
	ended := 0
	for _, r := range s.records() {
		line, err := ledger.Read(ledgerRecord(r))
		if err != nil {
			t.Fatal(err)
		}
		if line.Entry == nil {
			continue
		}
		switch res := st.Apply(line.Record, line.Entry); res.Did {
		case ledger.Granted:
			g, want := told[res.Lease.Token], res.Lease
			if g.Token == 0 || g.Slot != want.Slot || g.Attempt != want.Attempt || !g.AcquiredAt.Equal(ledger.Instant(want.At)) {
				t.Errorf("told %+v, and the log says %+v", g, want)
			}
			delete(told, res.Lease.Token)
		case ledger.Ended:
			ended++
		case ledger.Refused:
			t.Errorf("offset %d: %v", line.Offset, res.Err)
		}
	}
	if len(told) != 0 || ended != 12 {
		t.Errorf("the log has %d ends, and nothing of %+v", ended, told)
	}
}

// Somebody whose records come between is seen, and so is a lease that may have run out, or begun anew, as nobody can tell
// who has not read.
func TestWhatComesBetweenIsRead(t *testing.T) {
	s := newStore(t, 1)
	a, b := s.open(backends.Options{Timeout: time.Minute}), s.open(backends.Options{Timeout: time.Minute})
	a.c.justNow, b.c.justNow = time.Hour, time.Hour
	l := s.take(a, request("a", 1))
	m := s.take(b, request("b", 2)) // another key of the same partition
	var held *backends.HeldError
	if _, err := a.Acquire(t.Context(), request("b", 3)); !errors.As(err, &held) || held.Token != m.Grant().Token {
		t.Errorf("a asks for b's key: %v", err)
	}
	if _, err := b.Break(t.Context(), "a", 0, "somebody"); err != nil {
		t.Fatal(err)
	}
	if err := l.Renew(t.Context(), longLease); !errors.Is(err, backends.ErrLost) {
		t.Errorf("a beat after a break that has not been read: %v", err)
	}
	if err := l.Release(t.Context(), backends.End{Outcome: backends.Failed}); !errors.Is(err, backends.ErrLost) {
		t.Errorf("a release after that: %v", err)
	}
}

// What an append brought along is of no use where the connection has been lost meanwhile, and is missed by nobody.
func TestWhatWasReadAheadIsLost(t *testing.T) {
	s, p := proxied(t)
	b := s.open(backends.Options{Timeout: time.Minute})
	for i := range 3 {
		l := s.take(b, request("k", i))
		p.Reset()
		s.renewed(l)
		s.again("release", func(ctx context.Context) error { return l.Release(ctx, backends.End{Outcome: backends.Failed}) })
	}
}
