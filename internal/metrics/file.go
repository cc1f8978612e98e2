//go:build unix

package metrics

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxFile bounds what is read and written: sums of more than ten thousand keys. Tests make it less.
var maxFile int64 = 64 << 20

// File is a file of sums that many processes add to, as node_exporter's textfile collector reads it. Path is where it is,
// with links followed: the file is replaced, so that a reader sees the old one or the new one.
//
// Beside it lie two files whose names begin with a dot, which the collector passes over: one to be locked, since a lock on
// the file itself would be one on what was replaced meanwhile, and for a moment the new contents. Nothing waits for the
// disk: after a power cut some of the last sums may be missing, or the file be empty.
type File struct{ Path string }

// ErrUnsure is that of a file system that did not answer when the file was about to be replaced.
var ErrUnsure = errors.New("the file system does not answer")

// Add reads the file, has change change the sums, and writes them back, while no other process does. Where the file cannot
// be read, holds anything that is not lockrun's, or would become too large, nothing is changed. It returns when ctx ends, or a
// moment later: what it says then stays true, though a file system that hangs may keep what it began.
func (f File) Add(ctx context.Context, change func(*Set)) error {
	var locked atomic.Bool
	var fate fate
	err := bounded(ctx, func() error {
		unlock, err := f.lock(ctx, "lock")
		if err != nil {
			return err
		}
		defer unlock()
		locked.Store(true)
		s, old, err := f.read()
		if err != nil {
			return err
		}
		change(s)
		return f.replace(ctx, s, old, &fate)
	}, &fate)
	switch {
	case !errors.Is(err, errLate):
		return err
	case locked.Load():
		return errors.New("it took too long: the file is large for this host, or the file system does not answer")
	}
	return errors.New("it took too long: another process has it locked, or the file system does not answer")
}

// fate decides once whether what is being done still counts: whoever waits for it may give up on it, unless it has begun to
// become visible.
type fate struct{ decided atomic.Bool }

// mine is true for the first who asks.
func (f *fate) mine() bool { return f.decided.CompareAndSwap(false, true) }

// InTurn calls do with the sums as they are, while no other process is in its turn: what do sends to somebody cannot be
// overtaken by something older. Others may Add meanwhile.
//
// It returns when ctx ends, at the latest, if do does. An error of do's is returned as it is.
func (f File) InTurn(ctx context.Context, do func(*Set) error) error {
	type turn struct {
		s      *Set
		unlock func()
	}
	mine := make(chan turn, 1)
	err := bounded(ctx, func() error {
		defer close(mine)
		unlock, err := f.lock(ctx, "turn")
		if err != nil {
			return err
		}
		s, _, err := f.read()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			unlock()
			return err
		}
		mine <- turn{s, unlock}
		return nil
	}, &fate{})
	if err != nil {
		go func() {
			if t, ok := <-mine; ok {
				t.unlock() // it came when nobody wanted it any more
			}
		}()
		if errors.Is(err, errLate) {
			return errors.New("another run of this host was still sending all the while, or the file system does not answer")
		}
		return err
	}
	t := <-mine
	defer t.unlock()
	return do(t.s)
}

// errLate is for the caller to explain.
var errLate = errors.New("it took too long")

// visibly is how long a file may take to be renamed.
const visibly = time.Second

// bounded calls do, and gives up on it when ctx ends with errLate. Where its fate was decided by then, the rest takes as long
// as a rename does: if that does not return, nobody knows.
func bounded(ctx context.Context, do func() error, fate *fate) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	if fate.mine() {
		return errLate
	}
	select {
	case err := <-done:
		return err
	case <-time.After(visibly):
		return ErrUnsure
	}
}

// longestName is how long the name of a file may be, on every file system that lockrun meets.
const longestName = 255

// beside names a file beside ours. Where the name of ours leaves no room for more, a sum of it has to do.
func (f File) beside(what string) string {
	dir, name := filepath.Split(f.Path)
	if len(name)+len(what)+2 > longestName {
		name = fmt.Sprintf("lockrun-%x", sha256.Sum256([]byte(name)))
	}
	return dir + "." + name + "." + what
}

