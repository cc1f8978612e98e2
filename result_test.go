package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

func TestWriteResult(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "r.json")
	seven := 7
	for _, c := range []struct {
		rec  backends.Record
		code int
	}{{backends.Record{Key: "k", Outcome: backends.Failed, ExitCode: &seven, Token: 3}, 7}, {backends.Record{Key: "k", Outcome: backends.Skipped, Reason: "held"}, 75}} {
		if err := writeResult(path, c.rec, c.code, "a \"message\""); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if got["key"] != "k" || got["outcome"] != string(c.rec.Outcome) || got["lockrun_exit_code"] != float64(c.code) || got["message"] != "a \"message\"" {
			t.Errorf("got %s", data)
		}
		if _, there := got["exit_code"]; !there || (got["exit_code"] == nil) != (c.rec.ExitCode == nil) {
			t.Errorf("exit_code is %v in %s", got["exit_code"], data)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("left behind: %v, %v", files, err)
	}
}

// A file that passes through another folder can be read there, has that one's group, and may stay behind.
func TestWriteResultUsesNoOtherFolder(t *testing.T) {
	tmp, long := t.TempDir(), time.Now().Add(-time.Hour)
	t.Setenv("TMPDIR", tmp)
	if err := os.Chtimes(tmp, long, long); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(tmp)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeResult(filepath.Join(t.TempDir(), "r.json"), backends.Record{Key: "k"}, 0, ""); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(tmp); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("$TMPDIR was changed at %v: %v", after.ModTime(), err)
	}
}

// A slip of the pen costs a result, but neither the leases nor the sums.
func TestWriteResultReplacesNothingOfLockrunsOwn(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	db, sums := filepath.Join(dir, "l.db"), filepath.Join(dir, "m.prom")
	line := []string{"--backend", "sqlite://" + db, "--key", "k", "--metrics-file", sums}
	if said := invoke(t, openBackend, nil, append(line, "--", "true")...); said.code != 0 || said.err != "" {
		t.Fatal(said)
	}
	for path, what := range map[string]string{db: "a database", sums: "a metrics file"} {
		said := invoke(t, openBackend, nil, append(line, "--result-file", path, "--", "true")...)
		if said.code != 0 || !strings.Contains(said.err, path+" is "+what) {
			t.Errorf("%s: %d, %s", path, said.code, said.err)
		}
	}
	if said := invoke(t, openBackend, nil, "history", "--backend", "sqlite://"+db, "--json", "k"); strings.Count(said.out, "succeeded") != 3 {
		t.Errorf("the history has %s%s", said.out, said.err)
	}
	if text, err := os.ReadFile(sums); err != nil || !strings.Contains(string(text), `lockrun_runs_total{key="k",outcome="succeeded"} 3`) {
		t.Errorf("the sums are %s, %v", text, err)
	}
}

func TestWriteResultTouchesNoDevice(t *testing.T) {
	dir := t.TempDir()
	link, target := filepath.Join(dir, "link"), filepath.Join(dir, "target")
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("target", link); err != nil {
		t.Fatal(err)
	}
	if err := writeResult(link, backends.Record{}, 0, ""); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Lstat(link); err != nil || fi.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", fi, err)
	}
	if fi, err := os.Stat(target); err != nil || fi.Size() == 0 || fi.Mode().Perm() != 0o600 {
		t.Errorf("the target was not written as it was: %v, %v", fi, err)
	}
	for _, path := range []string{"/dev/null", dir, filepath.Join(dir, "none", "r.json"), filepath.Join(target, "r.json")} {
		if err := writeResult(path, backends.Record{}, 0, ""); err == nil {
			t.Errorf("%s was written", path)
		}
	}
	if fi, err := os.Stat("/dev/null"); err != nil || fi.Mode()&os.ModeDevice == 0 {
		t.Fatalf("/dev/null is no device any more: %v, %v", fi, err)
	}
}

