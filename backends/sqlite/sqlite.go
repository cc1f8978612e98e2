// Package sqlite keeps leases in a SQLite database on this host: the store that lockrun has without any server.
//
// All who share it are processes of one host, and that decides much. Expiry is judged by the host's clock that counts
// suspend and is never set (package boottime); a holder that died is known at once by a kernel lock (live.go); and since
// a power cut ends every holder, the commits of leases need not wait for the disk.
//
// # Files
//
// Beside the database lie -wal and -shm, which are SQLite's, and -live, which holds nothing but kernel locks. All of them
// have the database's mode and, where that can be done, its group. A new database takes its mode from its folder: what
// group and others may do there they may do with the database. In a folder that everybody may write to (/tmp) it is
// readable by its owner alone. Folders are created for the default paths only.
//
// # Speed
//
// An acquire, a renewal and a release are one write transaction each, about a tenth of a millisecond. See wal.go for what
// is done so that opening and closing do not cost many times that.
package sqlite

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/lockrun/lockrun/backends"
)

// Open opens the database that u names, sqlite:///absolute/path, and creates it where it does not exist, unless
// o.ReadOnly is set. It returns *backends.UsageError for a path that has to be corrected, and *backends.Error, permanent
// where asking again is useless, for a database that cannot be used; such a file is never changed.
func Open(ctx context.Context, u *backends.URL, o backends.Options) (backends.Backend, error) {
	return open(ctx, u, o, linked, hostClock)
}

func open(ctx context.Context, u *backends.URL, o backends.Options, d driverFuncs, now clock) (backends.Backend, error) {
	path, err := checkURL(u)
	if err != nil {
		return nil, err
	}
	b := &backend{path: path, o: o.WithDefaults(), d: d, now: now, turn: make(chan struct{}, 1)}
	b.watch.path = b.livePath()
	if err := b.checkPath(); err != nil {
		return nil, b.explain("open", err)
	}
	a := creating
	if o.ReadOnly {
		a = reading
	}
	if _, err := do(ctx, b, "open", a, func(*conn) (struct{}, error) { return struct{}{}, nil }); err != nil {
		return nil, err
	}
	return b, nil
}

// checkURL returns the path.
func checkURL(u *backends.URL) (string, error) {
	if err := u.Only(); err != nil {
		return "", err
	}
	bad := func(why, remedy string) (string, error) {
		return "", &backends.UsageError{What: u.String(), Why: why, Remedy: remedy}
	}
	switch {
	case len(u.Hosts) > 0 || u.User != "" || u.HasPassword:
		return bad("it has a host, or the path is relative", "write three slashes and an absolute path: sqlite:///var/lib/lockrun/lockrun.db")
	case !filepath.IsAbs(u.Path):
		return bad("it has no path", "write three slashes and an absolute path: sqlite:///var/lib/lockrun/lockrun.db")
	case strings.HasSuffix(u.Path, "/"):
		return bad("it names a folder", "name a file in it")
	}
	return filepath.Clean(u.Path), nil
}

// DefaultPath is the database that is used where nobody names one: one for the whole host when run by root, else one of
// the user's own. It returns a *backends.UsageError where the environment does not say where that would be.
func DefaultPath(getenv func(string) string, uid int) (string, error) {
	if uid == 0 {
		return "/var/lib/lockrun/lockrun.db", nil
	}
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "lockrun", "lockrun.db"), nil
	}
	home := getenv("HOME")
	if !filepath.IsAbs(home) {
		return "", &backends.UsageError{What: "default backend", Why: "neither XDG_STATE_HOME nor HOME is set to an absolute path",
			Remedy: "set one of them, or name a database with --backend sqlite:///path"}
	}
	return filepath.Join(home, ".local", "state", "lockrun", "lockrun.db"), nil
}
