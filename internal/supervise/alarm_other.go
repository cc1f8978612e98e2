//go:build unix && !linux

package supervise

import "time"

// alarm wakes the loop when a moment of the boot clock has come. A time-out may stop in suspend, so the loop looks at the
// clock each second.
type alarm struct{}

func (a *alarm) poll(r int, now, until time.Duration) {
	d := min(max(until-now, 0)+time.Millisecond-1, time.Second)
	poll(int(d/time.Millisecond), r)
}

func (a *alarm) close() {}
