// Package backendtest is the conformance suite of package backends: what the contract says, as tests that every store
// has to pass. Their names are the specification. They ask through the interface and look into the store beside it.
package backendtest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/rounds"
)

// Store is one fresh store and what a test may do to it by other ways than the interface.
type Store struct {
	// Open returns another host's way to the store. The suite closes it.
	Open func(o backends.Options) backends.Backend

	// Expire makes the live leases of key run out by the store's clock, or waits until they have. Minimum holds stay.
	Expire func(key string)

	// Remove takes the lease records of key out of the store behind lockrun's back, as DELETE or DEL would.
	Remove func(key string)

	// Dump is all that the store has of key's leases, in a form in which equal contents are equal strings.
	Dump func(key string) string

	// Foreign puts something that is not lockrun's where a lease of key would be, and returns its contents as they are
	// at each call of the function returned. Nil where nothing foreign can be there.
	Foreign func(key string) (contents func() string)

	// RecordedAs is what run records call the backend; "": its name. Where several stores make one backend it is the name
	// of that which keeps the records.
	RecordedAs string

	// TTL is the length of the leases that the suite takes; 0: a minute. A store whose Expire has to wait asks for a
	// short one, yet long enough for a test to get through while it lasts.
	TTL time.Duration

	// Rounds scales the tests that repeat; 0: 1.
	Rounds int

	// Blur is by how much the time of one record may differ from call to call: servers that keep copies of it wrote them
	// one after the other.
	Blur time.Duration
}

// patience bounds what is waited for by looking again and again. It is only ever waited in full by a test that fails.
const patience = 20 * time.Second

// Run runs the suite. open makes a fresh store for each test, which may share a server with others.
func Run(t *testing.T, open func(t *testing.T) *Store) {
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			for _, c := range g.cases {
				t.Run(c.name, func(t *testing.T) { c.run(newSuite(t, open)) })
			}
		})
	}
}

type group struct {
	name  string
	cases []testCase
}

type testCase struct {
	name string
	run  func(s *suite)
}

var groups = []group{
	{"Acquire", acquireCases}, {"Renew", renewCases}, {"Release", releaseCases}, {"Token", tokenCases},
	{"Abandon", abandonCases}, {"Attach", slices.Concat(attachCases, looseCases)}, {"MinimumHold", holdCases}, {"RunID", runIDCases},
	{"SameRun", sameRunCases}, {"Slots", slotCases}, {"Pause", pauseCases}, {"Break", breakCases}, {"Status", statusCases},
	{"History", slices.Concat(historyCases, selectCases)}, {"Sums", sumCases}, {"Keep", keepCases}, {"Keys", keyCases}, {"Wait", waitCases},
	{"Context", contextCases}, {"Concurrency", concurrencyCases}, {"Faults", faultCases},
	{"RecordStore", recordStoreCases}, {"Foreign", foreignCases}, {"Optional", optionalCases},
}

// suite is one test with two hosts.
type suite struct {
	*testing.T
	ctx   context.Context
	store *Store
	a, b  backends.Backend
	ttl   time.Duration
}

func newSuite(t *testing.T, open func(t *testing.T) *Store) *suite {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rounds.Of(2, 30))*time.Minute)
	t.Cleanup(cancel)
	st := open(t)
	s := &suite{T: t, ctx: ctx, store: st, ttl: st.TTL}
	if s.ttl == 0 {
		s.ttl = time.Minute
	}
	s.a, s.b = s.open(backends.Options{}), s.open(backends.Options{})
	return s
}

// open adds one more host.
func (s *suite) open(o backends.Options) backends.Backend {
	s.Helper()
	b := s.store.Open(o)
	s.Cleanup(func() {
		if err := b.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
	})
	return b
}

// recordedAs is the backend of run records.
func (s *suite) recordedAs() string { return cmp.Or(s.store.RecordedAs, s.a.Name()) }

func (s *suite) rounds(n int) int { return n * max(1, s.store.Rounds) }

// request asks for key as a new run on host "alpha".
func (s *suite) request(key string) backends.Request {
	return backends.Request{Key: key, Owner: backends.NewOwner(), Holder: "alpha", Host: "host-a", PID: 4711, TTL: s.ttl, Slots: 1}
}

// rival asks for key as a new run on host "beta".
func (s *suite) rival(key string) backends.Request {
	r := s.request(key)
	r.Holder, r.Host, r.PID = "beta", "host-b", 815
	return r
}

func (s *suite) acquire(b backends.Backend, r backends.Request) backends.Lease {
	s.Helper()
	l, err := b.Acquire(s.ctx, r)
	if err != nil {
		s.Fatalf("Acquire %q as %s: %v", r.Key, r.Holder, err)
	}
	return l
}

// refused wants *HeldError.
func (s *suite) refused(b backends.Backend, r backends.Request) *backends.HeldError {
	s.Helper()
	l, err := b.Acquire(s.ctx, r)
	var held *backends.HeldError
	if !errors.As(err, &held) {
		s.Fatalf("Acquire %q as %s = %v, %v; want *HeldError", r.Key, r.Holder, l, err)
	}
	return held
}

// done wants *DoneError.
func (s *suite) done(b backends.Backend, r backends.Request) *backends.DoneError {
	s.Helper()
	l, err := b.Acquire(s.ctx, r)
	var done *backends.DoneError
	if !errors.As(err, &done) {
		s.Fatalf("Acquire %q, run %q = %v, %v; want *DoneError", r.Key, r.RunID, l, err)
	}
	return done
}

func (s *suite) release(l backends.Lease, o backends.Outcome) {
	s.Helper()
	if err := l.Release(s.ctx, backends.End{Outcome: o}); err != nil {
		s.Fatalf("Release as %s: %v", o, err)
	}
}

// lost wants ErrLost.
func (s *suite) lost(what string, err error) {
	s.Helper()
	if !errors.Is(err, backends.ErrLost) {
		s.Fatalf("%s = %v, want ErrLost", what, err)
	}
}

func (s *suite) ok(what string, err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

// state is the only State of key.
func (s *suite) state(key string) backends.State {
	s.Helper()
	all, err := s.b.Status(s.ctx, key)
	s.ok("Status", err)
	if len(all) != 1 {
		s.Fatalf("Status %q has %d states, want 1: %+v", key, len(all), all)
	}
	return all[0]
}

func (s *suite) wantState(key, want string) backends.State {
	s.Helper()
	st := s.state(key)
	if st.State != want {
		s.Fatalf("%q is %s, want %s: %+v", key, st.State, want, st)
	}
	return st
}

func (s *suite) history(key string) []backends.Record {
	s.Helper()
	all, err := s.b.History(s.ctx, backends.Query{Key: key})
	s.ok("History", err)
	return all
}

// outcomes are those of key's history, newest first.
func (s *suite) outcomes(key string) []backends.Outcome {
	s.Helper()
	var all []backends.Outcome
	for _, r := range s.history(key) {
		all = append(all, r.Outcome)
	}
	return all
}

// eventually looks until ok holds.
func (s *suite) eventually(what string, ok func() bool) {
	s.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			s.Fatalf("%s: not within %v", what, patience)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// acquireSoon asks until the lease is granted.
func (s *suite) acquireSoon(b backends.Backend, r backends.Request) backends.Lease {
	s.Helper()
	var l backends.Lease
	s.eventually("acquiring "+r.Key, func() bool {
		var err error
		l, err = b.Acquire(s.ctx, r)
		var held *backends.HeldError
		if err != nil && !errors.As(err, &held) {
			s.Fatalf("Acquire %q: %v", r.Key, err)
		}
		return err == nil
	})
	return l
}
