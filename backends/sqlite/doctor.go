package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/backends"
)

// Init creates the database.
func (b *backend) Init(ctx context.Context) error {
	_, err := do(ctx, b, "init", creating, func(*conn) (struct{}, error) { return struct{}{}, nil })
	return err
}

// InitPlan shows the schema as SQL that the sqlite3 shell understands.
func (b *backend) InitPlan() string {
	return fmt.Sprintf("-- %s\nPRAGMA journal_mode=WAL;\nPRAGMA application_id=%d;\nPRAGMA user_version=%d;\n%s",
		b.path, appID, schemaVersion, plan())
}

// Doctor examines the database without changing it.
func (b *backend) Doctor(ctx context.Context) []backends.Check {
	checks := []backends.Check{b.checkAccess(), b.checkDisk(), b.checkSpace(), b.checkLocks()}
	found, err := do(ctx, b, "doctor", reading, func(c *conn) ([]backends.Check, error) {
		if c == nil {
			return nil, nil
		}
		return []backends.Check{b.checkWriteLock(ctx), b.checkSchema(c), b.checkWAL(c), b.checkIntegrity(c)}, nil
	})
	if err != nil {
		return append(checks, b.badBy("database", err))
	}
	return append(checks, found...)
}

func (b *backend) good(name, cause string) backends.Check {
	return backends.Check{Backend: b.Name(), Check: name, OK: true, Cause: cause}
}

func (b *backend) bad(name, cause, remedy string) backends.Check {
	return backends.Check{Backend: b.Name(), Check: name, Cause: cause, Remedy: remedy}
}

// badBy is a check that err failed.
func (b *backend) badBy(name string, err error) backends.Check {
	var e *backends.Error
	if errors.As(b.explain("doctor", err), &e) {
		return b.bad(name, e.Err.Error(), e.Remedy)
	}
	return b.bad(name, err.Error(), "")
}

// checkAccess asks whether this user could run something, which takes the right to write to each of the files, and to
// the folder of those that are not there.
func (b *backend) checkAccess() backends.Check {
	_, err := os.Stat(filepath.Dir(b.path))
	if errors.Is(err, fs.ErrNotExist) {
		return b.checkNoFolder()
	}
	if what, remedy := b.denial(true); what != "" {
		return b.bad("path", what, remedy)
	}
	var st unix.Stat_t
	if err := unix.Stat(b.path, &st); errors.Is(err, fs.ErrNotExist) {
		return b.good("path", "the database does not exist yet; the first run creates it")
	}
	c := b.good("path", describe(b.path))
	if st.Mode&0o002 != 0 {
		c.Remedy = "everybody may write to it, and so end any lease: chmod o-w"
	}
	return c
}

// checkNoFolder is about a folder that the first run creates, or that nobody creates.
func (b *backend) checkNoFolder() backends.Check {
	dir := filepath.Dir(b.path)
	if path, err := DefaultPath(os.Getenv, os.Geteuid()); err != nil || path != b.path {
		remedy, _ := b.remedy(fs.ErrNotExist)
		return b.bad("path", "the folder "+dir+" does not exist", remedy)
	}
	if what, remedy := noFolder(dir); what != "" {
		return b.bad("path", what, remedy)
	}
	return b.good("path", "neither the folder nor the database exists yet; the first run creates them")
}

// lockPatience is how long the doctor waits for the write lock, which a healthy store has free most of the time.
const lockPatience = time.Second

var errLookOnly = errors.New("nothing was to be changed")

