package firestore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// TestForeignDocuments: another program's documents beside the lease stop a run and stay as they are, and listings pass
// them over.
func TestForeignDocuments(t *testing.T) {
	ctx := context.Background()
	other := backends.Record{Key: "k", Outcome: backends.Failed}
	for name, c := range map[string]struct {
		where func(n names) string
		what  fields
	}{
		"another's key":       {func(n names) string { return n.key("k") }, fields{"token": str("mine"), "key": str("other")}},
		"another's, our key":  {func(n names) string { return n.key("k") }, fields{"token": str("mine"), "key": str("k")}},
		"a layout from later": {func(n names) string { return n.key("k") }, fields{"layout": num(layout + 1), "key": str("k")}},
		"another's mark":      {func(n names) string { return n.mark("k", "r1") }, fields{"name": str("hello")}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			at := c.where(s.b.names)
			if _, err := s.b.commit(ctx, []write{{Update: &document{Name: at, Fields: c.what}}}); err != nil {
				t.Fatal(err)
			}
			before := s.contents(at)
			r := request("k")
			r.RunID = "r1"
			_, err := s.b.Acquire(ctx, r)
			unknown(t, err, true, "not lockrun's", "-keys/k")
			if at == s.b.names.key("k") {
				unknown(t, s.b.Pause(ctx, "k", backends.Pause{By: "me"}), true, "not lockrun's")
				unknown(t, s.b.Record(ctx, other), true, "not lockrun's")
			} else {
				unknown(t, s.b.Wait(within(t, patience), r), true, "not lockrun's")
			}
			if after := s.contents(at); after != before {
				t.Errorf("the document changed from\n%s\nto\n%s", before, after)
			}
			if d := s.dump("k"); d != "null" {
				t.Errorf("a lease stays behind: %s", d)
			}
			acquire(t, s.b, request("mine"))
			if all, err := s.b.Status(ctx); err != nil || len(all) != 1 || all[0].Key != "mine" {
				t.Errorf("status %+v, %v", all, err)
			}
		})
	}
}

// TestForeignAfterTheGrant: what another program puts there while a run holds the key is not written to by its release.
func TestForeignAfterTheGrant(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	l := acquire(t, s.b, request("k"))
	at := s.b.names.key("k")
	if _, err := s.b.commit(ctx, []write{{Update: &document{Name: at, Fields: fields{"title": str("not ours")}}}}); err != nil {
		t.Fatal(err)
	}
	before := s.contents(at)
	unknown(t, l.Release(ctx, backends.End{Outcome: backends.Succeeded}), true, "not lockrun's")
	if after := s.contents(at); after != before {
		t.Errorf("the document changed from\n%s\nto\n%s", before, after)
	}
}

// TestLateAcquire: what a server that stood still has not done yet when the acquire is given up takes nothing afterwards.
func TestLateAcquire(t *testing.T) {
	m := newMeddler(t)
	for _, verb := range []string{"batchGet", "commit"} {
		for _, used := range []bool{false, true} {
			b := opened(t, m.through(t), backends.Options{})
			if used {
				release(t, acquire(t, b, request("k")))
			}
			p := plan{verb: verb, n: 1, held: make(chan struct{}), done: make(chan struct{})}
			m.plan(p)
			r := request("k")
			_, err := b.Acquire(within(t, time.Second), r)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("Acquire = %v", err)
			}
			if verb == "commit" { // else nothing was asked for that could take the key
				if err := b.Abandon(within(t, patience), r); err != nil {
					t.Fatalf("Abandon: %v", err)
				}
			}
			close(p.held)
			<-p.done
			if st := stateOf(t, b, "k"); st.State != backends.Free {
				t.Errorf("%s was late, and took the key: %+v", verb, st)
			}
			if g := acquire(t, b, request("k")).Grant(); g.Attempt != 1 || g.Takeover {
				t.Errorf("%s was late: granted %+v", verb, g)
			}
		}
	}
}
