package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// minded starts a script that takes the key k with a minder and goes on, and returns the lease's state.
func (b *shellBench) minded(t *testing.T, ttl string) backends.State {
	t.Helper()
	start(t, b.script(t, `token=$("$lockrun" acquire --key k --ttl `+ttl+` --while-pid $$); touch ready; exec sleep 1000`))
	eventually(t, "acquire", func() bool { _, err := os.Stat(filepath.Join(b.dir, "ready")); return err == nil })
	return b.state(t)
}

// What a closing terminal, a shutdown script or "kill" send is meant for the script: as long as it lives, so does the
// lease.
func TestSignalsDoNotEndTheMinder(t *testing.T) {
	t.Parallel()
	b := newShellBench(t)
	s := b.minded(t, "3s") // a beat each second, and time for a busy machine
	if name, err := os.ReadFile("/proc/" + strconv.Itoa(s.PID) + "/comm"); err != nil || string(name) != minderName+"\n" {
		t.Errorf("top shows %q, %v", name, err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if err := syscall.Kill(s.PID, sig); err != nil {
			t.Fatal(sig, err)
		}
	}
	sent := time.Now()
	eventually(t, "renewals after the signals", func() bool {
		now := b.state(t)
		if now.State != backends.Held || now.Token != s.Token {
			t.Fatalf("the signals ended the lease: %+v", now)
		}
		return now.RenewedAt.Sub(sent) > 1500*time.Millisecond
	})
	if deadProcess(s.PID) {
		t.Error("the minder is dead")
	}
}

// The holder is the script. A minder that is killed tells nothing about it, so the lease lasts until its TTL.
func TestAKilledMinderLeavesTheLeaseToItsTTL(t *testing.T) {
	t.Parallel()
	b := newShellBench(t)
	s := b.minded(t, "1h")
	if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "death of the minder", func() bool { return deadProcess(s.PID) })
	if now := b.state(t); now.State != backends.Held || now.Token != s.Token {
		t.Errorf("the key is %+v", now)
	}
}

// Nobody learns such a token, so nobody could release it.
func TestATokenThatNobodyReadsIsNoLease(t *testing.T) {
	t.Parallel()
	b := newShellBench(t)
	for _, pid := range []string{"", " --while-pid $$"} {
		for _, where := range []string{"", " >&-"} {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
			cmd := b.script(t, `"$lockrun" acquire --key k`+pid+where)
			cmd.Stdout = w
			err = cmd.Run()
			w.Close()
			said := cmd.Stderr.(*bytes.Buffer).String()
			if where != "" && !knowsClosed {
				continue
			}
			if cmd.ProcessState.ExitCode() != codeNo || strings.Count(said, "\n") != 1 || !strings.Contains(said, "given back") {
				t.Errorf("%q: %v: %s", pid+where, err, said)
			}
			eventually(t, "give back", func() bool { return b.state(t).State == backends.Free })
		}
	}
}

func TestVerboseShellVerbs(t *testing.T) {
	t.Parallel()
	b := newShellBench(t)
	for _, pid := range []string{"", " --while-pid $$"} {
		cmd := b.script(t, `token=$("$lockrun" acquire -v --key k`+pid+`)
"$lockrun" renew -v --key k --ttl 10m --token $token
"$lockrun" release -v --key k --token $token`)
		if err := cmd.Run(); err != nil {
			t.Fatal(err, cmd.Stderr)
		}
		said := strings.Split(strings.TrimSuffix(cmd.Stderr.(*bytes.Buffer).String(), "\n"), "\n")
		if len(said) != 3 || !strings.Contains(said[0], `took token `) || !strings.Contains(said[0], `of "k" on sqlite:`) ||
			!strings.Contains(said[1], "renewed token ") || !strings.HasSuffix(said[1], " for 10m") || !strings.Contains(said[2], "released token ") {
			t.Errorf("%q: %q", pid, said)
		}
	}
}
