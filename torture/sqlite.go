package main

import (
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/internal/testserver"
)

// sqliteArena is the embedded store, on a small file system of its own where that may be mounted.
func sqliteArena(t testserver.TB, g *game) *arena {
	folder := g.path("store")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatalf("%v", err)
	}
	mounted := unix.Mount("tmpfs", folder, "tmpfs", 0, "size=64m,mode=0755") == nil
	db := filepath.Join(folder, "lockrun.db")
	a := &arena{name: "sqlite", url: "sqlite://" + db}
	ballast := filepath.Join(folder, "ballast")
	a.heal = func() { _ = os.Remove(ballast) }
	a.remove = func(b *blow) { b.removeRow(db) }
	a.faults = []fault{a.byHand(), {name: "store deleted by hand", forgets: true, do: func(*blow) {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			_ = os.Remove(db + suffix)
		}
	}}, {name: "store locked by another", do: func(b *blow) { b.g.lockStore(db, b.wait) }}}
	if mounted {
		t.Cleanup(func() { _ = unix.Unmount(folder, unix.MNT_DETACH) })
		a.faults = append(a.faults, fault{name: "disk full", do: func(b *blow) { fill(ballast); b.wait(); a.heal() }})
	} else {
		t.Logf("no file system can be mounted here, so no disk is made full")
	}
	return a
}

// fill writes a file until there is no room left.
func fill(name string) {
	f, err := os.Create(name)
	if err != nil {
		return
	}
	defer f.Close()
	for size := 1 << 20; size >= 512; size /= 2 {
		for block := make([]byte, size); ; {
			if _, err := f.Write(block); err != nil {
				break
			}
		}
	}
}

// Where SQLite keeps the lock of the one who writes, in the file beside a database in WAL mode (wal.c, WAL_WRITE_LOCK).
const walWriteLock = 120

// lockStore keeps everybody from writing, as a program with a transaction open does.
func (g *game) lockStore(db string, wait func()) {
	f, err := os.OpenFile(db+"-shm", os.O_RDWR, 0)
	if err != nil {
		return // nobody has opened the store yet
	}
	defer f.Close() // unlocks
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: walWriteLock, Len: 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLKW, &lock); err != nil {
		g.broken("locking the store: %v", err)
		return
	}
	wait()
}

// removeRow deletes a lease past lockrun, or has lockrun break it where there is no sqlite3.
func (b *blow) removeRow(db string) {
	sqlite3, err := exec.LookPath("sqlite3")
	if err != nil || b.r.IntN(2) == 0 {
		b.unlock()
		return
	}
	cmd := exec.Command(sqlite3, "-cmd", ".timeout 2000", db, "DELETE FROM leases WHERE key='"+b.key+"'")
	_ = startOn(cmd) // that there is nothing to remove, or a full disk, is no failure
	_ = cmd.Wait()
}

// unlock has lockrun break the lease, which is what an operator should do.
func (b *blow) unlock() { _, _ = b.g.ask("unlock", "--force", "--quiet", b.key) }
