package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/lockrun/lockrun/backends"
)

// writeResult writes the result file: one object with the run record's fields, the code that lockrun exits with, and
// what it said about it. It appears whole or not at all, and a reader sees the old one or the new one. Errors change
// nothing about the run.
func writeResult(path string, rec backends.Record, code int, message string) error {
	path, err := resultTarget(path)
	if err != nil {
		return err
	}
	if what := ownFile(path); what != "" {
		return fmt.Errorf("%s is %s, and left alone; name another file", path, what)
	}
	record, err := plainJSON(rec)
	if err != nil {
		return err
	}
	own, err := plainJSON(struct {
		Code    int    `json:"lockrun_exit_code"`
		Message string `json:"message"`
	}{code, message})
	if err != nil {
		return err
	}
	// Two objects become one: the names and the order of the record's fields are its own business.
	joined := append(record[:len(record)-1], ',')
	joined = append(joined, own[1:]...)
	return notReplaced(path, replaceFile(path, append(joined, '\n')))
}

// notReplaced says why a file was not replaced, by its own name and not by that of what is made beside it.
func notReplaced(path string, err error) error {
	var moved *os.LinkError
	cause := pathCause(err)
	if errors.As(err, &moved) {
		cause = moved.Err
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%s: its folder is not there; create it, or correct the path", path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s: %w; let this user write to its folder, or name another file", path, cause)
	}
	return fmt.Errorf("%s: %w", path, cause)
}

// replaceFile gives a file new contents, which a reader sees whole or not at all, after a power cut too. What is new is made
// beside the file and not in $TMPDIR: there others could read what a private folder is to keep, and the group that a folder
// gives its files would be missing. Its name does not contain the file's, which may be as long as names can be.
func replaceFile(path string, data []byte) error {
	name := filepath.Join(filepath.Dir(path), ".lockrun-"+rand.Text())
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer os.Remove(name) // renamed, if all went well
	defer f.Close()
	if mode, ours := ownMode(path); ours {
		if err := f.Chmod(mode); err != nil {
			return err
		}
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(name, path)
}

// ownMode is the mode of a file of this user's, who may have chosen it. A file of somebody else's says nothing about who may
// write to what replaces it.
func ownMode(path string) (os.FileMode, bool) {
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() {
		return 0, false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return fi.Mode().Perm(), ok && int(st.Uid) == os.Geteuid()
}

// resultTarget is the file to replace. A link is followed, so that it stays one. What exists and is no plain file is
// refused: renaming over it would replace /dev/null, and writing into it could block on a pipe that nobody reads. So is a
// name of an open descriptor: behind /dev/stdout may be a log that others are writing to, and it would be replaced.
func resultTarget(path string) (string, error) {
	if err := refuseDescriptor(path); err != nil {
		return "", err
	}
	fi, err := os.Stat(path)
	if os.IsNotExist(err) {
		return path, nil
	}
	if err != nil {
		return "", err
	}
	if !fi.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a plain file; name one", path)
	}
	return trustedTarget(path)
}

// ownFile says what lockrun itself keeps in a file that a slip of the pen would have replaced: leases and sums are gone then.
// What cannot be read is told of by whoever has to write it.
func ownFile(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 16)
	n, _ := io.ReadFull(f, head)
	switch {
	case bytes.HasPrefix(head[:n], []byte("SQLite format 3\x00")):
		return "a database"
	case bytes.HasPrefix(head[:n], []byte("# HELP lockrun_")):
		return "a metrics file"
	}
	return ""
}

// trustedTarget follows the links of a path, but for those that somebody else has put into a folder that is everybody's:
// they would have root's run write over any file. Linux refuses to open through such links (fs.protected_symlinks), which
// does not help here, where the file is replaced. What is returned is followed no further: a link that takes the place of
// the file meanwhile is replaced itself.
func trustedTarget(path string) (string, error) {
	at := "./" + path
	if filepath.IsAbs(path) {
		at = path
	}
	for range 40 { // as many links as Linux follows
		i := strings.LastIndexByte(at, '/') + 1
		dir, err := filepath.EvalSymlinks(at[:i])
		if err != nil {
			return "", err
		}
		file := filepath.Join(dir, at[i:])
		link, err := os.Lstat(file)
		if err != nil {
			return "", err
		}
		if link.Mode()&os.ModeSymlink == 0 {
			return file, nil
		}
		if isPlanted(link, dir) {
			return "", fmt.Errorf("%s is a link that somebody else has put into a folder that is everybody's; remove it, or use another folder", file)
		}
		to, err := os.Readlink(file)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(to) {
			to = dir + "/" + to
		}
		at = to
	}
	return "", fmt.Errorf("%s leads through too many links", path)
}

// isPlanted is the kernel's rule: in a sticky folder that others may write to, a link counts only where it is ours or the
// folder's owner's.
func isPlanted(link os.FileInfo, folder string) bool {
	dir, err := os.Stat(folder)
	if err != nil || dir.Mode()&os.ModeSticky == 0 || dir.Mode().Perm()&0o022 == 0 {
		return false
	}
	l, ok := link.Sys().(*syscall.Stat_t)
	d, ok2 := dir.Sys().(*syscall.Stat_t)
	return ok && ok2 && int(l.Uid) != os.Geteuid() && l.Uid != d.Uid
}

// descriptorFolders are where names are not files of their own but what a process has open.
var descriptorFolders = regexp.MustCompile(`^/dev/fd$|^/proc/[^/]+(/task/[^/]+)?/fd$`)

// refuseDescriptor follows the links of a path, a step at a time, and refuses one that leads through a descriptor. Names
// are not cleaned: in front of "..", a link counts.
func refuseDescriptor(path string) error {
	at := path
	if wd, err := os.Getwd(); err == nil && !filepath.IsAbs(path) {
		at = wd + "/" + path
	}
	for range 40 { // as many links as Linux follows
		i := strings.LastIndexByte(at, '/') + 1
		dir, err := filepath.EvalSymlinks(at[:i])
		if err != nil {
			return nil // told better by whoever opens it
		}
		if descriptorFolders.MatchString(dir) {
			return fmt.Errorf("%s is an open descriptor and no file of its own; name the file itself", path)
		}
		to, err := os.Readlink(dir + "/" + at[i:])
		if err != nil {
			return nil
		}
		if !filepath.IsAbs(to) {
			to = dir + "/" + to
		}
		at = to
	}
	return nil
}

// notRun writes the result of a command line that was refused, so that nobody takes the file of an earlier run for this
// one's. It knows no more than key, code and message.
func notRun(u *ui, path, key string, code int, message string) {
	if path == "" {
		return
	}
	if err := writeResult(path, backends.Record{Key: key, Outcome: backends.NotStarted, Reason: message}, code, message); err != nil {
		u.warn("the result file was not written: %v", err)
	}
}
