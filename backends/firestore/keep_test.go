package firestore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// TestRecordsAreBounded: what is beyond the number to keep goes, at the latest a few batches later, and so do old marks.
func TestRecordsAreBounded(t *testing.T) {
	b := opened(t, freshURL(t), backends.Options{Keep: backends.Keep{Runs: 20, DoneAge: time.Millisecond, Age: time.Hour}})
	ctx := context.Background()
	count := func(collection string) int {
		t.Helper()
		n, err := b.count(ctx, b.names.key("k"), collection)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i := range 35 {
		r := request("k")
		r.RunID = fmt.Sprint("r", i)
		l := acquire(t, b, r)
		r = request("k")
		r.Last = true
		_, _ = b.Acquire(ctx, r)
		release(t, l)
	}
	eventually(t, "at most 20 runs, and marks and refusals no more than not yet cleaned", func() bool {
		runs, skips, marks := count(b.names.runs()), count(b.names.skips()), count(b.names.marks())
		if runs <= 20 && skips <= 21 && marks <= 2 {
			return true
		}
		l := acquire(t, b, request("k"))
		r := request("k")
		r.Last = true
		_, _ = b.Acquire(ctx, r)
		release(t, l)
		return false
	})
	h, err := b.History(ctx, backends.Query{Key: "k", Limit: 100})
	if err != nil || len(h) < 20 {
		t.Errorf("%d records, %v", len(h), err)
	}
}

// TestPages: a limit that counts outcomes reads on until it has enough.
func TestPages(t *testing.T) {
	b := opened(t, freshURL(t), backends.Options{})
	ctx := context.Background()
	snap, err := b.read(ctx, "k", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	const many = 3*pageSize + 7
	for from := 0; from < many; from += 100 {
		writes := []write{b.touch("k", nil)}
		for i := from; i < min(many, from+100); i++ {
			o := backends.Failed
			if i%200 == 0 {
				o = backends.Succeeded
			}
			end := snap.now.Add(time.Duration(i) * time.Millisecond)
			writes = append(writes, b.newRecord(backends.Record{Key: "k", Token: int64(i + 1), Outcome: o, StartedAt: end, EndedAt: end}, snap.now))
		}
		if _, err := b.commit(ctx, writes); err != nil {
			t.Fatal(err)
		}
	}
	q := backends.Query{Key: "k", Outcomes: []backends.Outcome{backends.Succeeded}, Limit: 3}
	h, err := b.History(ctx, q)
	if err != nil || len(h) != 3 || h[0].Token != 601 || h[2].Token != 201 {
		t.Errorf("history %+v, %v", h, err)
	}
	q.Limit = 0
	if h, err = b.History(ctx, q); err != nil || len(h) != 4 {
		t.Errorf("%d records, %v", len(h), err)
	}
}

// TestLeaseRunsOut by the server's clock, with nobody helping; its holder is told although nobody else has come.
func TestLeaseRunsOut(t *testing.T) {
	b := opened(t, freshURL(t), backends.Options{})
	ctx := context.Background()
	r := request("k")
	r.TTL, r.RunID = 300*time.Millisecond, "r1"
	l := acquire(t, b, r)
	eventually(t, "the lease being over", func() bool { return stateOf(t, b, "k").State == backends.Free })
	s := &store{t, "", b}
	before := s.dump("k")
	if err := l.Renew(ctx, time.Minute); !errors.Is(err, backends.ErrLost) {
		t.Errorf("Renew = %v", err)
	}
	if err := l.Release(ctx, backends.End{Outcome: backends.Succeeded}); !errors.Is(err, backends.ErrLost) {
		t.Errorf("Release = %v", err)
	}
	if after := s.dump("k"); after != before {
		t.Errorf("the store changed from\n%s\nto\n%s", before, after)
	}
	r.Owner, r.TTL = backends.NewOwner(), time.Minute
	if g := acquire(t, b, r).Grant(); !g.Takeover || g.Attempt != 2 || g.Token <= l.Grant().Token {
		t.Errorf("granted %+v after %+v", g, l.Grant())
	}
}

// TestTokensRiseThoughTheClockFalls: a last token that lies ahead of the server's clock, told from outside or left from
// before the clock was set back, is passed.
func TestTokensRiseThoughTheClockFalls(t *testing.T) {
	b := opened(t, freshURL(t), backends.Options{})
	ahead := time.Now().Add(24 * time.Hour).UnixMicro()
	if _, err := b.commit(context.Background(), []write{b.touch("k", fields{"token": num(ahead)})}); err != nil {
		t.Fatal(err)
	}
	for want := ahead + 1; want < ahead+4; want++ {
		l := acquire(t, b, request("k"))
		if l.Grant().Token != want {
			t.Fatalf("token %d, want %d", l.Grant().Token, want)
		}
		if s := stateOf(t, b, "k"); s.Token != want || s.State != backends.Held {
			t.Errorf("state %+v", s)
		}
		release(t, l)
	}
}

// TestSameNameAndPID is CNC-06: two containers look alike; the owner alone decides.
func TestSameNameAndPID(t *testing.T) {
	b := opened(t, freshURL(t), backends.Options{})
	acquire(t, b, request("k"))
	_, err := b.Acquire(context.Background(), request("k"))
	if held := (*backends.HeldError)(nil); !errors.As(err, &held) {
		t.Errorf("the second container got %v", err)
	}
}

// TestTooManyForOneDocument: it is refused before Firestore's limit on a document's size is met.
func TestTooManyForOneDocument(t *testing.T) {
	b := opened(t, freshURL(t), backends.Options{})
	s := &store{t, "", b}
	acquire(t, b, request("k"))
	long := make([]byte, 255)
	for i := range long {
		long[i] = 'x'
	}
	s.rewrite("k", func(l *leaseDocument) {
		for n := 1; n < maxSlots; n++ {
			c := *l.slots[0]
			c.number, c.owner, c.holder, c.host, c.run = n, backends.NewOwner(), string(long), string(long), string(long)
			l.slots[n] = &c
		}
	})
	r := request("k")
	r.Slots = 1 << 30
	_, err := b.Acquire(context.Background(), r)
	unknown(t, err, false, "too many")
	all, err := b.Break(context.Background(), "k", 0, "me")
	if err != nil || len(all) != maxSlots {
		t.Errorf("%d broken, %v", len(all), err)
	}
}
