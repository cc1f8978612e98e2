package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// sleeper sleeps in the kernel until its time or its context is over. It is for one goroutine.
type sleeper struct {
	fd   int
	stop func() bool
	mu   sync.Mutex
	over bool // fd is closed, and may be another file's by now
}

func newSleeper(ctx context.Context) (*sleeper, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	s := &sleeper{fd: fd}
	s.stop = context.AfterFunc(ctx, s.wake)
	return s, nil
}

func (s *sleeper) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		unix.Write(s.fd, binary.NativeEndian.AppendUint64(nil, 1))
	}
}

func (s *sleeper) sleep(d time.Duration) {
	ms := int((d + time.Millisecond - 1) / time.Millisecond)
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, ms)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func (s *sleeper) close() {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	unix.Close(s.fd)
}
