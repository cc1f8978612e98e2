package sqlite

import (
	"time"

	"github.com/lockrun/lockrun/internal/boottime"
)

// instant is the host's time, which is the store's: by the clock that nobody sets, and by the wall clock.
type instant struct {
	boot  string        // which start of the host
	since time.Duration // since then
	wall  time.Time
}

// clock reads the host's time. Tests put their own in its place.
type clock func() instant

func hostClock() instant {
	return instant{boottime.BootID(), boottime.Now(), time.Now().UTC()}
}

// micros is the wall clock as stored.
func (i instant) micros() int64 { return i.wall.UnixMicro() }

// plus is the stored form of the instant d from now, by both clocks.
func (i instant) plus(d time.Duration) deadline {
	return deadline{boot: i.boot, mono: int64(i.since + d), wall: i.wall.Add(d).UnixMicro()}
}

// deadline is an instant in the future as stored. Within the same boot the clock that nobody sets decides, after a
// reboot the wall clock has to.
type deadline struct {
	boot string
	mono int64 // nanoseconds since that boot
	wall int64 // microseconds since 1970
}

// left is how much time remains; zero or negative when it has passed.
func (d deadline) left(now instant) time.Duration {
	if d.boot == now.boot {
		return time.Duration(d.mono) - now.since
	}
	return time.UnixMicro(d.wall).Sub(now.wall)
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }
