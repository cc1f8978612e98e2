package kafka

import (
	"errors"
	"fmt"
	"testing"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/ledger"
)

// manyRuns is more run ids than a key's state has.
const manyRuns = 40

// finish is one whole run.
func finish(t *testing.T, b *backend, id string, o backends.Outcome) backends.Grant {
	t.Helper()
	r := request("k", 1)
	r.RunID = id
	l, err := b.Acquire(t.Context(), r)
	if err == nil {
		err = l.Release(t.Context(), backends.End{Outcome: o})
	}
	if err != nil {
		t.Fatalf("run %q: %v", id, err)
	}
	return l.Grant()
}

// What has become of a run id is found however many others there were since, by a process that knows nothing yet.
func TestARunIDOfLongAgo(t *testing.T) {
	s := newStore(t, 1)
	b := s.open(backends.Options{})
	finish(t, b, "done", backends.Succeeded)
	finish(t, b, "failed", backends.Failed)
	finish(t, b, "failed", backends.Failed)
	for i := range manyRuns {
		finish(t, b, fmt.Sprint("tick-", i), backends.Succeeded)
	}
	for _, st := range s.state("k").Runs {
		if st.ID == "done" || st.ID == "failed" {
			t.Fatalf("the state still has %+v", st)
		}
	}
	var done *backends.DoneError
	r := request("k", 1)
	r.RunID = "done"
	if _, err := s.open(backends.Options{}).Acquire(t.Context(), r); !errors.As(err, &done) || done.At.IsZero() {
		t.Errorf("Acquire of one that is done: %v", err)
	}
	if g := finish(t, s.open(backends.Options{}), "failed", backends.Succeeded); g.Attempt != 3 {
		t.Errorf("one that failed twice is granted as %+v", g)
	}
	if g := finish(t, s.open(backends.Options{}), "new", backends.Succeeded); g.Attempt != 1 {
		t.Errorf("one that is new is granted as %+v", g)
	}
}

// Between what a LOCK was written from and its append the same run succeeds, and so many others do that the state has
// forgotten it. Whoever asked is not granted a run that is done.
func TestAskedAgainWhereOutOfDate(t *testing.T) {
	s := newStore(t, 1)
	b, other := s.open(backends.Options{}), s.open(backends.Options{})
	finish(t, b, "before", backends.Succeeded)
	r := request("k", 1)
	r.RunID = "meanwhile"
	asked := 0
	a, err := b.log("k").ask(t.Context(), r, func(*ledger.State) error {
		if asked++; asked == 1 {
			finish(t, other, "meanwhile", backends.Succeeded)
			for i := range manyRuns {
				finish(t, other, fmt.Sprint("tick-", i), backends.Succeeded)
			}
		}
		return nil
	})
	var done *backends.DoneError
	if err != nil || a.res == nil || !errors.As(a.res.Err, &done) || asked != 2 {
		t.Errorf("asked %d times: %+v, %v", asked, a.res, err)
	}
}
