package backends

import (
	"context"
	"time"
)

// UntilAnswered repeats f until its answer is known, or useless to ask for again, or ctx ends. What f does has to be
// repeatable.
func UntilAnswered(ctx context.Context, f func() error) error {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		err := f()
		if err == nil || Positive(err) || IsPermanent(err) || !Sleep(ctx, pause) {
			return err
		}
	}
}

// Sleep waits for d and tells whether it has passed before ctx ended; where both are over already, ctx counts.
func Sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
