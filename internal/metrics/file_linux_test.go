package metrics

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Who has put a file in the way does not say who may write to ours.
func TestTheModeOfSomebodyElsesFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a file that is somebody else's")
	}
	dir := t.TempDir()
	old := filepath.Join(dir, "old")
	for _, err := range []error{os.WriteFile(old, nil, 0o600), os.Chown(old, 1234, -1), os.Chmod(old, 0o666)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.Stat(old)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "new"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Chown(1235, -1); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // for files, it is another user's for a moment
	defer runtime.UnlockOSThread()
	if err := unix.Setfsuid(1235); err != nil {
		t.Fatal(err)
	}
	err = like(file, was)
	if back := unix.Setfsuid(0); err != nil || back != nil {
		t.Fatal(err, back)
	}
	if fi, err := file.Stat(); err != nil || fi.Mode().Perm() != 0o644 {
		t.Errorf("a file of 1235 that replaces 1234's has %v, %v", fi.Mode(), err)
	}
}
