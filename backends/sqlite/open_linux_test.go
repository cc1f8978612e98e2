package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockrun/lockrun/backends"
)

func TestURLsRefused(t *testing.T) {
	for raw, want := range map[string]string{
		"sqlite://lockrun.db":                 "three slashes",
		"sqlite://host/var/lib/x.db":          "three slashes",
		"sqlite://./x.db":                     "three slashes",
		"sqlite://":                           "no path",
		"sqlite:///var/lib/":                  "folder",
		"sqlite:///var/lib/x.db?mode=memory":  `"mode"`,
		"sqlite://u:p@/x.db":                  "host",
		"sqlite:///x.db?_journal_mode=DELETE": `"_journal_mode"`,
	} {
		u, err := backends.ParseURL(raw)
		if err == nil {
			_, err = Open(t.Context(), u, backends.Options{})
		}
		var usage *backends.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want *UsageError with %q", raw, err, want)
		}
	}
}

func TestDefaultPath(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		uid  int
		want string
	}{
		{map[string]string{"HOME": "/root", "XDG_STATE_HOME": "/x"}, 0, "/var/lib/lockrun/lockrun.db"},
		{map[string]string{"HOME": "/h", "XDG_STATE_HOME": "/x"}, 1, "/x/lockrun/lockrun.db"},
		{map[string]string{"HOME": "/h", "XDG_STATE_HOME": "relative"}, 1, "/h/.local/state/lockrun/lockrun.db"},
		{map[string]string{"HOME": "/h"}, 1, "/h/.local/state/lockrun/lockrun.db"},
		{map[string]string{"HOME": ""}, 1, ""},
		{map[string]string{"HOME": "relative"}, 1, ""},
	} {
		got, err := DefaultPath(func(k string) string { return c.env[k] }, c.uid)
		var usage *backends.UsageError
		if got != c.want || (c.want == "") != errors.As(err, &usage) {
			t.Errorf("%v, uid %d: %q, %v; want %q", c.env, c.uid, got, err, c.want)
		}
	}
}

// wrong wants a permanent answer "not known" with these words, and the file as it was.
func wrong(t *testing.T, s *store, words ...string) {
	t.Helper()
	before, statErr := os.ReadFile(s.path)
	for _, o := range []backends.Options{{}, {ReadOnly: true}} {
		b, err := s.tryOpen(o)
		if err == nil {
			if o.ReadOnly {
				_, err = b.Status(t.Context(), "k")
			} else {
				_, err = b.Acquire(t.Context(), request("k"))
			}
			b.Close()
		}
		var e *backends.Error
		if !errors.As(err, &e) || !e.Permanent || e.Remedy == "" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v; want one line, permanent, with a remedy", o, err)
			continue
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: %q does not say %q", o, err, w)
			}
		}
	}
	after, _ := os.ReadFile(s.path)
	if statErr == nil && string(after) != string(before) {
		t.Errorf("the file was changed")
	}
}

// CON-05, for a store without passwords and rights of its own.
func TestFilesThatAreNotOurs(t *testing.T) {
	for name, c := range map[string]struct {
		make  func(s *store)
		words []string
	}{
		"not a database": {func(s *store) {
			s.write("something else entirely, and longer than a header of SQLite's, which has a hundred bytes in it ....")
		}, []string{"not a database", "name another file", "move"}},
		"another program's tables":  {func(s *store) { s.createPlain(); s.sql("CREATE TABLE users (id)") }, []string{"another program", "name another file"}},
		"another program's mark":    {func(s *store) { s.createPlain(); s.sql("PRAGMA application_id=7") }, []string{"another program"}},
		"a newer lockrun's":         {func(s *store) { s.open(backends.Options{}).Close(); s.sql("PRAGMA user_version=99") }, []string{"newer", "99", "upgrade"}},
		"a table is gone":           {func(s *store) { s.open(backends.Options{}).Close(); s.sql("DROP TABLE leases") }, []string{"no such table: leases", "move"}},
		"a column is gone":          {func(s *store) { s.open(backends.Options{}).Close(); s.sql("ALTER TABLE keys DROP COLUMN starts") }, []string{"no such column", "move"}},
		"garbage in the middle":     {(*store).damage, []string{"malformed", "move"}},
		"a folder":                  {func(s *store) { os.Mkdir(s.path, 0o755) }, []string{"no regular file"}},
		"a link that leads nowhere": {func(s *store) { os.Symlink("/nonexistent/x.db", s.path) }, []string{"symbolic link", "nowhere"}},
		"two names":                 {func(s *store) { s.open(backends.Options{}).Close(); os.Link(s.path, s.path+"2") }, []string{"2 names", "symbolic links are fine"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, linked)
			c.make(s)
			wrong(t, s, c.words...)
		})
	}
}

