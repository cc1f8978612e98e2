//go:build netbsd || openbsd

package boottime

// CLOCK_MONOTONIC, which x/sys does not name here.
const clock = 3
