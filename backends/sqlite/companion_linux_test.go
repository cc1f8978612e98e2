package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/backends"
)

func TestCompanionsThatAreNoFilesAreRefused(t *testing.T) {
	for _, suffix := range []string{"-wal", "-shm", "-live"} {
		for what, plant := range map[string]func(path string) error{
			"a symbolic link": func(path string) error { return os.Symlink("/nonexistent/nowhere", path) },
			"a folder":        func(path string) error { return os.Mkdir(path, 0o700) },
			"p---------":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		} {
			s := newStore(t, linked)
			if err := plant(s.path + suffix); err != nil {
				t.Fatal(err)
			}
			_, err := s.tryOpen(backends.Options{})
			var e *backends.Error
			if !errors.As(err, &e) || !e.Permanent || !strings.Contains(err.Error(), s.path+suffix) || !strings.Contains(err.Error(), what) || e.Remedy != "remove it" {
				t.Errorf("%s as %s: %v", what, suffix, err)
			}
		}
	}
}

// In a folder that is everybody's, whoever comes first could otherwise write into the log of a store that is not his.
func TestPlantedCompanionsAreRefused(t *testing.T) {
	for _, suffix := range []string{"-wal", "-shm", "-live"} {
		s, exe := shared(t, 0o777|fs.ModeSticky)
		plant := func(who *syscall.Credential) {
			t.Helper()
			path := s.path + suffix
			os.Remove(path)
			for _, err := range []error{os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o666), os.Chown(path, int(who.Uid), int(who.Gid))} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, victim := range []*syscall.Credential{alice, nil} {
			plant(stranger)
			p := s.startAs(victim, exe, "once", "k")
			p.want("ready")
			p.in.Close()
			line := p.line()
			for _, want := range []string{s.path + suffix + " (owner 61003", "somebody else", "have it removed"} {
				if !strings.Contains(line, want) {
					t.Errorf("with a planted %s, user %v is told %q, without %q", suffix, victim, line, want)
				}
			}
			os.Remove(s.path) // the next one makes its own
		}
		for _, owner := range []*syscall.Credential{{}, alice} {
			plant(owner)
			if got := letGo(t, []*proc{s.startAs(alice, exe, "once", "k")}); got["ran"] != 1 {
				t.Errorf("with a %s of %d: %v", suffix, owner.Uid, got)
			}
		}
	}
}

// A store that a group shares may have its companions from any member, whatever folder it is in.
func TestCompanionsOfASharedStoreAreTheMembers(t *testing.T) {
	s, exe := shared(t, 0o770|fs.ModeSetgid)
	if got := letGo(t, []*proc{s.startAs(alice, exe, "once", "k")}); got["ran"] != 1 {
		t.Fatal(got)
	}
	all, err := filepath.Glob(s.path + "-*")
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for _, path := range all {
		if err := os.Chown(path, int(bob.Uid), -1); err != nil {
			t.Fatal(err)
		}
	}
	if got := letGo(t, []*proc{s.startAs(alice, exe, "once", "k")}); got["ran"] != 1 {
		t.Errorf("with the other member's files: %v", got)
	}
}
