package testscripts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lockrun/lockrun/internal/testserver"
)

// bare is a root folder with lockrun in it and nothing else: no /proc, /tmp, /etc/passwd, time zones or certificates, no
// shell, and no variable in the environment. Where a command is needed it is lockrun itself.
type bare struct {
	*testing.T
	root string
	pid1 bool
	said string // what it says beside on every run here, as a protection is missing
}

// TestBareRoot: the program needs nothing but its own file, as in an image made from scratch.
func TestBareRoot(t *testing.T) {
	t.Parallel()
	need(t, "root")
	builds := map[string]struct{ env, flags []string }{
		"without cgo": {env: []string{"CGO_ENABLED=0"}},
		"musl":        {[]string{"CGO_ENABLED=1", "CC=musl-gcc"}, []string{"-ldflags", `-linkmode external -extldflags "-static -Wl,-z,stack-size=1048576"`}},
	}
	for name, how := range builds {
		t.Run(name, func(t *testing.T) {
			if name == "musl" {
				need(t, "musl-gcc")
			}
			root := t.TempDir()
			buildStatic(t, filepath.Join(root, "lockrun"), how.env, how.flags)
			b := &bare{T: t, root: root}
			if !b.may() {
				t.Skip("chroot is not allowed here")
			}
			if name == "without cgo" { // its guard is executed anew, by a name under /proc
				b.said = "lockrun: warning: no guard could be started"
			}
			b.runs()
			b.asks()
			b.schedules()
			b.servers()
			b.pidOne()
		})
	}
}