func (s *store) write(text string) {
	if err := os.WriteFile(s.path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) createPlain() { s.write("") }

// damage overwrites all pages but the first.
func (s *store) damage() {
	s.open(backends.Options{}).Close()
	s.checkpointAndDelete()
	data, err := os.ReadFile(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 4096; i < len(data); i++ {
		data[i] = 0xa5
	}
	s.write(string(data))
}

func TestMissingFoldersAreNamed(t *testing.T) {
	s := newStore(t, linked)
	s.path = filepath.Join(filepath.Dir(s.path), "nope", "lockrun.db")
	_, err := s.tryOpen(backends.Options{})
	var e *backends.Error
	if !errors.As(err, &e) || !e.Permanent || !strings.Contains(e.Remedy, "install -d") || !strings.Contains(e.Remedy, filepath.Dir(s.path)) {
		t.Errorf("Open = %v", err)
	}
	if _, err := os.Stat(filepath.Dir(s.path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder was created")
	}
}

func TestDefaultFoldersAreCreated(t *testing.T) {
	home := t.TempDir()
	if os.Geteuid() == 0 {
		t.Setenv("XDG_STATE_HOME", "") // root's default is one path for the whole host, which is no test's to touch
		s, exe := shared(t, 0o777)
		os.Chmod(filepath.Dir(s.path), 0o777)
		t.Setenv("HOME", filepath.Dir(s.path))
		s.path = filepath.Join(filepath.Dir(s.path), ".local", "state", "lockrun", "lockrun.db")
		if got := letGo(t, []*proc{s.startAs(alice, exe, "once", "k")}); got["ran"] != 1 {
			t.Fatal(got)
		}
		checkModes(t, s.path)
		return
	}
	t.Setenv("XDG_STATE_HOME", home)
	s := &store{t, linked, filepath.Join(home, "lockrun", "lockrun.db")}
	s.open(backends.Options{}).Close()
	checkModes(t, s.path)
}

// A user without a home, as cron's jobs of system users are, is told what is missing where, and not to be let into a folder
// that is not there.
func TestADefaultFolderThatCannotBeCreated(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "")
	s, exe := shared(t, 0o755)
	dir := filepath.Dir(s.path)
	t.Setenv("HOME", filepath.Join(dir, "home"))
	s.path = filepath.Join(dir, "home", ".local", "state", "lockrun", "lockrun.db")
	p := s.startAs(alice, exe, "once", "k")
	p.want("ready")
	p.in.Close()
	line := p.line()
	for _, want := range []string{filepath.Dir(s.path) + " does not exist, and cannot be created in " + dir + " (owner ", "set HOME or XDG_STATE_HOME"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q does not say %q", line, want)
		}
	}
}

func checkModes(t *testing.T, path string) {
	t.Helper()
	for name, want := range map[string]fs.FileMode{filepath.Dir(path): 0o700, path: 0o600, path + "-live": 0o600} {
		fi, err := os.Stat(name)
		if err != nil {
			t.Error(err)
		} else if got := fi.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", name, got, want)
		}
	}
}

func TestAReaderOfNothing(t *testing.T) {
	eachDriver(t, func(t *testing.T, s *store) {
		for _, empty := range []bool{false, true} {
			if empty {
				s.createPlain()
			}
			b := s.open(backends.Options{ReadOnly: true})
			all, err := b.Status(t.Context())
			if err != nil || len(all) != 0 {
				t.Errorf("Status = %v, %v", all, err)
			}
			if all, err := b.Status(t.Context(), "k"); err != nil || len(all) != 1 || all[0].State != backends.Free {
				t.Errorf("Status k = %v, %v", all, err)
			}
			if h, err := b.History(t.Context(), backends.Query{}); err != nil || len(h) != 0 {
				t.Errorf("History = %v, %v", h, err)
			}
			for _, c := range b.(backends.Doctor).Doctor(t.Context()) {
				if !c.OK {
					t.Errorf("Doctor: %+v", c)
				}
			}
			if _, err := b.Acquire(t.Context(), request("k")); !backends.IsPermanent(err) {
				t.Errorf("Acquire = %v, want a permanent error", err)
			}
			b.Close()
		}
		all, err := filepath.Glob(s.path + "*")
		if err != nil || len(all) != 1 {
			t.Errorf("a reader left %v", all)
		}
	})
}

// A store that an administrator made beforehand keeps the mode it was given.
func TestAnEmptyFileIsFurnished(t *testing.T) {
	eachDriver(t, func(t *testing.T, s *store) {
		s.createPlain()
		os.Chmod(s.path, 0o660)
		b := s.open(backends.Options{})
		if _, err := b.Acquire(t.Context(), request("k")); err != nil {
			t.Fatal(err)
		}
		for _, suffix := range []string{"", "-wal", "-shm", "-live"} {
			if fi, err := os.Stat(s.path + suffix); err != nil || fi.Mode().Perm() != 0o660 {
				t.Errorf("%s: %v, %v", suffix, fi, err)
			}
		}
	})
}

