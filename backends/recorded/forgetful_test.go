package recorded_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// Hosts that all want the same run ids, and a store of leases that forgets them all the time: of each id one run at a time,
// and in the end one success.
func TestOneRunOfAnIDHoweverOftenTheLeaseIsForgotten(t *testing.T) {
	const ids, hosts = 6, 6
	p := newPair(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	forgetting := make(chan struct{})
	go func() {
		defer close(forgetting)
		for ctx.Err() == nil {
			p.leases.Remove("k")
			time.Sleep(500 * time.Microsecond)
		}
	}()
	var running, succeeded [ids]atomic.Int32
	var all sync.WaitGroup
	for range hosts {
		b := p.host()
		all.Go(func() {
			for id := range ids {
				if err := untilDone(ctx, b, fmt.Sprint(id), &running[id], &succeeded[id]); err != nil {
					t.Errorf("run %d: %v", id, err)
				}
			}
		})
	}
	all.Wait()
	stop()
	<-forgetting
	for id := range ids {
		if n := succeeded[id].Load(); n != 1 {
			t.Errorf("run %d has succeeded %d times", id, n)
		}
	}
}

// untilDone runs the id, again and again, until somebody has succeeded with it.
func untilDone(ctx context.Context, b backends.Backend, id string, running, succeeded *atomic.Int32) error {
	for ctx.Err() == nil {
		r := request(id)
		l, err := b.Acquire(ctx, r)
		var held *backends.HeldError
		var done *backends.DoneError
		switch {
		case errors.As(err, &done):
			return nil
		case errors.As(err, &held):
			time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
			continue
		case err != nil:
			return err
		}
		if n := running.Add(1); n != 1 {
			return fmt.Errorf("%d at the same time", n)
		}
		time.Sleep(time.Duration(rand.IntN(600)) * time.Microsecond)
		end := backends.End{Outcome: backends.Succeeded}
		if errors.Is(l.Renew(ctx, time.Minute), backends.ErrLost) {
			end.Outcome = backends.Lost
		}
		running.Add(-1) // the command has ended before its lease is given back
		if err = l.Release(ctx, end); err == nil && end.Outcome == backends.Succeeded {
			succeeded.Add(1)
		}
	}
	return ctx.Err()
}
