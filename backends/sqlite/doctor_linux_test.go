package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/backends"
)

// helpDoctor prints what a doctor that only reads finds wrong, a line each, and then "end".
func helpDoctor(driver, path, _ string, _ []string) error {
	b, err := helperOpen(driver, path, backends.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	for _, line := range ill(b.(backends.Doctor).Doctor(context.Background())) {
		fmt.Println(line)
	}
	fmt.Println("end")
	return b.Close()
}

// ill are the failed checks, as "check: cause; remedy".
func ill(checks []backends.Check) (lines []string) {
	for _, c := range checks {
		if !c.OK {
			lines = append(lines, c.Check+": "+c.Cause+"; "+c.Remedy)
		}
	}
	return lines
}

// findings of the doctor as it is asked for by lockrun doctor.
func (s *store) findings() []string {
	s.t.Helper()
	return ill(s.open(backends.Options{ReadOnly: true}).(backends.Doctor).Doctor(s.t.Context()))
}

func TestTheDoctorFindsALockThatIsKept(t *testing.T) {
	eachDriver(t, func(t *testing.T, s *store) {
		s.open(backends.Options{})
		if got := s.findings(); len(got) != 0 {
			t.Fatalf("in a healthy store: %q", got)
		}
		s.lockedBy("BEGIN IMMEDIATE")
		got := s.findings()
		if len(got) != 1 || !strings.HasPrefix(got[0], "write lock: "+waitsForLock+" ") || !strings.Contains(got[0], "s; fuser -v "+s.path) {
			t.Errorf("%q", got)
		}
	})
}

// Whoever may only read is told so before cron tries in vain.
func TestTheDoctorFindsWhatThisUserMayNotWrite(t *testing.T) {
	s, exe := shared(t, 0o755)
	os.Chown(filepath.Dir(s.path), int(alice.Uid), int(alice.Gid))
	doctor := func(about string, mode map[string]os.FileMode, want string) {
		t.Helper()
		for suffix, m := range mode {
			if err := os.Chmod(s.path+suffix, m); err != nil {
				t.Fatal(err)
			}
		}
		p := s.startAs(stranger, exe, "doctor", "k")
		var said []string
		for line := p.line(); line != "end"; line = p.line() {
			said = append(said, line)
		}
		if all := strings.Join(said, "\n"); want == "" && all != "" || !strings.Contains(all, want) {
			t.Errorf("%s: %s", about, all)
		}
	}
	doctor("a folder without a database", nil, "path: lockrun.db cannot be created in "+filepath.Dir(s.path)+" (owner 61001,")
	p := s.startAs(alice, exe, "hold", "k", "1h")
	p.want("held")
	doctor("the database", nil, "path: "+s.path+" (owner 61001, group 61001, mode 0644; this is user 61003); give it the group")
	doctor("the log", map[string]os.FileMode{"": 0o666}, "path: "+s.path+"-wal (owner 61001,")
	doctor("its index", map[string]os.FileMode{"-wal": 0o666}, "path: "+s.path+"-shm (owner 61001,")
	doctor("the file of locks", map[string]os.FileMode{"-shm": 0o666, "-live": 0o600}, "path: "+s.path+"-live (owner 61001,")
	doctor("nothing", map[string]os.FileMode{"-live": 0o644}, "")
	p.kill()
}

func TestTheDoctorFindsAMissingFolder(t *testing.T) {
	s := newStore(t, linked)
	s.path = filepath.Join(t.TempDir(), "none", "lockrun.db")
	got := s.findings()
	if len(got) != 1 || !strings.HasPrefix(got[0], "path: the folder "+filepath.Dir(s.path)+" does not exist; create the folder") {
		t.Errorf("%q", got)
	}
	// The default one is created by the first run.
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	def, err := DefaultPath(os.Getenv, 1)
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		if s.path = def; len(s.findings()) != 0 {
			t.Errorf("the default folder: %q", s.findings())
		}
	}
}

func TestTheDoctorFindsAReadOnlyFileSystem(t *testing.T) {
	s := newStore(t, linked)
	dir := filepath.Dir(s.path)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=20m"); err != nil {
		t.Skipf("this user may not mount: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	if got := letGo(t, []*proc{s.start("once", "k")}); got["ran"] != 1 {
		t.Fatal(got)
	}
	p := s.start("doctor", "k") // not this process, whose descriptors would be in the way
	p.want("end")
	p.cmd.Wait()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if got := s.findings(); len(got) != 2 || !strings.Contains(got[0], "mounted read-only") || !strings.HasPrefix(got[1], "write lock: ") {
		t.Errorf("%q", got)
	}
}

// Looking is not touching: every byte of the store stays what it was.
func TestTheDoctorChangesNothing(t *testing.T) {
	s := newStore(t, linked)
	if got := letGo(t, []*proc{s.start("once", "k")}); got["ran"] != 1 {
		t.Fatal(got)
	}
	contents := func() string {
		all := listFolder(t, s.path)
		for _, suffix := range []string{"", "-wal"} {
			data, err := os.ReadFile(s.path + suffix)
			if err != nil {
				t.Fatal(err)
			}
			all += string(data)
		}
		return all
	}
	before := contents()
	p := s.start("doctor", "k")
	p.want("end")
	p.cmd.Wait()
	if contents() != before {
		t.Error("the doctor changed the store")
	}
}
