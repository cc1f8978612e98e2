package sqlite

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// haveLocks tells whether this system has locks that belong to the open file description.
const haveLocks = true

// setReadLock locks n bytes from offset for as long as the open file description lives.
func setReadLock(f *os.File, offset, n int64) error {
	l := unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart, Start: offset, Len: n}
	return fcntlLock(f, unix.F_OFD_SETLK, &l)
}

// findLock names one lock in the range that another open file description has, without touching it.
func findLock(f *os.File, offset, n int64) (start, length int64, taken bool, err error) {
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: offset, Len: n}
	if err := fcntlLock(f, unix.F_OFD_GETLK, &l); err != nil || l.Type == unix.F_UNLCK {
		return 0, 0, false, err
	}
	return l.Start, l.Len, true, nil
}

func fcntlLock(f *os.File, cmd int, l *unix.Flock_t) error {
	for {
		err := unix.FcntlFlock(f.Fd(), cmd, l)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// allocate gives the file blocks for n bytes from offset without changing its size. A file system that cannot is no error.
func allocate(f *os.File, offset, n int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, offset, n)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
			return nil
		}
		return err
	}
}
