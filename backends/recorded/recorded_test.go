package recorded_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/backendtest"
	"github.com/lockrun/lockrun/backends/memory"
	"github.com/lockrun/lockrun/backends/recorded"
)

// pair is a store of leases and one of records, each of which can be made to fail, and two hosts that use them.
type pair struct {
	*testing.T
	leases, records *memory.Store
	leasesDown      atomic.Pointer[backendtest.Fault]
	recordsDown     atomic.Pointer[backendtest.Fault]
	a, b            backends.Backend

	mu       sync.Mutex
	warnings []string
}

var (
	refuses = &backendtest.Fault{Before: true}
	hangs   = &backendtest.Fault{Delay: backendtest.Hang}
)

func newPair(t *testing.T) *pair {
	p := &pair{T: t, leases: memory.New(nil, backends.Keep{}), records: memory.New(nil, backends.Keep{})}
	p.a, p.b = p.host(), p.host()
	return p
}

func faulty(b backends.Backend, now *atomic.Pointer[backendtest.Fault]) backends.Backend {
	return backendtest.Faulty(b, func(string, int) backendtest.Fault {
		if f := now.Load(); f != nil {
			return *f
		}
		return backendtest.Fault{}
	})
}

func (p *pair) host() backends.Backend {
	open := func(context.Context) (backends.Backend, error) { return faulty(p.records.Open(), &p.recordsDown), nil }
	return recorded.Decorate(faulty(p.leases.Open(), &p.leasesDown), open,
		recorded.Options{Timeout: 2 * time.Second, Warn: p.warn})
}

func (p *pair) warn(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warnings = append(p.warnings, text)
}

func (p *pair) warned(part string) {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.warnings) != 1 || !strings.Contains(p.warnings[0], part) {
		p.Errorf("warnings %q; want one with %q", p.warnings, part)
	}
	p.warnings = nil
}

func (p *pair) silent() {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.warnings) != 0 {
		p.Errorf("warnings %q", p.warnings)
	}
}

func request(runID string) backends.Request {
	return backends.Request{Key: "k", Owner: backends.NewOwner(), Holder: "alpha", Host: "host", PID: 7, TTL: time.Minute, Slots: 1, RunID: runID}
}

func (p *pair) acquire(b backends.Backend, r backends.Request) backends.Lease {
	p.Helper()
	l, err := b.Acquire(p.Context(), r)
	if err != nil {
		p.Fatalf("Acquire: %v", err)
	}
	return l
}

// within is a context for an exchange with a store that may hang.
func (p *pair) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(p.Context(), d)
	p.Cleanup(cancel)
	return ctx
}

func (p *pair) free(s *memory.Store) {
	p.Helper()
	all, err := s.Open().Status(p.Context(), "k")
	if err != nil || len(all) != 1 || all[0].State == backends.Held {
		p.Errorf("status %+v, %v; want it not to be held", all, err)
	}
}

func (p *pair) history(want ...backends.Outcome) []backends.Record {
	p.Helper()
	h, err := p.records.Open().History(p.Context(), backends.Query{})
	if err != nil || len(h) != len(want) {
		p.Fatalf("history %+v, %v; want %v", h, err, want)
	}
	for i, r := range h {
		if r.Outcome != want[i] {
			p.Fatalf("history %+v; want %v", h, want)
		}
	}
	return h
}

func held(err error) *backends.HeldError {
	var h *backends.HeldError
	errors.As(err, &h)
	return h
}

func succeeded() backends.End {
	code := 0
	return backends.End{Outcome: backends.Succeeded, ExitCode: &code, Duration: 3 * time.Second}
}

func TestTheRecordHasTheRun(t *testing.T) {
	p := newPair(t)
	for range 3 { // the lease's store has got further
		if err := p.acquire(p.leases.Open(), request("")).Release(t.Context(), succeeded()); err != nil {
			t.Fatal(err)
		}
	}
	l := p.acquire(p.a, request("r1"))
	if g := l.Grant(); g.Token != 4 || g.Attempt != 1 {
		t.Errorf("granted %+v", g)
	}
	states, err := p.a.Status(t.Context(), "k")
	if err != nil || len(states) != 1 || states[0].RunID != "r1" || states[0].Token != 4 {
		t.Errorf("status %+v, %v", states, err)
	}
	if err := l.Release(t.Context(), succeeded()); err != nil {
		t.Fatal(err)
	}
	r := p.history(backends.Succeeded)[0]
	if r.Token != 4 || r.RunID != "r1" || r.Attempt != 1 || *r.ExitCode != 0 || *r.Duration != 3*time.Second {
		t.Errorf("recorded %+v", r)
	}
	p.free(p.leases)
	p.silent()
}

