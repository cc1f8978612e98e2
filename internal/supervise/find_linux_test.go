package supervise

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCannotBeExecuted(t *testing.T) {
	dir := t.TempDir()
	elf, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	elf[18] ^= 0x55 // e_machine
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o777); err != nil {
		t.Fatal(err)
	}
	file := write(t, filepath.Join(dir, "plain"), "x", 0o644)
	for name, c := range map[string]struct {
		path   string
		code   int
		early  bool // found before a lease is taken
		phrase string
	}{
		"missing":       {filepath.Join(dir, "no"), 127, true, "no such file or directory; correct its path"},
		"under a file":  {file + "/x", 127, true, "not a directory"},
		"not in PATH":   {"no-such-command-anywhere", 127, true, "not found in PATH; write its whole path"},
		"empty":         {"", 127, true, "cannot execute"},
		"no x bit":      {file, 126, true, "permission denied; make it executable"},
		"folder":        {dir, 126, true, "is a directory; name a program in it"},
		"pipe":          {fifo, 126, true, "permission denied"},
		"interpreter":   {write(t, filepath.Join(dir, "s1"), "#!/no/such/thing -x\necho", 0o755), 127, true, "/no/such/thing: no such file or directory; install that"},
		"deep":          {write(t, filepath.Join(dir, "s2"), "#! "+write(t, filepath.Join(dir, "s3"), "#!/no/such", 0o755)+"\n", 0o755), 127, false, "interpreter"},
		"wrong CPU":     {write(t, filepath.Join(dir, "elf"), string(elf), 0o755), 126, false, "exec format error"},
		"no first line": {write(t, filepath.Join(dir, "s4"), "echo hello\n", 0o755), 126, false, "#!/bin/sh"},
		"nothing":       {write(t, filepath.Join(dir, "s5"), "", 0o755), 126, false, "exec format error"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Find(c.path, os.Environ())
			var se *StartError
			if early := errors.As(err, &se); early != c.early {
				t.Errorf("Find: %v", err)
			}
			rep := run(t, plan{Argv: []string{c.path}})
			if rep.ExitCode != c.code || !strings.Contains(rep.Error, c.phrase) || strings.Contains(rep.Error, "\n") {
				t.Errorf("code %d, %q", rep.ExitCode, rep.Error)
			}
		})
	}
}

func TestImpossibleArguments(t *testing.T) {
	s := must(Listen())
	for arg, want := range map[string]error{strings.Repeat("x", 4<<20): unix.E2BIG, "a\x00b": unix.EINVAL} {
		_, err := Start(Job{Path: "/bin/true", Argv: []string{"true", arg}}, s, nil)
		var se *StartError
		if !errors.As(err, &se) || se.Code != 126 || !errors.Is(err, want) {
			t.Errorf("%v", err)
		}
	}
}

func TestFindSearchesAsExecvpDoes(t *testing.T) {
	a, b, c := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, filepath.Join(a, "tool"), "#!/bin/sh\n", 0o644) // not executable: the search goes on
	want := write(t, filepath.Join(b, "tool"), "#!/bin/sh\n", 0o755)
	write(t, filepath.Join(c, "here"), "#!/bin/sh\n", 0o755)
	t.Chdir(c)
	for _, x := range []struct{ cmd, path, want string }{
		{"tool", a + ":" + b, want},
		{"here", a + "::" + b, "./here"},
		{"here", a + ":.", "./here"},
		{"./here", "", "./here"},
		{"sh", "UNSET", "/bin/sh"},
	} {
		env := []string{"PATH=/first/one/loses", "PATH=" + x.path}
		if x.path == "UNSET" {
			env = nil
		}
		if got, err := Find(x.cmd, env); got != x.want || err != nil {
			t.Errorf("%s in %q: %q, %v", x.cmd, x.path, got, err)
		}
	}
	var se *StartError
	if _, err := Find("tool", []string{"PATH=" + a}); !errors.As(err, &se) || se.Code != 126 {
		t.Errorf("only one that is not executable: %v", err)
	}
	if _, err := Find("here", []string{"PATH=" + a}); !errors.As(err, &se) || se.Code != 127 {
		t.Errorf("not there: %v", err)
	}
}
