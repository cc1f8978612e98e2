package main

import (
	"os"
	"path/filepath"
	"time"

	"github.com/lockrun/lockrun/bench/measure"
)

// handover is the time from the end of the holder's job to the first word of the waiter's, as whole processes: the
// release, the notice of it, the acquire, and the start of a job. Beside it, flock does the same.
func (b *bench) handover(s *stage, st *store) []row {
	dir, err := os.MkdirTemp("", "lockrun-bench-")
	must(err)
	s.Cleanup(func() { os.RemoveAll(dir) })
	lock := filepath.Join(dir, "lock")
	lockrun := func(more ...string) []string {
		return append([]string{b.lockrun, "--backend", st.url, "--key", "handover"}, more...)
	}
	var ours, peer []time.Duration
	for range b.handovers {
		ours = append(ours, measure.HandOver(lockrun("--", "cat"), lockrun("--wait", "60s", "--", "echo", "mine")))
		peer = append(peer, measure.HandOver([]string{b.flock, lock, "cat"}, []string{b.flock, lock, "echo", "mine"}))
	}
	return []row{times(st.name+", a lease handed to a waiter, from the end of one job to the first word of the next, against flock", ours, peer)}
}
