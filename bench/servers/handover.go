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
	wrap := func(prefix ...string) func(...string) []string {
		return func(job ...string) []string { return append(append([]string{}, prefix...), job...) }
	}
	flock := wrap(b.flock, filepath.Join(dir, "lock"))
	lockrun := []string{b.lockrun, "--backend", st.url, "--key", "handover"}
	pairs := [2]measure.Pair{
		{Hold: wrap(append(lockrun, "--")...), Wait: wrap(append(lockrun, "--wait", "60s", "--")...), Limit: time.Minute},
		{Hold: flock, Wait: flock, Limit: time.Minute},
	}
	var took [2][]time.Duration
	for range b.handovers {
		for i, p := range pairs {
			took[i] = append(took[i], p.HandOver())
		}
	}
	return []row{times(st.name+", a lease handed to a waiter, from the end of one job to the first word of the next, against flock", took[0], took[1])}
}
