package paired_test

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
	"github.com/lockrun/lockrun/backends/paired"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) *backendtest.Store {
		first, second := memory.New(nil, backends.Keep{}), memory.New(nil, backends.Keep{})
		both := func(f func(s *memory.Store, key string)) func(string) {
			return func(key string) { f(first, key); f(second, key) }
		}
		return &backendtest.Store{
			Open: func(o backends.Options) backends.Backend {
				return paired.Decorate(first.OpenWith(o), func(context.Context) (backends.Backend, error) {
					return named{second.OpenWith(o)}, nil
				}, paired.Options{Timeout: 5 * time.Second, Warn: func(text string) { t.Log(text) }})
			},
			Expire: both((*memory.Store).Expire), Remove: both((*memory.Store).Remove),
			Dump: func(key string) string {
				_, rows, _ := strings.Cut(first.Dump(key), "\n") // tokens are used up by what is refused later
				return rows
			},
			RecordedAs: "memory:",
		}
	})
}

// named is a store with a name of its own.
type named struct{ backends.Backend }

func (n named) Name() string { return "memory:second" }

func (n named) Wait(ctx context.Context, r backends.Request) error {
	return n.Backend.(backends.Waiter).Wait(ctx, r)
}

// two is a first store and a second, which can be made to fail, used by a run that has both, and one that fell back.
type two struct {
	*testing.T
	first, second *memory.Store
	down, away    atomic.Pointer[backendtest.Fault] // of the second, and of the first
	opened        atomic.Int32
	main          backends.Backend
	fallback      backends.Backend

	mu       sync.Mutex
	warnings []string
}

func newTwo(t *testing.T) *two {
	p := &two{T: t, first: memory.New(nil, backends.Keep{}), second: memory.New(nil, backends.Keep{})}
	fails := func(b backends.Backend, now *atomic.Pointer[backendtest.Fault]) backends.Backend {
		return backendtest.Faulty(b, func(string, int) backendtest.Fault {
			if f := now.Load(); f != nil {
				return *f
			}
			return backendtest.Fault{}
		})
	}
	open := func(context.Context) (backends.Backend, error) {
		p.opened.Add(1)
		return fails(named{p.second.Open()}, &p.down), nil
	}
	p.main = paired.Decorate(fails(p.first.Open(), &p.away), open, paired.Options{Timeout: 5 * time.Second, Warn: p.warn})
	p.fallback = p.second.Open()
	return p
}

func (p *two) warn(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warnings = append(p.warnings, text)
}

func (p *two) warned(part string) {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.warnings) != 1 || !strings.Contains(p.warnings[0], part) {
		p.Errorf("warnings %q; want one with %q", p.warnings, part)
	}
	p.warnings = nil
}

func request(runID string) backends.Request {
	return backends.Request{Key: "k", Owner: backends.NewOwner(), Holder: "h", TTL: time.Minute, Slots: 1, RunID: runID, Last: true}
}

func (p *two) granted(b backends.Backend, r backends.Request) backends.Lease {
	p.Helper()
	l, err := b.Acquire(p.Context(), r)
	if err != nil {
		p.Fatal(err)
	}
	return l
}

func (p *two) held(b backends.Backend, r backends.Request, where string) {
	p.Helper()
	_, err := b.Acquire(p.Context(), r)
	var held *backends.HeldError
	if !errors.As(err, &held) || !strings.Contains(held.Reason, where) {
		p.Errorf("%v; want held %s", err, where)
	}
}

func (p *two) free(s *memory.Store) {
	p.Helper()
	states, err := s.Open().Status(p.Context(), "k")
	if err != nil || states[0].State != backends.Free {
		p.Errorf("%+v, %v", states, err)
	}
}

func (p *two) end(l backends.Lease, o backends.Outcome) {
	p.Helper()
	if err := l.Release(p.Context(), backends.End{Outcome: o}); err != nil {
		p.Error(err)
	}
}

// Whichever is taken first, a run with the first store's lease and one that fell back do not run at the same time.
func TestTheTwoMeet(t *testing.T) {
	p := newTwo(t)
	fell := p.granted(p.fallback, request(""))
	p.held(p.main, request(""), "on the fallback memory:second")
	p.free(p.first)
	h, _ := p.first.Open().History(t.Context(), backends.Query{})
	if len(h) != 1 || h[0].Outcome != backends.Skipped || !strings.Contains(h[0].Reason, "on the fallback") {
		t.Errorf("history of the first: %+v", h)
	}
	p.end(fell, backends.Succeeded)

	l := p.granted(p.main, request(""))
	p.held(p.fallback, request(""), "")
	p.end(l, backends.Succeeded)
	p.free(p.second)
	p.end(p.granted(p.fallback, request("")), backends.Succeeded)
	if p.warnings != nil {
		t.Error(p.warnings)
	}
}

