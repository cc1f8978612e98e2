package boottime

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	clock    = unix.CLOCK_BOOTTIME
	fallback = unix.CLOCK_MONOTONIC // a seccomp filter may know only the classic clocks
)

// initialTimeNS is the inode of the first time namespace, a constant of the kernel (PROC_TIME_INIT_INO).
const initialTimeNS = "time:[4026531834]"

// readOffset looks into the namespace only where there is one besides the first, so that everybody else pays for one
// readlink. The kernel shows the offsets of the namespace that children will get; it is ours in every process that was
// executed after the unshare, which is how a program gets into one.
func readOffset() time.Duration {
	ns, err := os.Readlink("/proc/self/ns/time")
	if err != nil || ns == initialTimeNS {
		return 0
	}
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil {
		return 0
	}
	return parseOffset(string(text))
}

// parseOffset reads the line "boottime SECONDS NANOSECONDS"; the nanoseconds are never negative.
func parseOffset(text string) time.Duration {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "boottime" && f[0] != strconv.Itoa(unix.CLOCK_BOOTTIME) {
			continue
		}
		s, err1 := strconv.ParseInt(f[1], 10, 64)
		n, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 == nil && err2 == nil {
			return time.Duration(s)*time.Second + time.Duration(n)
		}
	}
	return 0
}

func readBootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
