package testscripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadmeCommands runs each block of README.md that is marked as shell, in order, in one folder and with one store, as
// a newcomer would. make is only asked what it would do: this test is a part of it.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	need(t, "bash")
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := shellBlocks(string(text))
	if len(blocks) < 5 {
		t.Fatalf("found only %d blocks marked as shell", len(blocks))
	}
	dir := t.TempDir()
	env := readmeEnv(t, dir)
	for _, b := range blocks {
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", b)
		cmd.Dir, cmd.Env = filepath.Join(dir, "work"), env
		if strings.HasPrefix(b, "go run .") || strings.HasPrefix(b, "make ") {
			cmd.Dir = repo
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v from:\n%s\nwhich said:\n%s", err, b, out)
		}
		t.Logf("%s\n%s", b, out)
	}
}

// shellBlocks are the fenced blocks of a text that are marked as shell.
func shellBlocks(text string) (blocks []string) {
	for _, part := range strings.Split(text, "\n```shell\n")[1:] {
		block, _, _ := strings.Cut(part, "\n```")
		blocks = append(blocks, block)
	}
	return blocks
}

// readmeEnv is a newcomer's environment, with a make that only tells, and a go that builds as this test was built, so
// that it need not compile SQLite again.
func readmeEnv(t *testing.T, dir string) []string {
	shims := filepath.Join(dir, "shims")
	for _, d := range []string{shims, filepath.Join(dir, "work"), filepath.Join(dir, "home")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(shims, "make"), []byte("#!/bin/sh\nPATH=${PATH#*:}\nexec make -n \"$@\"\n"), 0o755)
	flags := os.Getenv("GOFLAGS")
	for _, s := range settings() {
		if s.Key == "-race" || s.Key == "-tags" {
			flags += " " + s.Key + "=" + s.Value
		}
	}
	// HOME is a newcomer's, go's caches are not.
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	gocache, gomodcache, _ := strings.Cut(strings.TrimSpace(string(caches)), "\n")
	return append(os.Environ(), "PATH="+shims+":"+binDir+":"+os.Getenv("PATH"), "HOME="+filepath.Join(dir, "home"),
		"GOFLAGS="+strings.TrimSpace(flags), "GOCACHE="+gocache, "GOMODCACHE="+gomodcache, "GORACE=atexit_sleep_ms=0",
		"XDG_CONFIG_HOME=", "XDG_STATE_HOME=", "LOCKRUN_BACKEND=sqlite://"+filepath.Join(dir, "lockrun.db"))
}