// A run id that is done in either is done in both.
func TestDoneInEither(t *testing.T) {
	p := newTwo(t)
	var done *backends.DoneError
	p.end(p.granted(p.fallback, request("r1")), backends.Succeeded)
	if _, err := p.main.Acquire(t.Context(), request("r1")); !errors.As(err, &done) {
		t.Error(err)
	}
	p.free(p.first)
	p.end(p.granted(p.main, request("r2")), backends.Succeeded)
	if _, err := p.fallback.Acquire(t.Context(), request("r2")); !errors.As(err, &done) {
		t.Error(err)
	}
	p.end(p.granted(p.main, request("r3")), backends.Failed)
	p.end(p.granted(p.fallback, request("r3")), backends.Succeeded)
}

// A lease that is being given back is not skipped over.
func TestASecondLeaseThatIsAboutToEnd(t *testing.T) {
	p := newTwo(t)
	fell := p.granted(p.fallback, request(""))
	time.AfterFunc(30*time.Millisecond, func() { _ = fell.Release(context.Background(), backends.End{Outcome: backends.Succeeded}) })
	p.end(p.granted(p.main, request("")), backends.Succeeded)
}

// A waiter that the fallback refused is told when that is free, and meanwhile leaves the first store alone.
func TestWaitingForTheFallback(t *testing.T) {
	p := newTwo(t)
	fell := p.granted(p.fallback, request(""))
	r := request("")
	r.Last = false
	p.held(p.main, r, "on the fallback")
	told := make(chan error, 1)
	go func() { told <- p.main.(backends.Waiter).Wait(t.Context(), r) }()
	select {
	case err := <-told:
		t.Fatalf("told too soon: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	p.free(p.first)
	p.end(fell, backends.Succeeded)
	if err := <-told; err != nil {
		t.Fatal(err)
	}
	p.end(p.granted(p.main, r), backends.Succeeded)
}

func TestASecondStoreThatDoesNotAnswer(t *testing.T) {
	for name, f := range map[string]*backendtest.Fault{"refuses": {Before: true}, "hangs": {Delay: backendtest.Hang}} {
		t.Run(name, func(t *testing.T) {
			p := newTwo(t)
			p.down.Store(f)
			began := time.Now()
			l := p.granted(p.main, request(""))
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
			p.warned("the fallback does not answer")
			if err := l.Renew(t.Context(), time.Minute); err != nil {
				t.Error(err)
			}
			p.end(l, backends.Succeeded)
			if p.warnings != nil {
				t.Error(p.warnings)
			}
		})
	}
}

// The second lease is renewed with the first; that it is lost is said, and changes nothing.
func TestTheSecondIsRenewedAndMayBeLost(t *testing.T) {
	p := newTwo(t)
	l := p.granted(p.main, request(""))
	before, _ := p.fallback.Status(t.Context(), "k")
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
			if err := l.Renew(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
			if time.Now().After(end) {
				t.Fatal("never " + what)
			}
		}
	}
	until("renewed", func() bool {
		now, err := p.fallback.Status(t.Context(), "k")
		return err == nil && now[0].ExpiresAt.After(*before[0].ExpiresAt)
	})
	if _, err := p.fallback.Break(t.Context(), "k", 0, "broken by ann"); err != nil {
		t.Fatal(err)
	}
	until("told", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.warnings) > 0
	})
	p.warned("is gone")
	p.end(l, backends.Succeeded)
}

// What the first store says of the end is what the second is told.
func TestTheEndIsToldToBoth(t *testing.T) {
	p := newTwo(t)
	l := p.granted(p.main, request("r1"))
	p.first.Remove("k")
	if err := l.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); !errors.Is(err, backends.ErrLost) {
		t.Error(err)
	}
	h, err := p.fallback.History(t.Context(), backends.Query{})
	if err != nil || len(h) != 1 || h[0].Outcome != backends.Lost || !strings.Contains(h[0].Reason, paired.Beside+"memory:") {
		t.Errorf("%+v, %v", h, err)
	}
	p.end(p.granted(p.fallback, request("r1")), backends.Succeeded) // it was not marked done

	// A first store that has gone away meanwhile: the second answers the next run, and knows.
	l = p.granted(p.main, request("r2"))
	p.away.Store(&backendtest.Fault{Before: true})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := l.Release(ctx, backends.End{Outcome: backends.Succeeded}); err == nil || backends.Positive(err) {
		t.Error(err)
	}
	var done *backends.DoneError
	if _, err := p.fallback.Acquire(t.Context(), request("r2")); !errors.As(err, &done) {
		t.Error(err)
	}
}

// Nothing is opened for a request that the first store refuses.
func TestARefusalCostsNothing(t *testing.T) {
	p := newTwo(t)
	p.end(p.granted(p.first.Open(), request("")), backends.Succeeded)
	other := p.granted(p.first.Open(), request(""))
	p.held(p.main, request(""), "")
	if n := p.opened.Load(); n != 0 {
		t.Errorf("opened %d times", n)
	}
	p.end(other, backends.Succeeded)
}
