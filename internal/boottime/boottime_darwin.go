package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	clock    = unix.CLOCK_MONOTONIC // counts sleep on this system; CLOCK_UPTIME_RAW is the one that does not
	fallback = unix.CLOCK_MONOTONIC
)

func readOffset() time.Duration { return 0 }

func readBootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}
