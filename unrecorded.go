package main

import (
	"context"
	"time"
)

// leastForRecord is what writing down a run that got no answer may take at least, however long the answer was waited for.
const leastForRecord = 250 * time.Millisecond

// noteUnavailable writes down a run that got no answer, where the store that keeps the records may be another one than that
// which does not answer: the store of --record, or the first of several. It ends within --wait, the backend timeout and a
// second, since the run began to ask at began, and changes nothing where it fails.
func (r *runner) noteUnavailable(began time.Duration) {
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
	bound := min(r.cfg.BackendTimeout, time.Second)
	if r.cfg.Wait != WaitForever {
		over := began + r.cfg.Wait + r.cfg.BackendTimeout + time.Second - leastForRecord
		bound = min(bound, max(over-bootNow(), leastForRecord))
	}
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
