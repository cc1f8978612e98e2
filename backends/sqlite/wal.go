package sqlite

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// The write-ahead log is read from end to end by whoever opens the database first after nobody had it open, so it must
// not grow long; yet each copying of it into the database costs two waits for the disk, so that must not be done at every
// run, and not on the way to a job's start. A run writes about six pages. So a closing connection copies the log and
// cuts it to nothing from walLong pages on, and one that goes on renewing has it copied at walCopy, after which SQLite
// writes over it from its beginning.
const (
	walPage    = 4096 + 24
	walLong    = 64
	walCopy    = 96
	walReserve = 128 * walPage
)

// dbReserve is what copying the log may add to the database file: a few split pages.
const dbReserve = 64 << 10

// shrink copies a long write-ahead log into the database. Others that use it right now make that fail, and then one of
// them does it later.
func (b *backend) shrink(c *conn) {
	var st unix.Stat_t
	if unix.Stat(b.path+"-wal", &st) == nil && st.Size > walLong*walPage {
		c.one("PRAGMA wal_checkpoint(TRUNCATE)")
		b.reserve() // others may hold leases, and rely on the room that was just given up
	}
}

// reserve sees to it that a lease can be renewed and released however full the disk becomes meanwhile: a renewal changes
// a row in place, but it is written to the log first. A disk that has no room for that has none for a lease.
func (b *backend) reserve() error {
	wal := b.path + "-wal"
	var st unix.Stat_t
	if unix.Stat(wal, &st) != nil || st.Blocks*512 >= walReserve {
		return b.reserveDatabase()
	}
	f, err := os.OpenFile(wal, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close() // SQLite has its locks on the database and on -shm; those would not survive it
	if err := allocate(f, 0, walReserve); err != nil {
		return err
	}
	return b.reserveDatabase()
}

func (b *backend) reserveDatabase() error {
	var st unix.Stat_t
	if b.pin == nil || unix.Fstat(int(b.pin.Fd()), &st) != nil || st.Blocks*512 >= st.Size+dbReserve/2 {
		return nil
	}
	return allocate(b.pin, st.Size, dbReserve)
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
	files map[fileID]*os.File
}

// SQLite's readers lock this range of the database, beyond the largest page it uses for data.
const (
	sharedFirst = 0x40000000 + 2
	sharedSize  = 510
)

// pinned returns this process's pin of the database; nil where there can be none, and then the log is copied after all.
func pinned(path string, id fileID) *os.File {
	pins.Lock()
	defer pins.Unlock()
	if !haveLocks {
		return nil
	}
	if f, known := pins.files[id]; known {
		return f
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	if pins.files == nil {
		pins.files = map[fileID]*os.File{}
	}
	pins.files[id] = f
	setReadLock(f, sharedFirst, sharedSize) // where it fails there is still a descriptor to reserve room with
	return f
}
