package multi_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/multi"
)

func TestPartsWithTokensOfTheirOwn(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, b backends.Backend, l backends.Lease) error{
		"attached": func(t *testing.T, b backends.Backend, l backends.Lease) error {
			got, err := b.Attach(t.Context(), "k", l.Grant().Token)
			if err != nil {
				return err
			}
			if err := got.Renew(t.Context(), time.Minute); err != nil {
				return err
			}
			return got.Release(t.Context(), backends.End{Outcome: backends.Succeeded})
		},
		"broken": func(t *testing.T, b backends.Backend, l backends.Lease) error {
			_, err := b.Break(t.Context(), "k", l.Grant().Token, "me")
			return err
		},
	} {
		_, open := stores(2)
		for range 3 { // the second store has got further than the first
			if err := acquire(t, open[1], request("k")).Release(t.Context(), backends.End{Outcome: backends.Failed}); err != nil {
				t.Fatal(err)
			}
		}
		b := multi.New(open, timeout)
		r := request("k")
		r.Loose = true
		if err := do(t, b, acquire(t, b, r)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range open {
			if s := state(t, open[i], "k"); s.State != backends.Free {
				t.Errorf("%s: store %d still has %+v", name, i, s)
			}
		}
	}
}

func TestAttachFindsAPartThatIsGoneLost(t *testing.T) {
	all, open := stores(2)
	b := multi.New(open, timeout)
	r := request("k")
	r.Loose = true
	l := acquire(t, b, r)
	all[1].Remove("k")
	got, err := b.Attach(t.Context(), "k", l.Grant().Token)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Renew(t.Context(), time.Minute); !errors.Is(err, backends.ErrLost) {
		t.Errorf("Renew = %v", err)
	}
	if err := got.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); !errors.Is(err, backends.ErrLost) {
		t.Errorf("Release = %v", err)
	}
	if s := state(t, open[0], "k"); s.State != backends.Free {
		t.Errorf("the first store still has %+v", s)
	}
}

// What the first store has ended alone is lost, and its other parts can still be given back by the token; another run's lease
// that has the same token by chance is left alone.
func TestAttachFindsWhatIsLeftOfALease(t *testing.T) {
	_, open := stores(2)
	b := multi.New(open, timeout)
	r := request("k")
	r.Loose = true
	token := acquire(t, b, r).Grant().Token
	first, err := open[0].Attach(t.Context(), "k", token)
	if err == nil {
		err = first.Release(t.Context(), backends.End{Outcome: backends.Succeeded})
	}
	if err != nil {
		t.Fatal(err)
	}
	left, err := b.Attach(t.Context(), "k", token)
	if err != nil {
		t.Fatal(err)
	}
	if err := left.Renew(t.Context(), time.Minute); !errors.Is(err, backends.ErrLost) {
		t.Errorf("renew: %v", err)
	}
	if err := left.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); !errors.Is(err, backends.ErrLost) {
		t.Errorf("release: %v", err)
	}
	if s := state(t, open[1], "k"); s.State != backends.Free {
		t.Errorf("%+v", s)
	}
	if _, err := b.Attach(t.Context(), "k", token); !errors.Is(err, backends.ErrLost) {
		t.Errorf("again: %v", err)
	}

	token = acquire(t, open[0], r).Grant().Token
	if first, err = open[0].Attach(t.Context(), "k", token); err == nil {
		err = first.Release(t.Context(), backends.End{Outcome: backends.Succeeded})
	}
	if err != nil {
		t.Fatal(err)
	}
	other := request("k")
	other.Loose, other.Token, other.Holder = true, token, "somebody else"
	if got := acquire(t, open[1], other).Grant().Token; got != token {
		t.Fatalf("token %d, want %d", got, token)
	}
	if _, err := b.Attach(t.Context(), "k", token); !errors.Is(err, backends.ErrLost) {
		t.Errorf("another run's: %v", err)
	}
}
