package kafka

import (
	"time"

	"github.com/lockrun/lockrun/internal/boottime"
)

// clock is what is known of the broker's clock. Kafka tells the time only to who appends. Whoever has, knows it from then
// on by the time that has passed; who only reads has to take the host's word, which at least is never behind the last
// record. Nothing is granted or refused by it: that the records' own times decide.
type clock struct {
	at       int64         // ms, at the last append; 0: none yet
	received time.Duration // when the reply to it came, so that what follows from it is never ahead
	seen     int64         // the latest time of any record
}

// anchored is how long the time of an append is relied on before Now asks again. Clocks of hosts differ in rate by some
// hundred microseconds in ten seconds.
const anchored = 10 * time.Second

func (c *clock) set(at int64, received time.Duration) {
	c.at, c.received = at, received
	c.atLeast(at)
}

func (c *clock) atLeast(ms int64) { c.seen = max(c.seen, ms) }

// exact is the broker's time, if an append has told it not long ago.
func (c *clock) exact() (ms int64, ok bool) {
	past := boottime.Now() - c.received
	return c.at + past.Milliseconds(), c.at != 0 && past < anchored
}

// now is the best guess at the broker's time.
func (c *clock) now() int64 { return max(c.guess(), c.seen) }

// guess is now without regard to what records have shown. Where the broker's clock has been set back it is what the next
// record will show; who waits goes by it, and does not ask in vain again and again.
func (c *clock) guess() int64 {
	if c.at == 0 {
		return time.Now().UnixMilli()
	}
	return c.at + (boottime.Now() - c.received).Milliseconds()
}
