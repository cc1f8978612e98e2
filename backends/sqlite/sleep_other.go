//go:build unix && !linux

package sqlite

import (
	"context"
	"time"
)

// sleeper sleeps until its time or its context is over.
type sleeper struct{ ctx context.Context }

func newSleeper(ctx context.Context) (*sleeper, error) { return &sleeper{ctx}, nil }

func (s *sleeper) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.ctx.Done():
	case <-t.C:
	}
}

func (s *sleeper) close() {}
