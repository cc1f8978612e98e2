package firestore

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/boottime"
)

// belief is a stretch of time for which a holder relied on its lease.
type belief struct {
	from, until time.Duration // on the boot clock, which all contenders here share
	token       int64
}

// TestNoTwoHoldersBelieve: contenders with short leases acquire, renew, release and crash, each relying on nothing but its
// own clock and what it was granted. However the expiry is judged, no two of them may believe at one time.
func TestNoTwoHoldersBelieve(t *testing.T) {
	url := freshURL(t)
	const ttl = 400 * time.Millisecond
	const enough = 20
	end := time.Now().Add(patience)
	var mu sync.Mutex
	var all []belief
	var wg sync.WaitGroup
	for range 6 {
		b := opened(t, url, backends.Options{Timeout: patience})
		wg.Go(func() {
			for more := true; more && time.Now().Before(end); {
				held := hold(t, b, ttl)
				mu.Lock()
				if held != nil {
					all = append(all, *held)
				}
				more = len(all) < enough
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.SortFunc(all, func(x, y belief) int { return cmp.Compare(x.from, y.from) })
	for i := 1; i < len(all); i++ {
		if before, after := all[i-1], all[i]; after.from < before.until {
			t.Errorf("token %d was relied on until %v, and token %d from %v", before.token, before.until, after.token, after.from)
		} else if after.token <= before.token {
			t.Errorf("token %d after %d", after.token, before.token)
		}
	}
	t.Logf("%d leases", len(all))
	if len(all) < 2 {
		t.Errorf("only %d leases in all", len(all))
	}
}

// hold takes the lease, if it can be had, relies on it for a while, and gives it back or crashes.
func hold(t *testing.T, b *backend, ttl time.Duration) *belief {
	r := request("k")
	r.TTL = ttl
	sent := boottime.Now()
	l, err := b.Acquire(context.Background(), r)
	if held := (*backends.HeldError)(nil); errors.As(err, &held) {
		time.Sleep(rand.N(20 * time.Millisecond))
		return nil
	} else if err != nil {
		t.Error(err)
		return nil
	}
	g := l.Grant()
	h := &belief{boottime.Now(), sent + g.TTL - g.Drift, g.Token}
	for range rand.N(4) {
		time.Sleep(rand.N(ttl / 3))
		sent := boottime.Now()
		if err := l.Renew(context.Background(), ttl); errors.Is(err, backends.ErrLost) {
			break
		} else if err != nil {
			t.Error(err)
			break
		}
		h.until = sent + ttl - g.Drift
	}
	if now := boottime.Now(); rand.N(3) > 0 && now < h.until {
		h.until = now // from here on nothing is relied on
		if err := l.Release(context.Background(), backends.End{Outcome: backends.Succeeded}); err != nil && !errors.Is(err, backends.ErrLost) {
			t.Error(err)
		}
	}
	if h.until <= h.from {
		return nil // the grant had run out on its way, and so was none
	}
	return h
}
