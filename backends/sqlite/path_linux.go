package sqlite

import (
	"errors"

	"golang.org/x/sys/unix"
)

// networked are the file systems on which SQLite's locks and shared memory do not work between hosts, by their magic
// numbers in statfs(2), and, some of them, not even between processes of one.
var networked = map[int64]string{
	unix.NFS_SUPER_MAGIC:   "NFS",
	unix.SMB_SUPER_MAGIC:   "SMB",
	unix.SMB2_SUPER_MAGIC:  "SMB",
	unix.CIFS_SUPER_MAGIC:  "CIFS",
	unix.V9FS_MAGIC:        "9p",
	unix.FUSE_SUPER_MAGIC:  "FUSE",
	unix.CEPH_SUPER_MAGIC:  "Ceph",
	unix.AFS_SUPER_MAGIC:   "AFS",
	unix.AFS_FS_MAGIC:      "AFS",
	unix.CODA_SUPER_MAGIC:  "Coda",
	unix.NCP_SUPER_MAGIC:   "NCP",
	unix.OCFS2_SUPER_MAGIC: "OCFS2",
	0x0bd00bd0:             "Lustre",
	0x01161970:             "GFS2",
	0x47504653:             "GPFS",
	0x19830326:             "BeeGFS",
	0x61636673:             "ACFS",
}

// fileSystem returns the name of the network file system that path is on, or "".
func fileSystem(path string) (string, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(path, &st)
		if err == nil {
			return networked[int64(uint32(st.Type))], nil
		}
		if !errors.Is(err, unix.EINTR) {
			return "", err
		}
	}
}

// renameNew renames a file unless the new name is taken. Linking and unlinking would do, but give the file two names for
// a moment, or for ever if the process is killed in between, and a database with two names is refused.
func renameNew(from, to string) error {
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
}
