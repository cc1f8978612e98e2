package recorded_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/backendtest"
	"github.com/lockrun/lockrun/backends/memory"
	"github.com/lockrun/lockrun/backends/recorded"
)

func TestUnlockIsInTheRecord(t *testing.T) {
	p := newPair(t)
	l := p.acquire(p.a, request("r1"))
	if broken, err := p.b.Break(t.Context(), "k", l.Grant().Token, "broken by me"); err != nil || len(broken) != 1 {
		t.Fatalf("Break = %+v, %v", broken, err)
	}
	p.free(p.leases)
	p.free(p.records)
	if err := l.Release(t.Context(), backends.End{Outcome: backends.Lost}); !errors.Is(err, backends.ErrLost) {
		t.Errorf("Release = %v", err)
	}
	if r := p.history(backends.Unlocked)[0]; r.Reason != "broken by me" {
		t.Errorf("recorded %+v", r)
	}
}

// A holder that is quick has recorded its loss before the record could be broken.
func TestUnlockIsInTheRecordOfAQuickHolder(t *testing.T) {
	p := newPair(t)
	l := p.acquire(p.a, request("r1"))
	slow := recorded.Decorate(&meanwhile{p.leases.Open(), func() {
		if err := l.Release(t.Context(), backends.End{Outcome: backends.Lost}); !errors.Is(err, backends.ErrLost) {
			t.Errorf("Release = %v", err)
		}
		p.history(backends.Lost)
	}}, nil, recorded.Options{Record: p.records.Open(), Timeout: time.Second, Warn: p.warn})
	if _, err := slow.Break(t.Context(), "k", l.Grant().Token, "broken by me"); err != nil {
		t.Fatal(err)
	}
	if r := p.history(backends.Unlocked)[0]; r.Reason != "broken by me" || r.RunID != "r1" {
		t.Errorf("recorded %+v", r)
	}
	p.silent()
}

// meanwhile lets something happen after a lease was broken.
type meanwhile struct {
	backends.Backend
	happens func()
}

func (m *meanwhile) Break(ctx context.Context, key string, token int64, by string) ([]backends.State, error) {
	states, err := m.Backend.Break(ctx, key, token, by)
	m.happens()
	return states, err
}

func TestUnlockFreesTheRunIDOfALeaseThatIsForgotten(t *testing.T) {
	p := newPair(t)
	p.acquire(p.a, request("r1"))
	p.leases.Remove("k")
	if broken, err := p.b.Break(t.Context(), "k", 0, "me"); err != nil || len(broken) != 1 {
		t.Fatalf("Break = %+v, %v", broken, err)
	}
	p.acquire(p.b, request("r1"))
}

func TestTheRecordStoreIsOpenedOnceItCanBe(t *testing.T) {
	p := newPair(t)
	var tries atomic.Int32
	b := recorded.Decorate(p.leases.Open(), func(context.Context) (backends.Backend, error) {
		if tries.Add(1) == 1 {
			return nil, &backends.Error{Op: "open", Backend: "records", Err: errors.New("no route to host")}
		}
		return p.records.Open(), nil
	}, recorded.Options{Timeout: time.Second, Warn: p.warn})
	l := p.acquire(b, request(""))
	p.warned("no route to host")
	if err := l.Release(t.Context(), succeeded()); err != nil {
		t.Fatal(err)
	}
	p.history(backends.Succeeded)
	if tries.Load() != 2 {
		t.Errorf("opened %d times", tries.Load())
	}
}

func TestAttachFindsTheRecord(t *testing.T) {
	for _, ahead := range []int{0, 5} { // how far the record store's own tokens are ahead
		p := newPair(t)
		for range ahead {
			if err := p.acquire(p.records.Open(), request("")).Release(t.Context(), backends.End{Outcome: backends.Failed}); err != nil {
				t.Fatal(err)
			}
		}
		r := request("r1")
		r.Loose, r.Detached = true, true
		l := p.acquire(p.a, r)
		got, err := p.b.Attach(t.Context(), "k", l.Grant().Token)
		if err != nil {
			t.Fatal(err)
		}
		if err := got.Renew(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		if s, _ := p.records.Open().Status(t.Context(), "k"); *s[0].ExpiresIn < 50*time.Minute {
			t.Errorf("the record was not renewed: %+v", s)
		}
		if err := got.Release(t.Context(), succeeded()); err != nil {
			t.Fatal(err)
		}
		_, err = p.a.Acquire(t.Context(), request("r1"))
		if is := (*backends.DoneError)(nil); !errors.As(err, &is) {
			t.Errorf("%d ahead: Acquire = %v", ahead, err)
		}
		p.silent()
	}
}

func TestARecordIsToldThoughTheLeaseHasUsedUpTheTime(t *testing.T) {
	p := newPair(t)
	l := p.acquire(p.a, request("r1"))
	p.leasesDown.Store(hangs)
	ctx, cancel := context.WithCancel(p.within(time.Hour))
	time.AfterFunc(100*time.Millisecond, cancel)
	if err := l.Release(ctx, succeeded()); err == nil || backends.Positive(err) {
		t.Errorf("Release = %v", err)
	}
	p.history(backends.Succeeded)
	p.silent()
}

// For the shell verbs, which are processes of their own.
func TestAnAttachedLeaseIsReleasedWithoutTheRecord(t *testing.T) {
	for _, down := range []*backendtest.Fault{refuses, hangs} {
		p := newPair(t)
		r := request("r1")
		r.Loose, r.Detached = true, true
		token := p.acquire(p.a, r).Grant().Token
		p.recordsDown.Store(down)
		l, err := p.b.Attach(t.Context(), "k", token)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Renew(p.within(time.Second), time.Minute); err != nil {
			t.Errorf("Renew = %v", err)
		}
		if err := l.Release(p.within(time.Second), succeeded()); err != nil {
			t.Errorf("Release = %v", err)
		}
		p.free(p.leases)
		p.warned("end is not recorded")
	}
}

func TestStatusOfAllKeysHasThoseOfTheRecord(t *testing.T) {
	p := newPair(t)
	forgotten := request("r1")
	forgotten.Key = "forgotten"
	p.acquire(p.a, forgotten)
	p.acquire(p.a, request("r2"))
	if err := p.records.Open().Record(t.Context(), backends.Record{Key: "skipped", Outcome: backends.Skipped}); err != nil {
		t.Fatal(err)
	}
	fresh := memory.New(nil, backends.Keep{}) // the lease's store after it has lost everything but k
	r := request("r2")
	b := recorded.Decorate(fresh.Open(), nil, recorded.Options{Record: p.records.Open(), Timeout: time.Second, Warn: p.warn})
	if _, err := fresh.Open().Acquire(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	states, err := b.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shown := ""
	for _, s := range states {
		shown += s.Key + ":" + s.State + ":" + s.Reason + " "
	}
	if shown != "forgotten:held:only in memory: k:held: skipped:free: " {
		t.Errorf("status %q", shown)
	}
}
