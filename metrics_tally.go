package main

import (
	"context"
	"fmt"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/metrics"
)

// tally keeps the metrics of a store up to date. The first update counts the whole history, each later one what was added
// since. What the store has forgotten meanwhile stays counted: a history that keeps the last thousand runs would else
// look like a counter that stands still, or falls.
type tally struct {
	set   *metrics.Set
	bound time.Duration // on each exchange with the store

	begun   bool                 // the whole history was counted
	settled time.Time            // what ended before this moment of the store's clock is counted for good
	seen    map[runMark]lastSeen // what ended since, as it was counted
	met     map[runMark]int      // refusals of this update that nothing tells apart, and how many of them there were so far
	crashed map[string][]int64   // by key: tokens of crashed leases that nobody has taken over as far as is known
}

// runMark tells runs apart. Refusals have no token, and several of a key may end at the same instant: there are stores that
// tell the time in milliseconds.
type runMark struct {
	key   string
	token int64

	// Of a refusal. Where there is a token these are empty: end and outcome of a lost run may be corrected.
	ended   int64 // microseconds
	outcome backends.Outcome
	nth     int // of those that are equal else
}

type lastSeen struct {
	outcome backends.Outcome
	ended   time.Time
}

// overlap is how much of the past each update looks at again: a record is written a little after the end it tells.
const overlap = 10 * time.Minute

func newTally(bound time.Duration) *tally {
	return &tally{set: metrics.NewSet(false), bound: bound, seen: map[runMark]lastSeen{}, met: map[runMark]int{},
		crashed: map[string][]int64{}}
}

// within calls f with a context that ends after d.
func within[T any](ctx context.Context, d time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return f(ctx)
}

// update counts what is new and looks at the leases. After an error the next update begins where this one did, and a tally
// that never was complete is of no use: the caller makes a new one.
func (t *tally) update(ctx context.Context, b backends.Backend) error {
	now, err := within(ctx, t.bound, backends.Historian(b).Now)
	if err != nil {
		return err
	}
	next := now.Add(-overlap)
	clear(t.met)
	if t.begun {
		err = t.countSince(ctx, b, t.settled)
	} else {
		t.settled = next
		err = t.countAll(ctx, b)
	}
	if err != nil {
		return err
	}
	t.begun, t.settled = true, next
	for m, s := range t.seen {
		if s.ended.Before(next) {
			delete(t.seen, m)
		}
	}
	states, err := within(ctx, t.bound, func(ctx context.Context) ([]backends.State, error) { return b.Status(ctx) })
	if err == nil {
		t.leases(states)
	}
	return err
}

// countAll counts the whole history. However large that is, it takes memory for the keys and not for the runs.
func (t *tally) countAll(ctx context.Context, b backends.Backend) error {
	if w, ok := backends.Historian(b).(backends.Walker); ok {
		return t.walk(ctx, b.Name(), w)
	}
	states, err := within(ctx, t.bound, func(ctx context.Context) ([]backends.State, error) { return b.Status(ctx) })
	if err != nil {
		return err
	}
	last := ""
	for i := range states {
		if states[i].Key == last { // another slot of it
			continue
		}
		last = states[i].Key
		records, err := within(ctx, t.bound, func(ctx context.Context) ([]backends.Record, error) {
			return b.History(ctx, backends.Query{Key: last})
		})
		if err != nil {
			return err
		}
		for i := range records {
			t.record(&records[i])
		}
	}
	return nil
}

// walk bounds the time in which nothing is told, instead of the whole: how long that takes depends on the store's size.
func (t *tally) walk(ctx context.Context, name string, w backends.Walker) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silent := time.AfterFunc(t.bound, cancel)
	defer silent.Stop()
	n := 0
	err := w.Walk(ctx, backends.Query{}, func(r *backends.Record) error {
		if n++; n%1000 == 0 {
			silent.Reset(t.bound)
		}
		t.record(r)
		return nil
	})
	if !silent.Stop() && err != nil { // the store says that it was interrupted
		return &backends.Error{Op: "metrics", Backend: name, Err: fmt.Errorf("no answer in time, after %d records of the history", n),
			Remedy: "is the server alive, and the network open? --backend-timeout bounds the wait"}
	}
	return err
}

