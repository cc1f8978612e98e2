package multi_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/backendtest"
	"github.com/lockrun/lockrun/backends/multi"
)

// Requests and replies that get lost in any store, and hosts that ask in different orders: no two at once, every host gets
// through, and nothing is left behind.
func TestFaultsInAnyStore(t *testing.T) {
	all, open := stores(3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var inside, total atomic.Int32
	var hosts sync.WaitGroup
	for n := range 4 {
		var mine []backends.Backend
		for i := range all {
			mine = append(mine, backendtest.Faulty(all[(i+n)%3].Open(), func(op string, _ int) backendtest.Fault {
				return backendtest.Fault{Before: rand.IntN(10) == 0, After: rand.IntN(10) == 0}
			}))
		}
		b := multi.New(mine, timeout)
		hosts.Go(func() {
			for range 15 {
				r := request("k")
				l := insist(ctx, b, r)
				if l == nil {
					t.Error("it is never granted")
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d at the same time", n)
				}
				time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
				inside.Add(-1)
				if err := l.Release(ctx, backends.End{Outcome: backends.Succeeded}); err != nil {
					t.Errorf("Release: %v", err)
				}
				total.Add(1)
			}
		})
	}
	hosts.Wait()
	if total.Load() != 60 {
		t.Errorf("%d of 60 runs", total.Load())
	}
	for i, b := range open {
		if s := state(t, b, "k"); s.State != backends.Free {
			t.Errorf("store %d has %+v", i, s)
		}
	}
}

// insist asks as package main does: again with the same owner while the answer is not known, and then gives up what it may
// have got.
func insist(ctx context.Context, b backends.Backend, r backends.Request) backends.Lease {
	for ctx.Err() == nil {
		for range 4 {
			l, err := b.Acquire(ctx, r)
			var held *backends.HeldError
			switch {
			case err == nil:
				return l
			case errors.As(err, &held):
				time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
			}
		}
		for ctx.Err() == nil && b.Abandon(ctx, r) != nil {
		}
		r.Owner = backends.NewOwner()
	}
	return nil
}
