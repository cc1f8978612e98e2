package backends

import (
	"fmt"
	"time"
)

// Check returns an error where no store of ours grants this for r: a job must not run with a token that protects nothing, a
// slot that it did not ask for, or a deadline later than the one it was told to keep. The answer is then not known.
func (g Grant) Check(r Request) error {
	switch {
	case g.Token <= 0 || g.Token >= 1<<53:
		return fmt.Errorf("the store granted the token %d, which is not from 1 to 2^53-1", g.Token)
	case g.Slot < 0 || g.Slot >= r.Slots:
		return fmt.Errorf("the store granted slot %d of %d", g.Slot, r.Slots)
	case g.Attempt < 1:
		return fmt.Errorf("the store counted this as attempt %d", g.Attempt)
	case g.TTL <= 0 || g.TTL > r.TTL+time.Millisecond || g.Drift < 0: // stores that count in milliseconds may round up
		return fmt.Errorf("the store granted %v where %v was asked for", g.TTL, r.TTL)
	}
	return nil
}
