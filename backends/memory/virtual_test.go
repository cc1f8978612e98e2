package memory_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/memory"
)

// In virtual time: a lease of 45 minutes, a waiter that wakes when it runs out, and a minimum hold after that.
func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(nil, backends.Keep{})
		a, b := s.Open(), s.Open()
		r := backends.Request{Key: "k", Owner: backends.NewOwner(), Holder: "alpha", TTL: 45 * time.Minute, Slots: 1}
		l, err := a.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		r.Owner, r.HoldAtLeast = backends.NewOwner(), time.Hour
		if err := b.(backends.Waiter).Wait(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 45*time.Minute {
			t.Errorf("the waiter woke after %v", d)
		}
		if err := l.Renew(t.Context(), time.Minute); !errors.Is(err, backends.ErrLost) {
			t.Errorf("Renew at the very expiry = %v, want ErrLost", err)
		}
		if l, err = b.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - time.Microsecond)
		r.Owner = backends.NewOwner()
		var held *backends.HeldError
		if _, err := a.Acquire(t.Context(), r); !errors.As(err, &held) || held.Left != time.Microsecond {
			t.Errorf("Acquire a microsecond before the end of the hold = %v", err)
		}
		time.Sleep(time.Microsecond)
		if _, err := a.Acquire(t.Context(), r); err != nil {
			t.Errorf("Acquire at the end of the hold = %v", err)
		}
	})
}
