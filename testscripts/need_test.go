package testscripts

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/lockrun/lockrun/internal/rounds"
)

// have tells whether this machine offers what a test needs beside Go: root, the right to unshare namespaces, or a program.
func have(what string) bool {
	switch what {
	case "root":
		return os.Getuid() == 0
	case "unshare":
		return exec.Command("unshare", "--mount", "--propagation", "private", "true").Run() == nil
	case "strace":
		return exec.Command("strace", "-o", os.DevNull, "true").Run() == nil
	case "cron":
		_, err := os.Stat("/usr/sbin/cron")
		return err == nil
	}
	_, err := exec.LookPath(what)
	return err == nil
}

// required tells whether a test that lacks what it needs has to fail, because LOCKRUN_TEST_REQUIRE names it.
func required(what string) bool {
	return slices.Contains(strings.Split(os.Getenv("LOCKRUN_TEST_REQUIRE"), ","), what)
}

// need skips a test, visibly, that lacks something, or fails it where skipping is forbidden.
func need(t *testing.T, whats ...string) {
	t.Helper()
	for _, what := range whats {
		if have(what) {
			continue
		}
		if required(what) {
			t.Fatalf("%s is required here (LOCKRUN_TEST_REQUIRE), but missing", what)
		}
		t.Skipf("%s is missing here", what)
	}
}

// condition is what scripts may ask beside the standard set: [have:sqlite3], [raced], [full] for the full rounds.
func condition(cond string) (bool, error) {
	switch cond {
	case "raced":
		return raced(), nil
	case "full":
		return rounds.Full(), nil
	}
	what, ok := strings.CutPrefix(cond, "have:")
	if !ok {
		return false, fmt.Errorf("unknown condition %q", cond)
	}
	if !have(what) && required(what) {
		return false, fmt.Errorf("%s is required here (LOCKRUN_TEST_REQUIRE), but missing", what)
	}
	return have(what), nil
}
