package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/backends"
)

// checkPath follows a symbolic link, so that all names of the database agree on the names of the files beside it, and
// refuses what cannot be a database on this host.
func (b *backend) checkPath() error {
	fi, err := os.Lstat(b.path)
	if err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		real, err := filepath.EvalSymlinks(b.path)
		if err != nil {
			return b.refuse(fmt.Errorf("it is a symbolic link that leads nowhere: %w", err), "make it point to an existing file, or remove it")
		}
		b.path, b.watch.path = real, real+"-live"
		fi, err = os.Lstat(real)
		if err != nil {
			return err
		}
	}
	if err == nil {
		if err := b.checkFile(fi); err != nil {
			return err
		}
	}
	return b.checkFileSystem()
}

func (b *backend) checkFile(fi fs.FileInfo) error {
	if !fi.Mode().IsRegular() {
		return b.refuse(fmt.Errorf("it is no regular file (%s)", fi.Mode().Type()), "name a file")
	}
	var st unix.Stat_t
	if unix.Stat(b.path, &st) == nil && st.Nlink > 1 {
		return b.refuse(fmt.Errorf("the file has %d names (hard links), and its -wal would be looked for beside each of them", st.Nlink),
			"leave it one name; symbolic links are fine")
	}
	return nil
}

// checkFileSystem looks at the nearest folder that exists.
func (b *backend) checkFileSystem() error {
	for dir := filepath.Dir(b.path); ; dir = filepath.Dir(dir) {
		name, err := fileSystem(dir)
		if errors.Is(err, fs.ErrNotExist) && dir != "/" {
			continue
		}
		if err == nil && name != "" {
			return b.refuse(fmt.Errorf("%s is on a network file system (%s), where SQLite's locks cannot be trusted", dir, name),
				"name a file on a local disk, or use a server as backend")
		}
		return nil // an error here is met again, and explained, when the file is opened
	}
}

func (b *backend) refuse(err error, remedy string) error {
	return &backends.Error{Op: "open", Backend: b.Name(), Err: err, Remedy: remedy, Permanent: true}
}