// buildStatic builds as the Makefile does, so that what that has compiled need not be compiled again: SQLite alone takes a
// minute.
func buildStatic(t *testing.T, to string, env, flags []string) {
	t.Helper()
	args := append([]string{"build", "-trimpath", "-tags", "urfave_cli_no_docs sqlite_omit_load_extension netgo osusergo", "-o", to}, flags...)
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Dir, cmd.Env = repo, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// command is lockrun in the bare root.
func (b *bare) command(env []string, args ...string) *exec.Cmd {
	sys := &syscall.SysProcAttr{Chroot: b.root}
	if b.pid1 {
		sys.Cloneflags = syscall.CLONE_NEWPID
	}
	if env == nil {
		env = []string{} // nil would be ours
	}
	return &exec.Cmd{Path: "/lockrun", Args: append([]string{"lockrun"}, args...), Dir: "/", Env: env, SysProcAttr: sys}
}

// may tells whether this user may make such a root. A lockrun that does not run there is no reason to skip anything.
func (b *bare) may() bool { return !errors.Is(b.command(nil, "version").Run(), syscall.EPERM) }

// lockrun runs it and wants the code. It returns what came on stdout, and on stderr beside what is said on every run.
func (b *bare) lockrun(code int, args ...string) (out, err string) {
	b.Helper()
	return b.with(nil, code, args...)
}

func (b *bare) with(env []string, code int, args ...string) (out, err string) {
	b.Helper()
	var stdout, stderr strings.Builder
	cmd := b.command(env, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if e := cmd.Run(); cmd.ProcessState == nil {
		b.Fatal(e)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		b.Errorf("lockrun %q (as PID 1: %v): %d, want %d; it said %s%s", args, b.pid1, got, code, stdout.String(), stderr.String())
	}
	for line := range strings.Lines(stderr.String()) {
		if b.said == "" || !strings.HasPrefix(line, b.said) {
			err += line
		}
	}
	return stdout.String(), err
}

// ran wants that the job ran, in silence.
func (b *bare) ran(args ...string) {
	b.Helper()
	if out, err := b.lockrun(0, append(args, "--", "/lockrun", "version")...); !strings.HasPrefix(out, "lockrun ") || err != "" {
		b.Errorf("lockrun %q printed %q and said %q", args, out, err)
	}
}

func (b *bare) runs() {
	b.ran("--key", "k", "--backend", "sqlite:///mine.db")
	b.ran("--key", "k") // in root's default, whose folders are made
	if fi, err := os.Stat(filepath.Join(b.root, "var/lib/lockrun/lockrun.db")); err != nil || fi.Mode().Perm() != 0o644 {
		b.Errorf("the default store: %v, %v", fi, err)
	}
	// Held by the outer one, the key is not for the inner one, whose code is passed on.
	if out, err := b.lockrun(75, "--key", "k", "--", "/lockrun", "--key", "k", "--", "/lockrun", "version"); out+err != "" {
		b.Errorf("a skip printed %q and said %q", out, err)
	}
	if _, err := b.lockrun(127, "--key", "k", "--", "sh", "-c", "true"); !strings.Contains(err, "sh") {
		b.Errorf("about a command that there is not it said %q", err)
	}
	b.ran("--key", "k") // nothing was left behind
}

func (b *bare) asks() {
	if out, _ := b.lockrun(1, "status", "k"); !strings.Contains(out, "free") {
		b.Errorf("status says %q", out)
	}
	if out, _ := b.lockrun(0, "history", "--json", "k"); !strings.Contains(out, `"outcome":"succeeded"`) {
		b.Errorf("history says %q", out)
	}
	if out, _ := b.lockrun(0, "doctor"); !strings.Contains(out, "/proc is not mounted") {
		b.Errorf("doctor does not tell what is missing: %s", out)
	}
	if _, err := b.with([]string{"LOCKRUN_HOOK=succeeded=true"}, 0, "--key", "k", "--", "/lockrun", "version"); !strings.Contains(err, "hook") {
		b.Errorf("about a hook without a shell it said %q", err)
	}
}

func (b *bare) schedules() {
	b.ran("--key", "s", "--schedule", "0 1 * * *")
	if out, _ := b.lockrun(76, "--key", "s", "--schedule", "0 1 * * *", "--", "/lockrun", "version"); out != "" {
		b.Errorf("it ran again: %s", out)
	}
	// A zone that cannot be known is refused, and not taken for UTC.
	for _, c := range [][]string{{"TZ=Europe/Berlin", "0 1 * * *"}, {"A=b", "CRON_TZ=Europe/Berlin 0 1 * * *"}} {
		if out, err := b.with(c[:1], 64, "--key", "z", "--schedule", c[1], "--", "/lockrun", "version"); out != "" || !strings.Contains(err, "tzdata") {
			b.Errorf("%q printed %q and said %q", c, out, err)
		}
	}
	if out, err := b.with([]string{"TZ=UTC"}, 0, "--key", "z", "--schedule", "CRON_TZ=UTC 0 1 * * *", "--", "/lockrun", "version"); out == "" || err != "" {
		b.Errorf("in UTC it printed %q and said %q", out, err)
	}
}

func (b *bare) servers() {
	if _, err := b.lockrun(69, "--key", "k", "--backend", "redis://somewhere.invalid", "--backend-timeout", "1s", "--", "/lockrun", "version"); !strings.Contains(err, "look up") {
		b.Errorf("about a name without a resolver it said %q", err)
	}
	b.Run("redis", func(t *testing.T) {
		r := testserver.StartRedis(t, testserver.RedisConfig{})
		inner := *b
		inner.T = t
		inner.ran("--key", "k", "--backend", r.URL())
		if out, _ := inner.lockrun(75, "--key", "k", "--backend", r.URL(), "--", "/lockrun", "--key", "k", "--backend", r.URL(), "--", "/lockrun", "version"); out != "" {
			t.Errorf("it ran twice: %s", out)
		}
	})
}

// pidOne does it again as the first process of a container.
func (b *bare) pidOne() {
	b.Run("as PID 1", func(t *testing.T) {
		inner := *b
		inner.T, inner.pid1 = t, true
		if !inner.may() {
			t.Skip("a PID namespace is not allowed here")
		}
		inner.ran("--key", "one")
		inner.lockrun(75, "--key", "one", "--", "/lockrun", "--key", "one", "--", "/lockrun", "version")
		inner.ran("--key", "one", "--schedule", "@daily")
	})
}
