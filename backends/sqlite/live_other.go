//go:build unix && !linux

package sqlite

import (
	"errors"
	"os"
)

// haveLocks tells whether this system has locks that belong to the open file description. Without them a dead holder's
// lease is left to its expiry.
const haveLocks = false

func setReadLock(*os.File, int64, int64) error { return errors.ErrUnsupported }

func findLock(*os.File, int64, int64) (start, length int64, taken bool, err error) {
	return 0, 0, false, errors.ErrUnsupported
}

// allocate is done on Linux only.
func allocate(*os.File, int64, int64) error { return nil }
