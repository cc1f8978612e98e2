package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Errors of open that no repetition mends.
var (
	errClosed  = errors.New("it is closed")
	errReading = errors.New("it was opened for reading only")
	errNotOurs = errors.New("the file is a database of another program")
	errNewer   = errors.New("the database was made by a newer lockrun")
	errDamaged = errors.New("the database is damaged")
)

// connect makes b.c a connection to the file that has the path now. A database that was deleted or replaced since is
// forgotten with all its leases: writing on into a file without a name would look like success to its holder while
// others use the new one.
func (b *backend) connect(ctx context.Context, a access) error {
	if b.closed {
		return errClosed
	}
	if b.o.ReadOnly && a != reading {
		return errReading
	}
	id, err := statID(b.path)
	if b.c != nil && err == nil && id == b.id {
		return nil
	}
	b.disconnect()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if a != creating {
			return nil
		}
		if err := b.create(ctx); err != nil {
			return err
		}
		if id, err = statID(b.path); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	b.id = id
	if err := b.checkCompanions(); err != nil {
		return err
	}
	if err := b.dialChecked(ctx); err != nil {
		return err
	}
	// Once more, since by now they have been opened: whoever came in between cannot take them away unseen.
	if err := b.checkCompanions(); err != nil {
		b.disconnect()
		return err
	}
	return nil
}

// dialChecked connects and makes sure that the database is ours, of this version, and in WAL mode.
func (b *backend) dialChecked(ctx context.Context) error {
	c, err := b.dial()
	if err != nil {
		return err
	}
	// One state of the file, not one a question: another process may be furnishing it.
	found, err := within(c, "BEGIN", func() (condition, error) { return inspect(c) })
	if err == nil && found != ready && !b.o.ReadOnly {
		err = b.underLock(ctx, func() error { return b.furnish(ctx, c) })
	}
	if err != nil || b.o.ReadOnly && found == empty {
		c.close() // an empty file reads as an empty store
		return err
	}
	b.c, b.pin = c, nil
	if b.o.ReadOnly {
		return nil
	}
	b.pin = pinned(b.path, b.id)
	b.alignGroups()
	_, err = c.exec(fmt.Sprintf("PRAGMA wal_autocheckpoint=%d", walCopy))
	return err
}

// dial chooses how the file may be opened. A reader must not create -wal and -shm where it is not a member who may write:
// they would be its own, and the members could not use them. Without a -wal the database file is complete, and may be
// read as if it never changed, for one operation; see thawed.
func (b *backend) dial() (*conn, error) {
	b.frozen = false
	if !b.o.ReadOnly {
		if err := unix.Access(b.path, unix.W_OK); err != nil {
			return nil, err // SQLite would open it for reading, and say so only when it has to write
		}
		return dial(b.d, b.path, "mode=rw")
	}
	if unix.Access(b.path, unix.W_OK) == nil && unix.Access(filepath.Dir(b.path), unix.W_OK) == nil {
		return dial(b.d, b.path, "mode=ro")
	}
	if !exists(b.path + "-wal") {
		b.frozen = true
		return dial(b.d, b.path, "mode=ro&immutable=1")
	}
	return dial(b.d, b.path, "mode=ro")
}