// Behind the name of a descriptor may be a log that others are writing to: renaming would take it away from them.
func TestWriteResultReplacesNothingThatIsOpen(t *testing.T) {
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	n := strconv.Itoa(int(log.Fd()))
	for _, l := range [][2]string{{"/dev/fd/" + n, "link"}, {"link", "relative"}, {"/dev/fd", "folder"}} {
		if err := os.Symlink(l[0], filepath.Join(dir, l[1])); err != nil {
			t.Fatal(err)
		}
	}
	paths := []string{"/dev/fd/" + n, filepath.Join(dir, "link"), filepath.Join(dir, "relative"), filepath.Join(dir, "folder", n), "/dev/fd/999"}
	if runtime.GOOS == "linux" {
		paths = append(paths, "/dev/stdout", "/dev/stderr", "/proc/self/fd/"+n, "/proc/thread-self/fd/"+n, "/proc/self/root/proc/self/task/../fd/"+n)
	}
	for _, path := range paths {
		if err := writeResult(path, backends.Record{}, 0, ""); err == nil || !strings.Contains(err.Error(), "open descriptor") {
			t.Errorf("%s: %v", path, err)
		}
	}
	before, _ := log.Stat()
	if after, err := os.Stat(log.Name()); err != nil || !os.SameFile(before, after) || after.Size() != 0 {
		t.Errorf("the file was replaced or written to: %v, %v", after, err)
	}
}

