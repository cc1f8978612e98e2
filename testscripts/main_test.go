// Package testscripts tests lockrun from outside: the program is built once, in the way that this test binary was (race
// detector, tags, C compiler), and each script in scripts/ is one behaviour that a user may rely on.
package testscripts

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

// binDir holds the program and the helpers that scripts find in PATH; repo is the module's folder.
var binDir, repo string

func TestMain(m *testing.M) {
	flag.Parse()
	// Most scripts wait for something most of the time, and the one with cron for up to a minute.
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = p.Value.Set("6")
	}
	code, err := withProgram(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// withProgram builds lockrun, runs the tests and takes it away again.
func withProgram(run func() int) (int, error) {
	dir, err := os.MkdirTemp("", "lockrun-bin")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	binDir = dir
	if repo, err = filepath.Abs(".."); err != nil {
		return 0, err
	}
	if err := build(filepath.Join(dir, "lockrun")); err != nil {
		return 0, err
	}
	for _, f := range []string{"probe.sh", "note.sh"} {
		if err := os.Symlink(filepath.Join(repo, "testscripts", "bin", f), filepath.Join(dir, f)); err != nil {
			return 0, err
		}
	}
	// Others than root have to reach the program too.
	if err := os.Chmod(dir, 0o755); err != nil {
		return 0, err
	}
	return run(), nil
}

// build makes the program with the settings of this test binary.
func build(to string) error {
	args := []string{"build", "-o", to}
	for _, s := range settings() {
		if s.Key == "-race" || s.Key == "-tags" {
			args = append(args, s.Key+"="+s.Value)
		}
	}
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Dir = repo
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("go %s: %s", strings.Join(args, " "), out)
	}
	return err
}

// settings tells how this test binary was built. CGO_ENABLED reaches the program through the environment.
func settings() []debug.BuildSetting {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	return info.Settings
}

// raced tells whether the program was built with the race detector, which makes it several times slower and larger.
func raced() bool {
	for _, s := range settings() {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}
