package main

import (
	"context"
	"time"
)

// leastForRecord is what writing down a run that got no answer may take at least, however long the answer was waited for.
const leastForRecord = 250 * time.Millisecond

// lastMoment is when an attempt without an answer, which began at began, has to have ended: after --wait, the backend timeout
// and a second.
func (r *runner) lastMoment(began time.Duration) time.Duration {
	if r.cfg.Wait == WaitForever {
		return WaitForever
	}
	return began + r.cfg.Wait + r.cfg.BackendTimeout + time.Second
}

// noteElsewhere writes down a run that had no lease for want of an answer, where the store that keeps the records may be
// another one than that which does not answer: the store of --record, or the first of several. It ends until over, and
// changes nothing where it fails.
func (r *runner) noteElsewhere(over time.Duration) {
	only := *r.cfg
	switch {
	case r.cfg.Record != nil && (len(r.cfg.Backends) > 1 || !sameStore(*r.cfg.Record, r.cfg.Backends[0])):
		only.Backends = []Store{*r.cfg.Record}
	case len(r.cfg.Backends) > 1:
		only.Backends = r.cfg.Backends[:1]
	default:
		return // nobody to be told
	}
	only.Record, only.Fallback = nil, nil
	bound := min(r.cfg.BackendTimeout, time.Second, max(over-leastForRecord-bootNow(), leastForRecord))
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	b, err := r.open(ctx, &only)
	if err != nil {
		r.ui.info("the run is not recorded: %v", err)
		return
	}
	defer func() { _ = b.Close() }() // it was only told something
	rec := r.recordNow()
	rec.Backend, rec.StartedAt, rec.EndedAt = "", time.Time{}, time.Time{} // by the store's own clock
	if err := b.Record(ctx, rec); err != nil {
		r.ui.info("the run is not recorded: %v", err)
	}
}