// The file of an earlier run must not be taken for the answer of one that was refused.
func TestARefusedCommandLineHasAResult(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.toml")
	if err := os.WriteFile(bad, []byte("nonsense = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	named := filepath.Join(t.TempDir(), "named.toml")
	if err := os.WriteFile(named, []byte("[jobs.k]\nexit_code = { usage = 9 }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line string // FILE is the result file, @ in the variable
		env  string
		code float64 // 0: the file is left alone, since it may be COMMAND's
	}{
		{"--key k --ttl 0 --result-file FILE -- true", "", codeUsage},
		{"--result-file FILE -- true", "", codeUsage},
		{"--key k --result-file FILE --nonsense -- true", "", codeUsage},
		{"--key k --result-file=FILE --ttl", "", codeUsage},
		{"--key k --nonsense -- true", "LOCKRUN_RESULT_FILE=@", codeUsage},
		{"--key k --exit-code usage=9 --result-file FILE --nonsense -- true", "", 9},
		{"--key k --result-file FILE --nonsense -- true", "LOCKRUN_EXIT_CODE=usage=9", 9},
		{"--key k --config " + named + " --nonsense -- true", "LOCKRUN_RESULT_FILE=@", 9},
		{"", "LOCKRUN_RESULT_FILE=@", codeUsage},
		{"--key k --nonsense --exit-code usage=9 -- true", "LOCKRUN_RESULT_FILE=@", codeUsage},
		{"--key k --config " + bad + " --result-file FILE -- true", "", codeConfig},
		{"--key k --exit-code config=9 --config " + bad + " --result-file FILE -- true", "", 9},
		{"--key k --nonsense job --result-file FILE", "", 0},
		{"--ttl 0 -- job --result-file FILE", "", 0},
	} {
		file := filepath.Join(t.TempDir(), "r.json")
		if err := os.WriteFile(file, []byte(`{"outcome":"succeeded"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		line := strings.Fields(strings.ReplaceAll(c.line, "FILE", file))
		said := invoke(t, untouched(t), []string{strings.ReplaceAll(c.env, "@", file)}, line...)
		data, err := os.ReadFile(file)
		var got struct {
			Key, Outcome, Message string
			Code                  float64 `json:"lockrun_exit_code"`
			Ended                 any     `json:"ended_at"`
		}
		if err != nil || json.Unmarshal(data, &got) != nil {
			t.Fatalf("%s: %s, %v", c.line, data, err)
		}
		switch {
		case c.code == 0:
			if got.Outcome != "succeeded" {
				t.Errorf("%s: wrote %s", c.line, data)
			}
		case got.Code != c.code || float64(said.code) != c.code || got.Outcome != "not-started" || got.Ended != nil || !strings.Contains(said.err, got.Message) || got.Message == "":
			t.Errorf("%s: %d, %s, having said %s", c.line, said.code, data, said.err)
		}
	}
}

// In a folder that is everybody's, a link that somebody else has put there must not have root's run replace any file.
func TestWriteResultFollowsNoPlantedLink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a link that is somebody else's")
	}
	dir, everybodys := t.TempDir(), filepath.Join(t.TempDir(), "tmp")
	victim, trap := filepath.Join(dir, "passwd"), filepath.Join(everybodys, "r.json")
	for _, err := range []error{os.Mkdir(everybodys, 0o700), os.Chmod(everybodys, os.ModeSticky|0o777), os.WriteFile(victim, []byte("precious"), 0o600),
		os.Symlink(victim, trap), os.Lchown(trap, 65534, 65534), os.Symlink(trap, filepath.Join(dir, "ours"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{trap, filepath.Join(dir, "ours"), filepath.Join(everybodys, "..", "tmp", "r.json")} {
		err := writeResult(path, backends.Record{Key: "k"}, 0, "")
		if text, e := os.ReadFile(victim); e != nil || string(text) != "precious" {
			t.Fatalf("%s was written through: %q, %v", path, text, e)
		}
		if err == nil || !strings.Contains(err.Error(), "somebody else") {
			t.Errorf("%s: %v", path, err)
		}
	}
	// Our own link is followed there as anywhere.
	if err := os.Lchown(trap, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := writeResult(trap, backends.Record{Key: "k"}, 0, ""); err != nil {
		t.Error(err)
	}
	// A link that leads nowhere is replaced, and so makes nothing where it led.
	nowhere := filepath.Join(dir, "nowhere")
	for _, err := range []error{os.Remove(trap), os.Symlink(nowhere, trap), os.Lchown(trap, 65534, 65534), writeResult(trap, backends.Record{Key: "k"}, 0, "")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(nowhere); err == nil {
		t.Error("a file was made where a planted link leads")
	}
}

// Who has put a file in the way does not say who may write to ours.
func TestWriteResultTakesTheModeOfNobodyElse(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o027))
	path := filepath.Join(t.TempDir(), "r.json")
	write := func(mode os.FileMode, uid int, want os.FileMode) {
		t.Helper()
		for _, err := range []error{os.WriteFile(path, nil, 0o600), os.Chown(path, uid, -1), os.Chmod(path, mode), writeResult(path, backends.Record{}, 0, "")} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != want || int(fi.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
			t.Errorf("a file of %d with mode %o became %v of %+v, %v", uid, mode, fi.Mode(), fi.Sys(), err)
		}
	}
	if err := writeResult(path, backends.Record{}, 0, ""); err != nil {
		t.Fatal(err)
	}
	write(0o666, os.Geteuid(), 0o666)
	write(0o600, os.Geteuid(), 0o600)
	if os.Geteuid() == 0 {
		write(0o666, 65534, 0o640)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := writeResult(path, backends.Record{}, 0, ""); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o640 {
		t.Errorf("a new file has %v, %v", fi, err)
	}
}

func TestNamesMayBeAsLongAsTheFileSystemAllows(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, strings.Repeat("r", 255))
	for range 2 {
		if err := writeResult(path, backends.Record{Key: "k"}, 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("left behind: %v, %v", files, err)
	}
}

// What is made beside the file has a name that tells nobody anything.
func TestWhyAResultWasNotWritten(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		filepath.Join(dir, "no", "r.json"): filepath.Join(dir, "no", "r.json") + ": its folder is not there; create it, or correct the path",
		dir:                                dir + " is not a plain file; name one",
	} {
		if err := writeResult(path, backends.Record{Key: "k"}, 0, ""); err == nil || err.Error() != want {
			t.Errorf("%s: %v; want %s", path, err, want)
		}
	}
	for _, err := range []error{&os.PathError{Op: "write", Path: "tmp", Err: syscall.ENOSPC}, &os.LinkError{Op: "rename", Old: "tmp", New: "r.json", Err: syscall.ENOSPC}} {
		if got := notReplaced("r.json", err); got.Error() != "r.json: no space left on device" || !errors.Is(got, syscall.ENOSPC) {
			t.Errorf("%v: %v", err, got)
		}
	}
	if got := notReplaced("r.json", &os.PathError{Op: "open", Path: "tmp", Err: syscall.EACCES}); got.Error() != "r.json: permission denied; let this user write to its folder, or name another file" {
		t.Error(got)
	}
	if err := notReplaced("r.json", nil); err != nil {
		t.Error(err)
	}
}
