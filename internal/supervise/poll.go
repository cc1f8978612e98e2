//go:build unix

package supervise

import "golang.org/x/sys/unix"

// poll waits until one of the descriptors can be read, for at most so many milliseconds (-1: without end). It may also
// return for no reason.
func poll(ms int, fds ...int) {
	var p [2]unix.PollFd
	for i, fd := range fds {
		p[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	unix.Poll(p[:len(fds)], ms)
}
