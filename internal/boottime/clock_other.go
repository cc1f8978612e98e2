//go:build unix && !linux && !darwin && !freebsd && !netbsd && !openbsd

package boottime

// CLOCK_MONOTONIC, as DragonFly, Solaris and illumos number it.
const clock = 4
