package testserver

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// innodbOptions make the files of an empty server small: 24 MB instead of 114, which matters because every start copies
// them. They are part of the format, so a server has to be started with those that its data were made with.
var innodbOptions = []string{"--innodb-log-file-size=8M", "--innodb-data-file-path=ibdata1:5M:autoextend",
	"--innodb-autoextend-increment=1", "--innodb-buffer-pool-size=64M", "--aria-log-file-size=8M"}

// mariadbTemplate is the folder with the data of an empty server, made once a machine in the user's cache.
var mariadbTemplate = sync.OnceValues(func() (string, error) { return cached("mariadb", installDatabase) })

// cached gives the folder of this name in the user's cache, which build fills when it is not there. The name is completed
// by what the content depends on. Many processes may ask at once: one builds, the others wait.
func cached(name string, build func(dir string) error) (string, error) {
	version, err := exec.Command(find("mariadbd"), "--no-defaults", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("asking mariadbd for its version: %w", err)
	}
	sum := sha256.Sum256([]byte(string(version) + strings.Join(innodbOptions, " ") + templateRevision))
	root, err := os.UserCacheDir()
	if err != nil {
		root = filepath.Join(os.TempDir(), "lockrun-cache-"+strconv.Itoa(os.Getuid()))
	}
	root = filepath.Join(root, "lockrun-testserver")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(root, name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close() // unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	dir := filepath.Join(root, fmt.Sprintf("%s-%x", name, sum[:6]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	return dir, buildInto(dir, build)
}

// templateRevision is changed with whatever else the templates are made by.
const templateRevision = "1"

// buildInto lets build fill a temporary folder and moves the outcome to dir in one step. The temporary folder is not
// beside dir, because the server's user cannot enter the cache of root.
func buildInto(dir string, build func(dir string) error) error {
	tmp, err := os.MkdirTemp("", "lockrun-template-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := own(tmp); err != nil {
		return err
	}
	if err := build(tmp); err != nil {
		return err
	}
	next := dir + ".new"
	if err := os.RemoveAll(next); err != nil {
		return err
	}
	if err := copyFolder(filepath.Join(tmp, "data"), next); err != nil {
		return err
	}
	return os.Rename(next, dir)
}

// installDatabase makes the data of an empty server in dir/data.
func installDatabase(dir string) error {
	sql := filepath.Join(dir, "extra.sql")
	if err := os.WriteFile(sql, []byte("CREATE DATABASE "+Database+";\n"), 0o644); err != nil {
		return err
	}
	args := append([]string{"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--skip-test-db", "--skip-name-resolve",
		"--auth-root-authentication-method=normal", "--extra-file=" + sql, "--innodb-flush-log-at-trx-commit=0"}, innodbOptions...)
	cmd := exec.Command(find("mariadb-install-db"), args...)
	user, err := databaseUser()
	if err != nil {
		return err
	}
	cmd.SysProcAttr = attributes(user)
	cmd.Dir = dir
	if out, err := output(cmd); err != nil {
		return fmt.Errorf("mariadb-install-db: %w: %s", err, tail(out, 20))
	}
	return nil
}

// output runs cmd to its end on the thread whose end would kill it.
func output(cmd *exec.Cmd) (string, error) {
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := startOn(cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return out.String(), err
}

// databaseUser is whom MariaDB runs as: it refuses to be root. nil means this process's own user.
func databaseUser() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("mysql")
	if err != nil {
		return nil, fmt.Errorf("MariaDB does not run as root, and its own user is missing: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

// own gives dir and all in it to databaseUser.
func own(dir string) error {
	user, err := databaseUser()
	if err != nil || user == nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(user.Uid), int(user.Gid))
	})
}

// copyFolder copies a folder into one that is missing or empty.
func copyFolder(from, to string) error {
	if err := makeFolder(to); err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(from))
}
