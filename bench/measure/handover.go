package measure

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Pair is how one process takes a lock and how another waits for it.
type Pair struct {
	Hold, Wait func(job ...string) []string // the command line under which a job runs
	Announces  bool                         // Wait's command prints "waiting" before it asks for the lock
	Limit      time.Duration                // for each of the two
}

// HandOver gives the time from the end of the one's job to the first word of the other's: the release, the notice of it,
// the acquire, and the start of a job. The first job ends by a named pipe: not every wrapper hands its stdin on.
func (p Pair) HandOver() (took time.Duration) {
	Must(Perform(func(s *Stage) {
		dir, err := os.MkdirTemp("", "lockrun-handover-")
		Must(err)
		s.Cleanup(func() { os.RemoveAll(dir) })
		path := filepath.Join(dir, "go")
		Must(syscall.Mkfifo(path, 0o600))
		end, err := os.OpenFile(path, os.O_RDWR, 0) // for both, so that opening waits for nobody
		Must(err)
		s.Cleanup(func() { end.Close() })
		holder := Launch(p.Limit, p.Hold("/bin/sh", "-c", `echo up; read line <"$0"`, path)...)
		s.Cleanup(holder.Release)
		holder.Say("up")
		waiter := Launch(p.Limit, p.Wait("/bin/echo", "mine")...)
		s.Cleanup(waiter.Release)
		if p.Announces {
			waiter.Say("waiting")
		}
		// Long enough for the waiter to have been refused, and not in step with any back-off.
		time.Sleep(500*time.Millisecond + rand.N(300*time.Millisecond))
		if waiter.EndsWithin(0) {
			Must(fmt.Errorf("%s does not wait: %w", waiter, ErrNoMeasure))
		}
		begin := time.Now()
		fmt.Fprintln(end)
		waiter.Say("mine")
		took = time.Since(begin)
		holder.Succeed()
		waiter.Succeed()
	}))
	return took
}