// checkWriteLock takes the write lock and gives it back.
func (b *backend) checkWriteLock(ctx context.Context) backends.Check {
	const name = "write lock"
	if b.frozen || unix.Access(b.path, unix.W_OK) != nil {
		return b.bad(name, "this user may not write to the database", "see the check of the path")
	}
	patience := lockPatience
	if end, bounded := ctx.Deadline(); bounded {
		patience = min(patience, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// The connection that reads stays open meanwhile, so that this one is not the last to be closed, which would write.
	c, err := dial(b.d, b.path, "mode=rw")
	if err != nil {
		return b.badBy(name, err)
	}
	defer c.close()
	h := &hindrance{}
	for n := 0; ; n++ {
		_, err = within(c, "BEGIN IMMEDIATE", func() (struct{}, error) { return struct{}{}, errLookOnly })
		if err == errLookOnly {
			return b.good(name, "it can be taken")
		}
		if !passing(err) {
			return b.badBy(name, err)
		}
		h.is(waitsForLock)
		if err := backOff(ctx, n); err != nil {
			return b.badBy(name, b.gaveUp(err, h))
		}
	}
}

func (b *backend) checkDisk() backends.Check {
	dir := filepath.Dir(b.path)
	name, err := fileSystem(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return b.good("file system", "the folder does not exist yet")
	case err != nil:
		return b.bad("file system", err.Error(), "")
	case name != "":
		return b.bad("file system", dir+" is on a network file system ("+name+")", "name a file on a local disk")
	}
	return b.good("file system", dir+" is on a local file system")
}

// spaceWanted is room for the write-ahead log to grow to its usual size, several times over.
const spaceWanted = 16 << 20

func (b *backend) checkSpace() backends.Check {
	var st unix.Statfs_t
	dir := filepath.Dir(b.path)
	if err := unix.Statfs(dir, &st); err != nil {
		return b.good("space", "the folder does not exist yet")
	}
	free := uint64(st.Bavail) * uint64(st.Bsize)
	cause := fmt.Sprintf("%d MiB free in %s", free>>20, dir)
	if free < spaceWanted {
		return b.bad("space", cause, b.spaceRemedy())
	}
	return b.good("space", cause)
}

func (b *backend) checkLocks() backends.Check {
	if !haveLocks {
		c := b.good("dead holders", "this system has no locks of open file descriptions: a dead holder's lease lasts until it expires")
		c.Remedy = "keep --ttl short"
		return c
	}
	owner := backends.NewOwner()
	l := lockByte(b.livePath(), holderByte(owner))
	if l == nil {
		if _, err := os.Stat(b.livePath()); errors.Is(err, fs.ErrNotExist) {
			return b.good("dead holders", "the file of locks does not exist yet")
		}
		return b.bad("dead holders", "no lock can be had on "+b.livePath()+": a dead holder's lease lasts until it expires",
			"let this user read the file, and keep it on a local disk")
	}
	defer l.f.Close()
	w := watcher{path: b.livePath()}
	defer w.close()
	if !w.alive(owner, l.ino) {
		return b.bad("dead holders", "a lock on "+b.livePath()+" cannot be seen by others", "keep it on a local disk")
	}
	return b.good("dead holders", "noticed at once by locks on "+b.livePath())
}

func (b *backend) checkSchema(c *conn) backends.Check {
	if _, err := inspect(c); err != nil {
		return b.bad("schema", err.Error(), b.damageRemedy())
	}
	for _, table := range []string{"keys", "leases", "runs", "history"} {
		if _, err := c.one("SELECT * FROM " + table + " LIMIT 1"); err != nil {
			return b.bad("schema", err.Error(), b.damageRemedy())
		}
	}
	return b.good("schema", fmt.Sprintf("version %d", schemaVersion))
}

func (b *backend) checkWAL(c *conn) backends.Check {
	mode, err := c.one("PRAGMA journal_mode")
	if err != nil {
		return b.bad("journal", err.Error(), "")
	}
	if mode != "wal" && mode != "off" {
		return b.bad("journal", "the journal mode is "+mode, "run any lockrun that may write, which switches it to WAL")
	}
	return b.good("journal", "WAL")
}

// maxChecked pages are read in about a second from a cold disk; a larger store is not worth a stalled doctor.
const maxChecked = 50_000

func (b *backend) checkIntegrity(c *conn) backends.Check {
	pages, _ := c.one("PRAGMA page_count")
	var n int
	fmt.Sscan(pages, &n)
	if n > maxChecked {
		ck := b.good("integrity", fmt.Sprintf("not checked: %d pages", n))
		ck.Remedy = "check it at a quiet time: sqlite3 " + b.path + " 'PRAGMA quick_check'"
		return ck
	}
	text, err := c.one("PRAGMA quick_check(1)")
	if err != nil {
		text = err.Error()
	}
	if !strings.EqualFold(text, "ok") {
		return b.bad("integrity", text, b.damageRemedy())
	}
	return b.good("integrity", "ok")
}
