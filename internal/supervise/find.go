//go:build unix

package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// standardPath is searched where PATH is not set, as execvp(3) does.
const standardPath = "/bin:/usr/bin"

// Find says which file cmd names, searching PATH of env as execvp(3) and the shells do (an empty element is the working
// directory), and looks for what would keep it from being executed, so that this is known before a lease is taken. The
// error is a *StartError. As in bash, 127 means that the command, or the interpreter its first line names, is not there,
// and 126 that it cannot be executed. What only the kernel can judge, such as another CPU's code, Start reports.
func Find(cmd string, env []string) (string, error) {
	if cmd == "" {
		return "", &StartError{Path: `""`, Code: 127, Err: fs.ErrNotExist}
	}
	if strings.Contains(cmd, "/") {
		return cmd, check(cmd)
	}
	var denied error
	for dir := range strings.SplitSeq(searchPath(env), ":") {
		path := filepath.Join(dir, cmd)
		if dir == "" || dir == "." {
			path = "./" + cmd
		}
		err := check(path)
		if err == nil {
			return path, nil
		}
		if denied == nil && !missing(path) {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", &StartError{Path: cmd, Code: 127, Err: errors.New("not found in PATH"), Remedy: "write its whole path, or add its folder to PATH"}
}

func missing(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) != nil
}

func searchPath(env []string) string {
	path := standardPath
	for _, v := range env {
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			path = p
		}
	}
	return path
}

// check looks for everything that can be seen from outside.
func check(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		e := &StartError{Path: path, Code: codeOf(err), Err: err}
		if e.Code == 127 {
			e.Remedy = "correct its path"
		}
		return e
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return &StartError{Path: path, Code: 126, Err: unix.EISDIR, Remedy: "name a program in it"}
	default:
		return &StartError{Path: path, Code: 126, Err: unix.EACCES} // as the kernel says of pipes and devices
	}
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS); err != nil {
		return &StartError{Path: path, Code: 126, Err: err, Remedy: "make it executable for this user (chmod +x), or start it by its interpreter"}
	}
	if interp := interpreter(path); interp != "" && missing(interp) {
		return &StartError{Path: path, Code: 127, Err: fmt.Errorf("its interpreter %s: %w", interp, unix.ENOENT), Remedy: "install that, or correct the first line"}
	}
	return nil
}

// interpreter reads the first line as the kernel does. A file that may be executed need not be readable.
func interpreter(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var head [256]byte
	n, err := unix.Read(fd, head[:])
	if err != nil || n < 2 || head[0] != '#' || head[1] != '!' {
		return ""
	}
	line, _, whole := bytes.Cut(head[2:n], []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) == 0 || !whole && n == len(head) {
		return "" // let the kernel say what it makes of it
	}
	return string(fields[0])
}

// codeOf is the exit code for an error of execve(2) or of a look at the file.
func codeOf(err error) int {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return 127
	}
	return 126
}
