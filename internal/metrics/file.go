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
	"syscall"

	"golang.org/x/sys/unix"
)

// maxFile bounds what is read: sums of about ten thousand keys.
const maxFile = 64 << 20

// File is a file of sums that many processes add to, as node_exporter's textfile collector reads it. Path is where it is,
// with links followed: the file is replaced, so that a reader sees the old one or the new one.
//
// Beside it lie two files whose names begin with a dot, which the collector passes over: one to be locked, since a lock on
// the file itself would be one on what was replaced meanwhile, and for a moment the new contents. Nothing waits for the
// disk: after a power cut some of the last sums may be missing, or the file be empty.
type File struct{ Path string }

// Add reads the file, has change change the sums, and writes them back, while no other process does. Where the file cannot
// be read, or holds anything that is not lockrun's, nothing is changed. It returns when ctx ends, at the latest, even
// though a file system that hangs may keep what it began.
func (f File) Add(ctx context.Context, change func(*Set)) error {
	return bounded(ctx, "it took too long: another process has it locked, or the file system does not answer", func() error {
		unlock, err := f.lock(ctx, "lock")
		if err != nil {
			return err
		}
		defer unlock()
		s, old, err := f.read()
		if err != nil {
			return err
		}
		change(s)
		return f.replace(s, old)
	})
}

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
	err := bounded(ctx, "another run of this host was still sending all the while, or the file system does not answer", func() error {
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
	})
	if err != nil {
		go func() {
			if t, ok := <-mine; ok {
				t.unlock() // it came when nobody wanted it any more
			}
		}()
		return err
	}
	t := <-mine
	defer t.unlock()
	return do(t.s)
}

// bounded calls do, and gives up on it when ctx ends, which late explains.
func bounded(ctx context.Context, late string, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errors.New(late)
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
	if n, err := io.Copy(&text, io.LimitReader(file, maxFile+1)); err != nil || n > maxFile {
		return nil, nil, errors.Join(err, fmt.Errorf("%s cannot be read to its end", f.Path))
	}
	s, err := Parse(text.String())
	if err != nil {
		return nil, nil, fmt.Errorf("%s is damaged, or not lockrun's: %w; move it away", f.Path, err)
	}
	return s, info, nil
}

// replace writes the sums. The new file has mode and owner of the old one where that can be done; a first one is for
// everybody to read, since the collector runs as another user.
func (f File) replace(s *Set, old fs.FileInfo) error {
	path := f.beside("new")
	// Under the lock, what is there was left behind by a process that was killed.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = s.WriteTo(file)
	if err == nil {
		err = like(file, old)
	}
	if e := file.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(path, f.Path)
	}
	if err != nil {
		_ = os.Remove(path)
	}
	return err
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