// firstPage is how many records an update asks for at first.
const firstPage = 256

// countSince counts what ended since then and has not been counted. It asks for the newest records, and for four times
// as many while all of those are new, because every store finds the newest quickly, and only some what is new.
func (t *tally) countSince(ctx context.Context, b backends.Backend, since time.Time) error {
	for limit := firstPage; ; limit *= 4 {
		records, err := within(ctx, t.bound, func(ctx context.Context) ([]backends.Record, error) {
			return b.History(ctx, backends.Query{Limit: limit})
		})
		if err != nil {
			return err
		}
		if n := len(records); n >= limit && !records[n-1].EndedAt.Before(since) {
			continue
		}
		for i := range records {
			if !records[i].EndedAt.Before(since) {
				t.record(&records[i])
			}
		}
		return nil
	}
}

// record counts a run, unless it was counted before. One whose record was corrected since (crashed became lost) counts
// with both outcomes: a counter cannot take anything back, and the correction must not go unnoticed.
func (t *tally) record(r *backends.Record) {
	sums := t.set.Key(r.Key)
	var before lastSeen
	again := false
	if !r.EndedAt.Before(t.settled) {
		m := t.mark(r)
		before, again = t.seen[m]
		t.seen[m] = lastSeen{r.Outcome, r.EndedAt}
	}
	switch {
	case !again:
		sums.Add(runOf(r))
		if r.Outcome == backends.Crashed {
			t.crashed[r.Key] = append(t.crashed[r.Key], r.Token)
		}
	case before.outcome != r.Outcome:
		sums.Count(string(r.Outcome))
	}
}

// mark is the record's, which it has again in the next update.
func (t *tally) mark(r *backends.Record) runMark {
	if r.Token != 0 {
		return runMark{key: r.Key, token: r.Token}
	}
	m := runMark{key: r.Key, ended: r.EndedAt.UnixMicro(), outcome: r.Outcome}
	t.met[m]++
	m.nth = t.met[m]
	return m
}

// runOf is what a record tells of a run.
func runOf(r *backends.Record) *metrics.Run {
	run := &metrics.Run{Outcome: string(r.Outcome), Wait: r.Waited, Ended: r.EndedAt, Exit: r.ExitCode}
	if r.Token != 0 && !r.StartedAt.IsZero() {
		hold := r.EndedAt.Sub(r.StartedAt)
		run.Hold = &hold
	}
	return run
}

// leases takes over the state of all keys. The last token of a key tells whether a crashed lease has a successor.
func (t *tally) leases(states []backends.State) {
	for len(states) > 0 {
		key, n := states[0].Key, 1
		for n < len(states) && states[n].Key == key {
			n++
		}
		t.lease(t.set.Key(key), key, states[:n])
		states = states[n:]
	}
}

// lease takes over the state of one key, which has several where several slots are held.
func (t *tally) lease(sums *metrics.Sums, key string, slots []backends.State) {
	l := metrics.Lease{Waiters: slots[0].Waiters}
	last := int64(0)
	for i := range slots {
		s := &slots[i]
		last = max(last, s.Token)
		if s.State != backends.Held {
			continue
		}
		l.Held++
		if s.ExpiresAt != nil && (l.Expires.IsZero() || s.ExpiresAt.Before(l.Expires)) {
			l.Expires = *s.ExpiresAt
		}
	}
	sums.SetLease(l)
	open := t.crashed[key][:0]
	for _, token := range t.crashed[key] {
		if token >= last {
			open = append(open, token)
		}
	}
	sums.AddTakeovers(len(t.crashed[key]) - len(open))
	if t.crashed[key] = open; len(open) == 0 {
		delete(t.crashed, key)
	}
}