func TestASymbolicLinkIsFollowed(t *testing.T) {
	s := newStore(t, linked)
	real := s.open(backends.Options{})
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(s.path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := real.Acquire(t.Context(), request("k")); err != nil {
		t.Fatal(err)
	}
	through, err := open(t.Context(), urlOf(link), backends.Options{}, s.d, hostClock)
	if err != nil {
		t.Fatal(err)
	}
	defer through.Close()
	if _, err := through.Acquire(t.Context(), request("k")); !isHeld(err) {
		t.Errorf("Acquire through the link = %v", err)
	}
}

// A database that is deleted takes its leases along; nobody writes on into a file without a name.
func TestADeletedDatabase(t *testing.T) {
	eachDriver(t, func(t *testing.T, s *store) {
		a, b := s.open(backends.Options{}), s.open(backends.Options{})
		l, err := a.Acquire(t.Context(), request("k"))
		if err != nil {
			t.Fatal(err)
		}
		for _, suffix := range []string{"", "-wal", "-shm", "-live"} {
			os.Remove(s.path + suffix)
		}
		if err := l.Renew(t.Context(), request("k").TTL); !errors.Is(err, backends.ErrLost) {
			t.Errorf("Renew = %v, want ErrLost", err)
		}
		if _, err := os.Stat(s.path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a renewal created a database")
		}
		next, err := b.Acquire(t.Context(), request("k"))
		if err != nil {
			t.Fatal(err)
		}
		if next.Grant().Token <= l.Grant().Token {
			t.Errorf("token %d after %d", next.Grant().Token, l.Grant().Token)
		}
		if err := l.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); !errors.Is(err, backends.ErrLost) {
			t.Errorf("Release = %v, want ErrLost", err)
		}
	})
}

func TestPathsWithOddCharacters(t *testing.T) {
	eachDriver(t, func(t *testing.T, s *store) {
		s.path = filepath.Join(t.TempDir(), "a b?c#d%41&e='ü\n.db")
		b := s.open(backends.Options{})
		if _, err := b.Acquire(t.Context(), request("k")); err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Stat(s.path); err != nil || fi.Size() == 0 {
			t.Errorf("%v, %v", fi, err)
		}
	})
}

func TestAJournalThatWasSwitchedBackIsMended(t *testing.T) {
	s := newStore(t, linked)
	s.open(backends.Options{}).Close()
	pins.Lock()
	id, _ := statID(s.path)
	pins.files[id].Close() // this process's part in keeping the mode
	delete(pins.files, id)
	pins.Unlock()
	if mode := s.sql("PRAGMA journal_mode=DELETE"); mode[0] != "[delete]" {
		t.Fatalf("the journal mode is %v", mode)
	}
	s.open(backends.Options{})
	if mode := s.sql("PRAGMA journal_mode"); mode[0] != "[wal]" {
		t.Errorf("the journal mode is %v", mode)
	}
}

func TestInitPlanMakesTheStore(t *testing.T) {
	s := newStore(t, linked)
	b := s.open(backends.Options{ReadOnly: true}).(backends.Initer) // as init --print would
	plan := b.InitPlan()
	if _, err := os.Stat(s.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("showing the plan created the store")
	}
	s.createPlain()
	for sql := range strings.SplitSeq(plan, ";\n") {
		if strings.TrimSpace(sql) != "" {
			s.sql(sql)
		}
	}
	byHand := s.sql("SELECT sql FROM sqlite_master ORDER BY name")
	if _, err := s.open(backends.Options{}).Acquire(t.Context(), request("k")); err != nil {
		t.Fatal(err)
	}
	other := newStore(t, linked)
	if err := other.open(backends.Options{}).(backends.Initer).Init(context.Background()); err != nil {
		t.Fatal(err)
	}
	if made := other.sql("SELECT sql FROM sqlite_master ORDER BY name"); strings.Join(made, "\n") != strings.Join(byHand, "\n") {
		t.Errorf("the plan makes\n%v\nInit makes\n%v", byHand, made)
	}
}

func TestTheDoctorFindsWhatIsWrong(t *testing.T) {
	s := newStore(t, linked)
	b := s.open(backends.Options{})
	names := map[string]bool{}
	for _, c := range b.(backends.Doctor).Doctor(t.Context()) {
		names[c.Check] = true
		if !c.OK || c.Backend != b.Name() || c.Cause == "" {
			t.Errorf("%+v", c)
		}
	}
	for _, want := range []string{"path", "file system", "space", "dead holders", "schema", "journal", "integrity"} {
		if !names[want] {
			t.Errorf("%q is not checked", want)
		}
	}
	s.sql("DROP TABLE history")
	found := false
	for _, c := range b.(backends.Doctor).Doctor(t.Context()) {
		found = found || !c.OK && strings.Contains(c.Cause, "history") && c.Remedy != ""
	}
	if !found {
		t.Errorf("a table that is gone is not found")
	}
}

func TestModesOfNewDatabases(t *testing.T) {
	for folder, want := range map[fs.FileMode]fs.FileMode{
		0o700: 0o600, 0o755: 0o644, 0o770 | fs.ModeSetgid: 0o660, 0o775: 0o664, 0o777 | fs.ModeSticky: 0o600, 0o500: 0o600,
	} {
		if got := fileMode(folder); got != want {
			t.Errorf("in a folder of mode %o: %o, want %o", folder, got, want)
		}
	}
}
