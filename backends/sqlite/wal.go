package sqlite

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// walLimit is the size of the write-ahead log from which it is copied into the database: about fifteen runs. Whoever
// opens the database first after nobody had it open reads the log from end to end, so it must not grow long, and each
// copying costs two waits for the disk, so it must not be done at every run.
const walLimit = 64 * (4096 + 24)

// shrink copies a long write-ahead log into the database and cuts it to nothing. Others that use it make that fail, and
// then one of them does it later.
func (b *backend) shrink(c *conn) {
	var st unix.Stat_t
	if unix.Stat(b.path+"-wal", &st) == nil && st.Size > walLimit {
		c.one("PRAGMA wal_checkpoint(TRUNCATE)")
	}
}

// pins are descriptors that keep SQLite from doing at each end of a run what shrink does once in a while.
//
// The last connection to be closed copies the whole log, waits for the disk twice, and deletes -wal and -shm, which the
// next run creates again: several times the cost of the run itself. The drivers do not offer the switch that SQLite has
// for it (SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE), but "last" is decided by an exclusive lock on the database, and one more
// reader's lock makes that fail. A pin is never closed: closing any descriptor of a file drops all of this process's
// POSIX locks on it, those of other connections included. The end of the process is its end.
var pins struct {
	sync.Mutex
	done  map[fileID]bool
	files []*os.File
}

// SQLite's readers lock this range of the database, beyond the largest page it uses for data.
const (
	sharedFirst = 0x40000000 + 2
	sharedSize  = 510
)

// pin must be called while this process has a connection to the file.
func pin(path string, id fileID) {
	pins.Lock()
	defer pins.Unlock()
	if !haveLocks || pins.done[id] {
		return
	}
	if pins.done == nil {
		pins.done = map[fileID]bool{}
	}
	pins.done[id] = true
	f, err := os.Open(path)
	if err != nil {
		return
	}
	pins.files = append(pins.files, f)      // or the garbage collector would close it
	setReadLock(f, sharedFirst, sharedSize) // where it fails, the log is copied after all
}
