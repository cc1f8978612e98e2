package supervise

import (
	"time"

	"golang.org/x/sys/unix"
)

// alarm wakes the loop at a moment of the boot clock. poll's own time-out stops in suspend, so that a laptop would look
// at a passed deadline only as long after waking up as was left when it fell asleep; a timer of the kernel on
// CLOCK_BOOTTIME fires at once. Without one the loop looks at the clock each second.
type alarm struct {
	fd     int // 0: not made yet
	broken bool
	armed  time.Duration
}

// poll waits until r can be read or until has come.
func (a *alarm) poll(r int, now, until time.Duration) {
	if until <= now {
		poll(0, r)
		return
	}
	if a.arm(until) {
		poll(-1, r, a.fd)
		return
	}
	poll(int(min(until-now+time.Millisecond-1, time.Second)/time.Millisecond), r)
}

func (a *alarm) arm(until time.Duration) bool {
	if a.fd == 0 && !a.broken {
		fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
		a.fd, a.broken = fd, err != nil
	}
	if a.broken || a.armed == until {
		return !a.broken
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(rawNanos(until))}
	if unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &spec, nil) != nil {
		a.close()
		a.broken = true
		return false
	}
	a.armed = until
	return true
}

func (a *alarm) close() {
	if a.fd > 0 {
		unix.Close(a.fd)
		a.fd = 0
	}
}
