package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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
	checks := []backends.Check{b.checkOwner(), b.checkDisk(), b.checkSpace(), b.checkLocks()}
	_, err := do(ctx, b, "doctor", reading, func(c *conn) (struct{}, error) {
		if c != nil {
			checks = append(checks, b.checkSchema(c), b.checkWAL(c), b.checkIntegrity(c))
		}
		return struct{}{}, nil
	})
	if err != nil {
		return []backends.Check{b.checkOwner(), b.checkDisk(), b.checkSpace(), b.checkLocks(), b.bad("database", err.Error(), "")}
	}
	return checks
}

func (b *backend) good(name, cause string) backends.Check {
	return backends.Check{Backend: b.Name(), Check: name, OK: true, Cause: cause}
}

func (b *backend) bad(name, cause, remedy string) backends.Check {
	return backends.Check{Backend: b.Name(), Check: name, Cause: cause, Remedy: remedy}
}

func (b *backend) checkOwner() backends.Check {
	if _, err := os.Stat(b.path); errors.Is(err, fs.ErrNotExist) {
		return b.good("path", "the database does not exist yet; the first run creates it")
	}
	if what, remedy := b.denial(); what != "" {
		return b.bad("path", what, remedy)
	}
	c := b.good("path", describe(b.path))
	var st unix.Stat_t
	if unix.Stat(b.path, &st) == nil && st.Mode&0o002 != 0 {
		c.Remedy = "everybody may write to it, and so end any lease: chmod o-w"
	}
	return c
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