func TestALeaseThatIsForgottenStartsARunOnce(t *testing.T) {
	p := newPair(t)
	first := p.acquire(p.a, request("r1"))
	p.leases.Remove("k")
	again := request("r1")
	_, err := p.b.Acquire(t.Context(), again)
	if h := held(err); h == nil || h.Reason != backends.SameRun {
		t.Fatalf("Acquire = %v", err)
	}
	p.free(p.leases) // what was granted meanwhile is given back
	p.acquire(p.b, request("r2"))
	p.leases.Remove("k")
	if err := first.Renew(t.Context(), time.Minute); !errors.Is(err, backends.ErrLost) {
		t.Errorf("Renew = %v", err)
	}
	if err := first.Release(t.Context(), backends.End{Outcome: backends.Lost}); !errors.Is(err, backends.ErrLost) {
		t.Errorf("Release = %v", err)
	}
	p.history(backends.Lost)
	l := p.acquire(p.b, again)
	if g := l.Grant(); g.Attempt != 2 {
		t.Errorf("attempt %d after one that was lost", g.Attempt)
	}
}

func TestDoneStaysWhatTheLeasesStoreForgets(t *testing.T) {
	p := newPair(t)
	if err := p.acquire(p.a, request("r1")).Release(t.Context(), succeeded()); err != nil {
		t.Fatal(err)
	}
	p.leases.Remove("k")
	r := request("r1")
	r.Last = true
	_, err := p.b.Acquire(t.Context(), r)
	if is := (*backends.DoneError)(nil); !errors.As(err, &is) {
		t.Fatalf("Acquire = %v", err)
	}
	p.free(p.leases)
	p.history(backends.Done, backends.Succeeded)
}

func TestASkipIsInTheRecord(t *testing.T) {
	p := newPair(t)
	p.acquire(p.a, request(""))
	r := request("")
	r.Last = true
	if _, err := p.b.Acquire(t.Context(), r); held(err) == nil {
		t.Fatalf("Acquire = %v", err)
	}
	if h := p.history(backends.Skipped); !strings.Contains(h[0].Reason, "alpha") {
		t.Errorf("recorded %+v", h[0])
	}
	if h, _ := p.leases.Open().History(t.Context(), backends.Query{}); len(h) != 0 {
		t.Errorf("the lease's store has %+v", h)
	}
}

func TestWithoutTheRecordNoRunOfAnID(t *testing.T) {
	for _, down := range []*backendtest.Fault{refuses, hangs, {After: true}} {
		p := newPair(t)
		p.recordsDown.Store(down)
		r := request("r1")
		_, err := p.a.Acquire(p.within(300*time.Millisecond), r)
		if err == nil || backends.Positive(err) {
			t.Fatalf("%+v: Acquire = %v", *down, err)
		}
		if !strings.Contains(err.Error(), "the record store (--record): ") {
			t.Errorf("%+v: Acquire does not say which store: %v", *down, err)
		}
		_ = p.a.Abandon(p.within(300*time.Millisecond), r)
		p.free(p.leases)
		p.recordsDown.Store(nil)
		if err := p.a.Abandon(t.Context(), r); err != nil {
			t.Errorf("Abandon: %v", err)
		}
		r.Owner = backends.NewOwner()
		if g := p.acquire(p.b, r).Grant(); g.Attempt != 1 {
			t.Errorf("%+v: attempt %d", *down, g.Attempt)
		}
		p.silent()
	}
}

func TestWithoutTheRecordOtherRunsGoOn(t *testing.T) {
	for _, down := range []*backendtest.Fault{refuses, hangs, {After: true}} {
		p := newPair(t)
		p.recordsDown.Store(down)
		l, err := p.a.Acquire(p.within(2*time.Second), request(""))
		if err != nil {
			t.Fatalf("%+v: Acquire: %v", *down, err)
		}
		p.warned("the start is not recorded, and the run goes on: the record store (--record): ")
		if err := l.Renew(t.Context(), time.Minute); err != nil {
			t.Errorf("Renew: %v", err)
		}
		p.recordsDown.Store(nil)
		if err := l.Release(t.Context(), succeeded()); err != nil {
			t.Errorf("Release: %v", err)
		}
		if r := p.history(backends.Succeeded)[0]; r.Token != l.Grant().Token || r.Holder != "alpha" || *r.Duration != 3*time.Second {
			t.Errorf("%+v: recorded %+v", *down, r)
		}
		p.free(p.records)
		p.silent()
	}
}

