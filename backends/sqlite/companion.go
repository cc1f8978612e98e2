package sqlite

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkCompanions refuses files beside the database that lockrun or SQLite would not have made: what is no plain file, and
// what belongs to a stranger, who could write leases into -wal, or lock others' bytes in -live. In a folder that is
// everybody's he has only to come first. Of a database that others may write to, any of them may have made them, and they
// are trusted with it anyway.
func (b *backend) checkCompanions() error {
	db, err := os.Stat(b.path)
	if err != nil {
		return nil // there is none any more, which the next operation finds
	}
	for _, suffix := range []string{"-wal", "-shm", "-live"} {
		path := b.path + suffix
		fi, err := os.Lstat(path)
		if err != nil {
			continue
		}
		if !fi.Mode().IsRegular() {
			return b.refuse(fmt.Errorf("%s is no plain file (%s), where lockrun keeps one", path, kind(fi.Mode())), "remove it")
		}
		if db.Mode().Perm()&0o022 == 0 && isStrangers(fi, db) {
			return b.refuse(fmt.Errorf("%s belongs to somebody else than the database", describe(path)),
				"have it removed while nothing runs, or name a file in a folder that is not everybody's")
		}
	}
	return nil
}

func kind(m fs.FileMode) string {
	switch {
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m.IsDir():
		return "a folder"
	}
	return m.Type().String()
}

// isStrangers tells whether a file belongs neither to the database's owner, nor to this user, nor to root.
func isStrangers(fi, db fs.FileInfo) bool {
	f, ok := fi.Sys().(*syscall.Stat_t)
	d, ok2 := db.Sys().(*syscall.Stat_t)
	return ok && ok2 && f.Uid != d.Uid && f.Uid != 0 && int(f.Uid) != os.Geteuid()
}
