package sqlite

import (
	"encoding/hex"
	"errors"
	"hash/fnv"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A lease's row says until when it may be held; a kernel lock says whether anybody is still there to hold it. Beside the
// database lies a file, empty for ever, in which each holder has one byte locked, at an offset taken from the random
// bits of its owner. The lock is of the kind that belongs to the open file description: processes that inherited the
// descriptor (lockrun's guard) share it, it goes when the last of them has gone, however they died, and asking for it
// disturbs nobody. A process number would prove nothing across containers (zc.lockfile#6), nor after a reuse.
//
// The lock only ever shortens a lease. A holder that is frozen keeps its lock and loses the lease at its expiry all the
// same, and whoever locks bytes out of malice keeps dead leases until then, no longer.

// Offsets in the file: holders in the lower half, waiters in the upper one, where the key's hash comes first so that
// the waiters of a key are one range.
const (
	holderMask  = 1<<62 - 1
	waiterBase  = 1 << 62
	keyHashBits = 30
)

func ownerBits(owner string) uint64 {
	var v uint64
	b, _ := hex.DecodeString(owner[:16]) // Request.Check has seen it
	for _, x := range b {
		v = v<<8 | uint64(x)
	}
	return v
}

func holderByte(owner string) int64 { return int64(ownerBits(owner) & holderMask) }

func waiterRange(key string) (first, n int64) {
	h := fnv.New64a()
	h.Write([]byte(key))
	bucket := int64(h.Sum64() & (1<<keyHashBits - 1))
	return waiterBase + bucket<<32, 1 << 32
}

func waiterByte(key, owner string) int64 {
	first, _ := waiterRange(key)
	return first + int64(ownerBits(owner)&(1<<32-1))
}

// fileID tells whether two names, or a name and a descriptor, mean the same file. As long as anybody has it open, its
// number is not given to another.
type fileID struct{ dev, ino uint64 }

func idOf(fi os.FileInfo) fileID {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return fileID{uint64(st.Dev), uint64(st.Ino)}
	}
	return fileID{}
}

func statID(path string) (fileID, error) {
	var st unix.Stat_t
	for {
		err := unix.Stat(path, &st)
		if err == nil {
			return fileID{uint64(st.Dev), uint64(st.Ino)}, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return fileID{}, err
		}
	}
}

// liveLock is one locked byte.
type liveLock struct {
	f   *os.File
	ino int64 // of the file at the time; stored beside the lease, so that a file put in its place proves nothing
}

// lockByte opens the file and locks a byte of it. It returns nil where the system or the file system has no such locks.
func lockByte(path string, offset int64) *liveLock {
	if !haveLocks {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	fi, err := f.Stat()
	if err != nil || setReadLock(f, offset, 1) != nil {
		f.Close()
		return nil
	}
	return &liveLock{f, int64(idOf(fi).ino)}
}

// locks are those of this process's leases. They are the process's and not a backend's, since nothing but a release or the end
// of the process may let go of them: not Close, and not the garbage collector, which closes files that nobody refers to.
var locks struct {
	sync.Mutex
	m map[lockID]*liveLock
}

// lockID is what a lock is for: one run may hold leases in several files, as one owner.
type lockID struct{ path, owner string }

// keepLock returns the lock of owner, taking it first where there is none (fresh); nil where none can be had.
func (b *backend) keepLock(owner string) (l *liveLock, fresh bool) {
	locks.Lock()
	defer locks.Unlock()
	id := lockID{b.livePath(), owner}
	if l := locks.m[id]; l != nil {
		return l, false
	}
	if l = lockByte(id.path, holderByte(owner)); l == nil {
		return nil, false
	}
	if locks.m == nil {
		locks.m = map[lockID]*liveLock{}
	}
	locks.m[id] = l
	return l, true
}

func (b *backend) dropLock(owner string) {
	locks.Lock()
	defer locks.Unlock()
	id := lockID{b.livePath(), owner}
	if l := locks.m[id]; l != nil {
		delete(locks.m, id)
		l.f.Close()
	}
}

func (b *backend) lockFiles(owner string) []*os.File {
	locks.Lock()
	defer locks.Unlock()
	if l := locks.m[lockID{b.livePath(), owner}]; l != nil {
		return []*os.File{l.f}
	}
	return nil
}

// watcher asks for other processes' locks. It is not safe for concurrent use.
type watcher struct {
	path string
	f    *os.File
	ino  int64
}

// alive tells whether the holder may still be there. It is false only on proof: the file is the one in which the holder
// took its lock, and nobody has the byte locked.
func (w *watcher) alive(owner string, ino int64) bool {
	if !haveLocks || !w.sees(ino) {
		return true
	}
	_, _, taken, err := findLock(w.f, holderByte(owner), 1)
	return err != nil || taken
}

// sees opens the file anew where it is not the one with this number.
func (w *watcher) sees(ino int64) bool {
	if w.f != nil && w.ino == ino {
		return true
	}
	w.close()
	f, err := os.Open(w.path)
	if err != nil {
		return false
	}
	fi, err := f.Stat()
	if err != nil {
		f.Close()
		return false
	}
	w.f, w.ino = f, int64(idOf(fi).ino)
	return w.ino == ino
}

func (w *watcher) close() {
	if w.f != nil {
		w.f.Close()
		w.f = nil
	}
}

// waiters counts the locked bytes of the key's range; nil where that cannot be told. Each answer of the kernel names one
// lock, not the first one, so the rest is looked for on both sides of it.
func (w *watcher) waiters(key string) *int {
	if w.f == nil && !w.open() || !haveLocks {
		return nil
	}
	first, n := waiterRange(key)
	count, err := w.count(first, n)
	if err != nil {
		return nil
	}
	return &count
}

func (w *watcher) open() bool {
	w.sees(-1)
	return w.f != nil
}

func (w *watcher) count(first, n int64) (int, error) {
	if n <= 0 {
		return 0, nil
	}
	start, length, taken, err := findLock(w.f, first, n)
	if err != nil || !taken {
		return 0, err
	}
	left, err := w.count(first, start-first)
	if err != nil {
		return 0, err
	}
	right, err := w.count(start+length, first+n-start-length)
	return left + right + 1, err
}