// thawed ends a frozen connection after an operation, and tells whether a writer has begun meanwhile, so that what was
// read may be neither what was nor what is.
func (b *backend) thawed() bool {
	if !b.frozen || b.c == nil {
		return false
	}
	b.disconnect()
	return exists(b.path + "-wal")
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// condition is what a file was found to be.
type condition int

const (
	empty    condition = iota // a database without anything in it, or a file of no bytes
	switched                  // ours, but no longer in WAL mode: good enough to read
	ready
)

// inspect errs where the file is not ours to use.
func inspect(c *conn) (condition, error) {
	id, err := c.one("PRAGMA application_id")
	if err != nil {
		return empty, err
	}
	version, err := c.one("PRAGMA user_version")
	if err != nil {
		return empty, err
	}
	v, _ := strconv.Atoi(version)
	switch {
	case id == strconv.Itoa(appID) && v > schemaVersion:
		return empty, fmt.Errorf("%w: schema version %d, this one knows %d", errNewer, v, schemaVersion)
	case id == strconv.Itoa(appID) && v == schemaVersion:
		mode, err := c.one("PRAGMA journal_mode")
		if mode == "wal" {
			return ready, err
		}
		return switched, err
	case id != "0" || v != 0:
		return empty, fmt.Errorf("%w (application_id %s, user_version %d)", errNotOurs, id, v)
	}
	tables, err := c.one("SELECT count(*) FROM sqlite_master")
	if err == nil && tables != "0" {
		err = fmt.Errorf("%w (it has tables, and no mark of lockrun)", errNotOurs)
	}
	return empty, err
}

// furnish switches an empty database to WAL and creates the schema. All who do it at once take turns (underLock), yet
// another program may have the file open: the switch fails as long as anybody reads.
func (b *backend) furnish(ctx context.Context, c *conn) error {
	for n := 0; ; n++ {
		mode, err := c.one("PRAGMA journal_mode=WAL")
		if err == nil && mode == "wal" {
			break
		}
		if err != nil && !passing(err) {
			return err
		}
		b.meets.is(waitsForLock)
		if err := backOff(ctx, n); err != nil {
			return b.gaveUp(err, b.meets)
		}
	}
	_, err := within(c, "BEGIN IMMEDIATE", func() (struct{}, error) {
		found, err := inspect(c)
		if err != nil || found == ready {
			return struct{}{}, err
		}
		for _, sql := range append(ddl, fmt.Sprintf("PRAGMA application_id=%d", appID), fmt.Sprintf("PRAGMA user_version=%d", schemaVersion)) {
			if _, err := c.exec(sql); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// create makes an empty database file and, at the default paths, the folders above it.
func (b *backend) create(ctx context.Context) error {
	dir := filepath.Dir(b.path)
	if err := b.createFolders(dir); err != nil {
		return err
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	mode, gid := fileMode(fi.Mode()), -1
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && mode&0o020 != 0 {
		gid = int(st.Gid) // what the set-group-ID bit would do, had somebody thought of it
	}
	return createShared(b.path, mode, -1, gid)
}

// createFolders creates the folders of the default paths. For root's the mode is 0755, as for everything in /var/lib,
// and the database gets 0644: any user may see what runs. Anywhere else a missing folder is more likely a slip of the
// pen.
func (b *backend) createFolders(dir string) error {
	path, err := DefaultPath(os.Getenv, os.Geteuid())
	if err != nil || path != b.path {
		return nil
	}
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o755
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return err
	}
	return os.Chmod(dir, mode) // whatever the umask
}

// fileMode is the mode of a new database in a folder.
func fileMode(folder fs.FileMode) fs.FileMode {
	if folder&0o002 != 0 {
		return 0o600
	}
	return folder&0o666 | 0o600
}

// createShared makes an empty file with exactly this mode and, where they are not -1 and it may, owner and group. It
// appears under its name complete, so that no other user meets it while the umask still bars the way. A file that is
// there already is left alone.
func createShared(path string, mode fs.FileMode, uid, gid int) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".lockrun-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if uid >= 0 || gid >= 0 {
		f.Chown(uid, gid) // not being allowed to leaves the group of the folder, which explain tells of if it hurts
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	err = renameNew(f.Name(), path)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil { // a system or file system that cannot
		return createPlain(path, mode)
	}
	return nil
}

// createPlain leaves a moment in which the umask bars the way to others; they wait for it to pass, see settling.
func createPlain(path string, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Chmod(mode)
}

// ensureLive makes the file of kernel locks, like the database in mode, owner and group.
func (b *backend) ensureLive() error {
	if _, err := os.Lstat(b.livePath()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(b.path, &st); err != nil {
		return err
	}
	uid := -1
	if os.Geteuid() == 0 {
		uid = int(st.Uid)
	}
	return createShared(b.livePath(), fs.FileMode(st.Mode&0o666), uid, int(st.Gid))
}

// underLock keeps others from creating the store at the same time.
func (b *backend) underLock(ctx context.Context, f func() error) error {
	if err := b.ensureLive(); err != nil {
		return err
	}
	live, err := os.Open(b.livePath())
	if err != nil {
		return err
	}
	defer live.Close()
	for n := 0; ; n++ {
		err := unix.Flock(int(live.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f()
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("locking %s: %w", b.livePath(), err)
		}
		b.meets.is(waitsForCreator)
		if err := backOff(ctx, n); err != nil {
			return b.gaveUp(err, b.meets)
		}
	}
}

// alignGroups gives -wal and -shm the database's group where SQLite, which can as root only, left them to the process's.
// Failing is for explain to tell, if anybody is hurt by it.
func (b *backend) alignGroups() {
	var db, st unix.Stat_t
	if unix.Stat(b.path, &db) != nil {
		return
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if unix.Lstat(b.path+suffix, &st) == nil && st.Gid != db.Gid && int(st.Uid) == os.Geteuid() {
			unix.Lchown(b.path+suffix, -1, int(db.Gid))
		}
	}
}