// What the record store could not answer at the start has kept COMMAND from beginning; the run has not ended sooner for it.
func TestARunThatIsToldLateEndedWhenItDid(t *testing.T) {
	p := newPair(t)
	p.recordsDown.Store(hangs)
	l, err := p.a.Acquire(p.within(time.Second), request("")) // half of which is the record's
	if err != nil {
		t.Fatal(err)
	}
	p.recordsDown.Store(nil)
	over := time.Now()
	if err := l.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil {
		t.Fatal(err)
	}
	if r := p.history(backends.Succeeded)[0]; r.EndedAt.Before(over.Add(-100 * time.Millisecond)) {
		t.Errorf("over at %v, and recorded as %v to %v", over, r.StartedAt, r.EndedAt)
	}
}

func TestErrorsOfTheRecordSayThatTheyAre(t *testing.T) {
	p := newPair(t)
	p.recordsDown.Store(refuses)
	_, history := p.a.History(t.Context(), backends.Query{})
	for what, err := range map[string]error{"history": history, "record": p.a.Record(t.Context(), backends.Record{Key: "k", Outcome: backends.Failed})} {
		if err == nil || !strings.HasPrefix(err.Error(), "the record store (--record): ") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestTheRecordIsDownAtTheEnd(t *testing.T) {
	for _, down := range []*backendtest.Fault{refuses, hangs} {
		p := newPair(t)
		l := p.acquire(p.a, request("r1"))
		p.recordsDown.Store(down)
		if err := l.Release(p.within(500*time.Millisecond), succeeded()); err != nil {
			t.Errorf("%+v: Release = %v", *down, err)
		}
		p.warned("the end is not recorded: the record store (--record): ")
		p.free(p.leases)
	}
}

func TestTheRecordIsTriedAgainAtTheEnd(t *testing.T) {
	p := newPair(t)
	l := p.acquire(p.a, request("r1"))
	p.recordsDown.Store(refuses)
	time.AfterFunc(100*time.Millisecond, func() { p.recordsDown.Store(nil) })
	if err := l.Release(p.within(time.Minute), succeeded()); err != nil {
		t.Errorf("Release = %v", err)
	}
	p.silent()
	p.history(backends.Succeeded)
}

func TestTheLeaseIsDownAtTheEnd(t *testing.T) {
	for _, down := range []*backendtest.Fault{refuses, hangs} {
		p := newPair(t)
		l := p.acquire(p.a, request("r1"))
		p.leasesDown.Store(down)
		if err := l.Release(p.within(500*time.Millisecond), succeeded()); err == nil || backends.Positive(err) {
			t.Errorf("Release = %v", err)
		}
		p.history(backends.Succeeded)
		p.leasesDown.Store(nil)
		if err := l.Release(p.within(time.Minute), succeeded()); err != nil {
			t.Errorf("Release again = %v", err)
		}
		p.free(p.leases)
		p.history(backends.Succeeded)
	}
}

func TestBothAreDownAtTheEnd(t *testing.T) {
	p := newPair(t)
	l := p.acquire(p.a, request("r1"))
	p.leasesDown.Store(refuses)
	p.recordsDown.Store(refuses)
	if err := l.Release(p.within(400*time.Millisecond), succeeded()); err == nil || backends.Positive(err) {
		t.Errorf("Release = %v", err)
	}
	p.warned("the end is not recorded: the record store (--record): ")
}

func TestALeaseFoundGoneAtTheReleaseIsNotDone(t *testing.T) {
	p := newPair(t)
	l := p.acquire(p.a, request("r1"))
	p.leases.Remove("k")
	if err := l.Release(t.Context(), succeeded()); !errors.Is(err, backends.ErrLost) {
		t.Fatalf("Release = %v", err)
	}
	p.history(backends.Lost)
	p.acquire(p.b, request("r1"))
}

func TestTheRecordDelaysNoRenewal(t *testing.T) {
	p := newPair(t)
	l := p.acquire(p.a, request("r1"))
	p.recordsDown.Store(hangs)
	ctx := p.within(time.Minute)
	for range 5 {
		if err := l.Renew(ctx, time.Minute); err != nil {
			t.Errorf("Renew: %v", err)
		}
	}
	if ctx.Err() != nil {
		t.Error("renewals waited for the record")
	}
}

func TestARecordThatRanOutIsCompleted(t *testing.T) {
	p := newPair(t)
	l := p.acquire(p.a, request("r1"))
	p.records.Expire("k")
	if err := l.Release(t.Context(), succeeded()); err != nil {
		t.Errorf("Release = %v", err)
	}
	p.warned("not marked done")
	p.history(backends.Succeeded)
}
