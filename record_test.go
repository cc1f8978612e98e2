package main

import (
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/memory"
)

// A record is put among others by its end, which is not as long after the grant as COMMAND ran: it began later.
func TestARecordEndsWhenCommandDid(t *testing.T) {
	store := memory.New(time.Now, backends.DefaultKeep)
	l := taken(t, store, backends.Request{Key: "k"})
	took := 5 * time.Second
	r := &runner{cfg: &Config{}, lease: l, sentAt: time.Hour, started: time.Hour + 3*time.Second}
	r.record.Duration = &took
	if rec := r.recordNow(); !rec.StartedAt.Equal(l.Grant().AcquiredAt) || rec.EndedAt.Sub(rec.StartedAt) != 8*time.Second {
		t.Errorf("from %v to %v, granted %v", rec.StartedAt, rec.EndedAt, l.Grant().AcquiredAt)
	}
	// Without a lease it began with COMMAND, and does not end in the future.
	before := time.Now()
	r.lease, r.started = nil, bootNow()-took
	if rec := r.recordNow(); rec.EndedAt.Sub(rec.StartedAt) != took || rec.EndedAt.Before(before.Add(-time.Minute)) || rec.EndedAt.After(time.Now()) {
		t.Errorf("at %v: from %v to %v", before, rec.StartedAt, rec.EndedAt)
	}
	// COMMAND was never started: what ended is the lease.
	none := time.Duration(0)
	r.lease, r.started, r.sentAt, r.record.Duration = l, 0, bootNow()-took, &none
	if rec := r.recordNow(); rec.EndedAt.Sub(rec.StartedAt) < took {
		t.Errorf("from %v to %v", rec.StartedAt, rec.EndedAt)
	}
}
