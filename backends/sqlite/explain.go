package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/backends"
)

// explain turns err into what the contract asks for. Refusals and errors that are explained pass as they are.
func (b *backend) explain(op string, err error) error {
	var known *backends.Error
	if err == nil || backends.Positive(err) || errors.As(err, &known) {
		return err
	}
	e := &backends.Error{Op: op, Backend: b.Name(), Err: err}
	e.Remedy, e.Permanent = b.remedy(err)
	if denied(err) {
		if what, remedy := b.denial(!b.o.ReadOnly); what != "" {
			e.Err, e.Remedy, e.Permanent = fmt.Errorf("%w: %s", err, what), remedy, true
		}
	}
	return e
}

// remedy says what to do about err, and whether asking again is useless before that is done.
func (b *backend) remedy(err error) (string, bool) {
	var l *late
	switch {
	case errors.As(err, &l):
		return l.remedy, false
	case errors.Is(err, errReading), errors.Is(err, errClosed):
		return "open it anew", true
	case errors.Is(err, errNotOurs):
		return "name another file", true
	case errors.Is(err, errNewer):
		return "upgrade lockrun on this host", true
	case errors.Is(err, errDamaged), errors.Is(err, errForeignValue):
		return b.damageRemedy(), true
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		return "check the path", true
	case errors.Is(err, fs.ErrNotExist):
		return "create the folder with the mode that its users need, like: install -d -m 2770 -g GROUP " + filepath.Dir(b.path), true
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return b.spaceRemedy(), false
	}
	switch primary(err) {
	case codeFull:
		return b.spaceRemedy(), false
	case codeNotADB:
		return "name another file; if this one was lockrun's, " + b.damageRemedy(), true
	case codeCorrupt:
		return b.damageRemedy(), true
	case codeMismatch:
		return "the schema is not lockrun's any more; " + b.damageRemedy(), true
	case codeIOErr:
		return "see the kernel's log for the disk", false
	}
	return "", false
}

func (b *backend) spaceRemedy() string {
	return "free some space in " + filepath.Dir(b.path)
}

func (b *backend) damageRemedy() string {
	return "restore the file, or move it and its -wal and -shm away while nothing runs, and lockrun makes a new one"
}

// denied tells whether err is about permission.
func denied(err error) bool {
	switch primary(err) {
	case codeCantOpen, codeReadOnly, codeAccess:
		return true
	}
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS)
}

// denial finds the file that stands in the way: SQLite only says that it could not open, or not write, without saying
// which of three files.
func (b *backend) denial(writing bool) (what, remedy string) {
	dir := filepath.Dir(b.path)
	if writing && errors.Is(unix.Access(dir, unix.W_OK), unix.EROFS) {
		return dir + " is on a file system that is mounted read-only", "mount it for writing, or name another file"
	}
	switch err := unix.Access(dir, unix.X_OK); {
	case errors.Is(err, unix.ENOENT):
		return noFolder(dir)
	case err != nil:
		return describe(closedFolder(dir)), "let this user into the folder"
	}
	for _, path := range []string{b.path, b.path + "-wal", b.path + "-shm", b.livePath()} {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			if path == b.livePath() && !writing {
				continue
			}
			if unix.Access(dir, unix.W_OK) != nil {
				return fmt.Sprintf("%s cannot be created in %s", filepath.Base(path), describe(dir)),
					"let this user's group write to the folder: chgrp GROUP and chmod 2770"
			}
			continue
		}
		need := uint32(unix.R_OK | unix.W_OK)
		if !writing || path == b.livePath() {
			need = unix.R_OK
		}
		if unix.Access(path, need) != nil {
			return describe(path), "give it the group and mode of its database's users: chgrp GROUP and chmod 660"
		}
	}
	return "", ""
}

// noFolder is about a folder that is not there, and that this user cannot create; "" where he can.
func noFolder(dir string) (what, remedy string) {
	above := filepath.Dir(dir)
	for !exists(above) {
		above = filepath.Dir(above)
	}
	switch err := unix.Access(above, unix.W_OK|unix.X_OK); {
	case errors.Is(err, unix.EROFS):
		return above + " is on a file system that is mounted read-only", "mount it for writing, or name another file"
	case err != nil:
		return dir + " does not exist, and cannot be created in " + describe(above),
			"create it for this user, set HOME or XDG_STATE_HOME to a folder of his, or name another file with --backend sqlite:///path"
	}
	return "", ""
}

// closedFolder is the folder nearest to the root that does not let this user in.
func closedFolder(dir string) string {
	if parent := filepath.Dir(dir); parent != dir && unix.Access(parent, unix.X_OK) != nil {
		return closedFolder(parent)
	}
	return dir
}

// describe names a file with owner, group and mode.
func describe(path string) string {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return path
	}
	return fmt.Sprintf("%s (owner %s, group %s, mode %04o; this is user %s)", path,
		userName(st.Uid), groupName(st.Gid), st.Mode&0o7777, userName(uint32(os.Geteuid())))
}

func userName(id uint32) string {
	s := strconv.FormatUint(uint64(id), 10)
	if u, err := user.LookupId(s); err == nil {
		return u.Username
	}
	return s
}

func groupName(id uint32) string {
	s := strconv.FormatUint(uint64(id), 10)
	if g, err := user.LookupGroupId(s); err == nil {
		return g.Name
	}
	return s
}
