//go:build unix

// Package boottime is the one clock by which a lease's deadline is judged: time since the host was started, going on
// while it is suspended, never set by anybody. Go's own monotonic clock stops in suspend (golang/go#24595), so a laptop
// that wakes up would believe that its lease is still good.
//
// All processes of a host agree on it, those in another time namespace included.
package boottime

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since the host was started. It may be called at any time and by any goroutine, and costs one system
// call. Where the system has no clock that counts suspend (the BSDs), time spent suspended may be missing.
func Now() time.Duration { return Raw() - Offset() }

// Raw is the clock as the kernel shows it to this process, without Offset taken away: what timers of the kernel and
// start times in /proc are counted in.
func Raw() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(clock, &ts) != nil && unix.ClockGettime(fallback, &ts) != nil {
		return time.Since(epoch()) // no such system is known; a clock that at least never jumps
	}
	return time.Duration(ts.Nano())
}

var epoch = sync.OnceValue(time.Now)

// Offset is how far a time namespace has moved this process's clock from the host's; zero outside of one.
func Offset() time.Duration { return offset() }

// BootID is a random name of this boot: two readings differ if and only if the host was restarted in between. It is
// empty where the system has none.
func BootID() string { return bootID() }

var (
	offset = sync.OnceValue(readOffset)
	bootID = sync.OnceValue(readBootID)
)
