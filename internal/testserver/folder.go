package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Data does not go into t.TempDir: the user that MariaDB runs as cannot enter that folder, and the path of a Unix socket
// in it, under a long test name, would not fit into the kernel's 108 bytes.
const folderPrefix = "lockrun-servers-"

// home is this process's folder for the data of all its servers; it is there while one of them is. It is locked, so that a
// later process can tell what a killed one left behind (a MariaDB folder is tens of megabytes) and take it away.
var home struct {
	sync.Mutex
	dir   string
	lock  *os.File
	users int
}

// enterHome makes home for the first user.
func enterHome() (string, error) {
	home.Lock()
	defer home.Unlock()
	if home.users == 0 {
		sweep()
		dir, err := os.MkdirTemp("", folderPrefix)
		if err != nil {
			return "", err
		}
		if home.lock, err = lockFolder(dir); err != nil {
			return "", err
		}
		home.dir = dir
	}
	home.users++
	return home.dir, nil
}

// leaveHome removes home after the last user.
func leaveHome() {
	home.Lock()
	defer home.Unlock()
	if home.users--; home.users == 0 {
		os.Remove(home.dir)
		home.lock.Close()
	}
}

// lockFolder lets other users in, and locks the folder for as long as the descriptor is open.
func lockFolder(dir string) (*os.File, error) {
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return f, syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// sweep removes what dead processes left. A folder without a lock may also be one that is being made just now, so young
// ones are left alone.
func sweep() {
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	for _, dir := range old {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		f, err := os.Open(dir)
		if err != nil {
			continue
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			os.RemoveAll(dir)
		}
		f.Close()
	}
}

// newFolder makes a folder that is removed when the test ends. Register it before starting what writes into it: clean-up
// runs backwards.
func newFolder(t TB, name string) string {
	t.Helper()
	root, err := enterHome()
	if err != nil {
		t.Fatalf("cannot make a folder for servers: %v", err)
	}
	dir, err := os.MkdirTemp(root, name+"-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatalf("cannot make a folder for %s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Logf("removing the data of %s: %v", name, err)
		}
		leaveHome()
	})
	return dir
}

// empty removes everything inside dir.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("emptying: %w", err)
		}
	}
	return nil
}

// makeFolder makes a folder that is empty or was made before.
func makeFolder(dir string) error { return os.MkdirAll(dir, 0o755) }
