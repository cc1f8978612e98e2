package main

import (
	"context"
	"errors"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// lookBound is how long the end of a run that has lost its lease may take to find out who took it away.
const lookBound = time.Second

// whyLost is what the heartbeat knows of a lost lease, and where the store took it away, by whom. It asks the store, and so
// must come after the kill.
func (r *runner) whyLost() string {
	why := r.keep.why()
	if !errors.Is(why, backends.ErrLost) {
		return why.Error()
	}
	return why.Error() + " (" + r.takenBy() + ")"
}

// takenBy looks once, and for a moment, who broke the lease. Where nobody is known to have done so it says what else it may
// have been: a store that has forgotten a lease does not know why either.
func (r *runner) takenBy() string {
	ctx, cancel := context.WithTimeout(context.Background(), min(r.cfg.BackendTimeout, lookBound))
	defer cancel()
	g := r.lease.Grant()
	broken, err := r.b.History(ctx, backends.Query{Key: r.req.Key, Outcomes: []backends.Outcome{backends.Unlocked}, Limit: max(r.cfg.Slots, 10)})
	if err == nil {
		for _, rec := range broken {
			if rec.Token == g.Token && rec.Reason != "" {
				return rec.Reason
			}
		}
	}
	return "broken by an operator, expired, or removed"
}