// lock waits for the lock, in the order of asking. The file that carries it need only be readable, so that users who may
// not write each other's files can share the sums all the same, and is never followed where it is a link.
func (f File) lock(ctx context.Context, what string) (unlock func(), err error) {
	path := f.beside(what)
	const flags = os.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK
	// Without O_CREATE where it exists: in a folder that is everybody's, the kernel refuses to create what is another's.
	l, err := os.OpenFile(path, flags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		l, err = os.OpenFile(path, flags|os.O_CREATE, 0o644)
	}
	if err != nil {
		return nil, f.noLock(err)
	}
	fd := int(l.Fd())
	for {
		if err = unix.Flock(fd, unix.LOCK_EX); err != unix.EINTR {
			break
		}
	}
	if err == nil {
		err = ctx.Err() // whoever wanted it is gone
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { l.Close() }, nil
}

// noLock says of the file that was named what keeps the one beside it from being made.
func (f File) noLock(err error) error {
	dir, cause := filepath.Dir(f.Path), err
	var path *fs.PathError
	if errors.As(err, &path) {
		cause = path.Err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s: there is no folder %s; create it, or name another file: %w", f.Path, dir, cause)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s: its lock cannot be made in the folder %s; give this user the right to write there, or name another file: %w", f.Path, dir, cause)
	}
	return err
}

// read reads the file; one that is not there, or is empty, has no sums.
func (f File) read() (*Set, fs.FileInfo, error) {
	file, err := os.OpenFile(f.Path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return NewSet(true), nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is no plain file", f.Path)
	}
	var text strings.Builder
	text.Grow(int(min(info.Size(), maxFile)) + 1)
	n, err := io.Copy(&text, io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, nil, err
	}
	if n > maxFile {
		return nil, nil, fmt.Errorf("%s is larger than %d MB; move it away", f.Path, maxFile>>20)
	}
	s, err := Parse(text.String())
	if err != nil {
		return nil, nil, fmt.Errorf("%s is damaged, or not lockrun's: %w; move it away", f.Path, err)
	}
	return s, info, nil
}

// replace writes the sums. The new file has mode and owner of the old one where that can be done; a first one is for
// everybody to read, since the collector runs as another user.
func (f File) replace(ctx context.Context, s *Set, old fs.FileInfo, fate *fate) error {
	path := f.beside("new")
	// Under the lock, what is there was left behind by a process that was killed.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = s.WriteTo(&boundedWriter{ctx: ctx, w: file})
	if errors.Is(err, errTooLarge) {
		err = fmt.Errorf("%s would be larger than %d MB with the sums of %d keys; move it away, and have what changes with each run in --run-id and not in the key",
			f.Path, maxFile>>20, len(s.keys))
	}
	if err == nil {
		err = like(file, old)
	}
	if e := file.Close(); err == nil {
		err = e
	}
	if err == nil && !fate.mine() {
		err = errLate
	}
	if err == nil {
		err = os.Rename(path, f.Path)
	}
	if err != nil {
		_ = os.Remove(path)
	}
	return err
}

var errTooLarge = errors.New("the file would be too large")

// boundedWriter writes no more than can be read again, and nothing once nobody waits for it.
type boundedWriter struct {
	ctx context.Context
	w   io.Writer
	n   int64
}

func (b *boundedWriter) Write(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, errLate
	}
	if b.n += int64(len(p)); b.n > maxFile {
		return 0, errTooLarge
	}
	return b.w.Write(p)
}

// like gives the new file what the old one had. Where it cannot have the same owner, the old one does not say who else may
// write to it.
func like(file *os.File, old fs.FileInfo) error {
	if old == nil {
		return file.Chmod(0o644)
	}
	mode := old.Mode().Perm()
	if st, ok := owner(old); ok {
		err := file.Chown(int(st.Uid), int(st.Gid)) // others than root can give a file to a group of theirs only
		if err != nil && int(st.Uid) != os.Geteuid() {
			mode &^= 0o022
		}
	}
	return file.Chmod(mode)
}

func owner(info fs.FileInfo) (*syscall.Stat_t, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	return st, ok
}
