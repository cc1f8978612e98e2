package supervise

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stubborn ignores TERM, and so does a descendant in a session of its own; both write their numbers down.
func stubborn(dir string) []string {
	return []string{"sh", "-c", `trap "" TERM
		setsid sh -c 'echo $$ >` + dir + `/far; while :; do sleep 0.5; done' &
		while [ ! -s ` + dir + `/far ]; do sleep 0.01; done
		echo $$ >` + dir + `/near
		while :; do sleep 0.5; done`}
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	began := time.Now()
	rep := run(t, plan{Argv: stubborn(dir), Term: 700 * time.Millisecond, Kill: time.Second, Grace: time.Hour})
	if took := time.Since(began); took < time.Second || took > 6*time.Second {
		t.Errorf("ended after %v", took)
	}
	if rep.Code != 137 || rep.Cause != CauseDeadline || !rep.Gone || rep.Left != 0 {
		t.Errorf("%+v", rep)
	}
	for _, f := range []string{"/far", "/near"} {
		if alive(awaitPID(t, dir+f)) {
			t.Errorf("%s lives", f)
		}
	}
}

func TestDeadlineStartsWithTerm(t *testing.T) {
	t.Parallel()
	rep := run(t, plan{Argv: []string{"sh", "-c", "trap 'exit 9' TERM; while :; do sleep 0.02; done"},
		Term: 500 * time.Millisecond, Kill: time.Hour, Grace: time.Hour})
	if rep.Code != 9 || rep.Cause != CauseDeadline || !rep.Gone {
		t.Errorf("%+v", rep)
	}
}

func TestDeadlineMovesAway(t *testing.T) {
	t.Parallel()
	rep := run(t, plan{Argv: []string{"sh", "-c", "sleep 2; exit 4"}, Term: time.Second, Kill: 1100 * time.Millisecond,
		Later: 200 * time.Millisecond, LaterTerm: time.Hour, LaterKill: time.Hour})
	if rep.Code != 4 || rep.Cause != CauseNone || !rep.Gone {
		t.Errorf("%+v", rep)
	}
}

func TestDeadlineMovesNearer(t *testing.T) {
	t.Parallel()
	began := time.Now()
	rep := run(t, plan{Argv: []string{"sleep", "60"}, Term: time.Hour, Kill: time.Hour,
		Later: 200 * time.Millisecond, LaterTerm: 400 * time.Millisecond, LaterKill: time.Hour})
	if rep.Code != 143 || rep.Cause != CauseDeadline || time.Since(began) > 20*time.Second {
		t.Errorf("%+v after %v", rep, time.Since(began))
	}
}

// The grace of a stop ends at the deadline at the latest.
func TestGraceIsCutByTheDeadline(t *testing.T) {
	t.Parallel()
	began := time.Now()
	rep := run(t, plan{Argv: stubborn(t.TempDir()), Grace: time.Hour, StopAt: 300 * time.Millisecond,
		Term: 30 * time.Minute, Kill: time.Hour,
		Later: 600 * time.Millisecond, LaterTerm: 900 * time.Millisecond, LaterKill: time.Second})
	if rep.Code != 137 || rep.Cause != CauseLost || !rep.Gone || time.Since(began) > 20*time.Second {
		t.Errorf("%+v after %v", rep, time.Since(began))
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	rep := run(t, plan{Argv: stubborn(t.TempDir()), Timeout: 600 * time.Millisecond, Grace: 200 * time.Millisecond})
	if rep.Code != 137 || rep.Cause != CauseTimeout || !rep.Gone {
		t.Errorf("%+v", rep)
	}
	rep = run(t, plan{Argv: []string{"sleep", "60"}, Timeout: 200 * time.Millisecond, Grace: time.Hour})
	if rep.Code != 143 || rep.Cause != CauseTimeout || !rep.Gone {
		t.Errorf("obedient: %+v", rep)
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	rep := run(t, plan{Argv: stubborn(t.TempDir()), StopAt: 500 * time.Millisecond, Grace: 200 * time.Millisecond})
	if rep.Code != 137 || rep.Cause != CauseLost || !rep.Gone {
		t.Errorf("%+v", rep)
	}
}

// A stop continues what was stopped, so that it can act on TERM.
func TestStopContinuesAStoppedTree(t *testing.T) {
	t.Parallel()
	rep := run(t, plan{Argv: []string{"sh", "-c", "trap 'exit 8' TERM; kill -STOP $$; while :; do sleep 0.02; done"},
		StopAt: 500 * time.Millisecond, Grace: time.Hour})
	if rep.Code != 8 || rep.Cause != CauseLost {
		t.Errorf("%+v", rep)
	}
}

// lockrun alone is frozen; its guard knows the deadline. When lockrun goes on it says what happened.
func TestFrozenLockrunIsNoRespite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := begin(t, plan{Argv: stubborn(dir), Term: 1500 * time.Millisecond, Kill: 2 * time.Second, Grace: time.Hour})
	near, far := awaitPID(t, dir+"/near"), awaitPID(t, dir+"/far")
	awaitGuard(t, s.Process.Pid)
	s.Process.Signal(syscall.SIGSTOP)
	began := time.Now()
	eventually(t, "the guard has killed", func() bool { return !alive(near) && !alive(far) })
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	if !strings.HasPrefix(statusOf(s.Process.Pid, "State"), "T") {
		t.Error("lockrun was not frozen when it happened")
	}
	s.Process.Signal(syscall.SIGCONT)
	if rep := s.end(); rep.Code != 137 || rep.Cause != CauseDeadline || !rep.Gone {
		t.Errorf("%+v", rep)
	}
}

// COMMAND that ended by itself in time was not stopped by a deadline that passed while lockrun was frozen.
func TestFrozenLockrunBlamesNobody(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	s := begin(t, plan{Argv: []string{"sh", "-c", "echo $$ >" + log + "; sleep 0.7; exit 4"},
		Term: 1500 * time.Millisecond, Kill: 1600 * time.Millisecond})
	pid := awaitPID(t, log)
	s.Process.Signal(syscall.SIGSTOP)
	eventually(t, "COMMAND has ended", func() bool { return !alive(pid) })
	time.Sleep(1800 * time.Millisecond) // the deadline has passed by then
	s.Process.Signal(syscall.SIGCONT)
	if rep := s.end(); rep.Code != 4 || rep.Cause != CauseNone || !rep.Gone {
		t.Errorf("%+v", rep)
	}
}

func TestFate(t *testing.T) {
	for left, want := range map[int]string{1: "a process runs on", 2: "2 processes run on"} {
		tree := Tree{left: left}
		if got := plural(left) + " " + tree.fate(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy   Policy
		survives bool
		left     int
		min      time.Duration
	}{
		"leave": {Leave, true, 2, 0},
		"wait":  {Wait, false, 0, 1200 * time.Millisecond},
		"kill":  {Kill, false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			life := "1.5"
			if c.policy != Wait {
				life = "60"
			}
			began := time.Now()
			s := begin(t, plan{Descendants: c.policy, Grace: time.Hour, Argv: []string{"sh", "-c", fmt.Sprintf(`
				setsid sh -c 'echo $$ >%s/far; exec sleep %s' >/dev/null 2>&1 &
				sh -c 'echo $$ >%s/near; exec sleep %s' >/dev/null 2>&1 &
				while [ ! -s %[1]s/far ] || [ ! -s %[1]s/near ]; do sleep 0.01; done; exit 6`, dir, life, dir, life)}})
			guard := 0
			if c.policy == Wait {
				guard = awaitGuard(t, s.Process.Pid)
			}
			rep := s.end()
			if rep.Code != 6 || rep.Cause != CauseNone || !rep.Gone || rep.Left != c.left || time.Since(began) < c.min {
				t.Errorf("%+v after %v", rep, time.Since(began))
			}
			if (len(rep.Warnings) > 0) != (c.left > 0) {
				t.Errorf("warnings %q", rep.Warnings)
			}
			for _, f := range []string{"/far", "/near"} {
				if got := alive(awaitPID(t, dir+f)); got != c.survives {
					t.Errorf("%s lives: %v", f, got)
				}
			}
			if guard != 0 && alive(guard) {
				t.Error("the guard outlived lockrun")
			}
		})
	}
}

// While descendants are waited for, signals, timeout, Stop and deadline act on them.
func TestWaitedForCanBeStopped(t *testing.T) {
	t.Parallel()
	argv := func(dir string) []string {
		return []string{"sh", "-c", `setsid sleep 60 & sleep 61 & echo >` + dir + `/gone`}
	}
	short := 200 * time.Millisecond
	for name, c := range map[string]struct {
		p     plan
		sig   syscall.Signal
		cause Cause
	}{
		"signal":   {plan{}, syscall.SIGTERM, CauseSignal},
		"timeout":  {plan{Timeout: 500 * time.Millisecond}, 0, CauseTimeout},
		"stop":     {plan{StopAt: 500 * time.Millisecond}, 0, CauseLost},
		"deadline": {plan{Term: 500 * time.Millisecond, Kill: time.Second}, 0, CauseDeadline},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := c.p
			p.Argv, p.Descendants, p.Grace = argv(dir), Wait, short
			s := begin(t, p)
			if c.sig != 0 {
				awaitFile(t, dir+"/gone", "\n")
				s.Process.Signal(c.sig)
			}
			if rep := s.end(); rep.Code != 0 || rep.Cause != c.cause || !rep.Gone || rep.Left != 0 {
				t.Errorf("%+v", rep)
			}
		})
	}
}

// What hangs in the kernel does not hang lockrun. A frozen cgroup (v1) keeps even SIGKILL from taking effect.
func TestUnkillable(t *testing.T) {
	t.Parallel()
	cg := "/sys/fs/cgroup/freezer/lockrun-test-" + newOwner()
	if err := os.Mkdir(cg, 0o755); err != nil {
		t.Skipf("no freezer: %v", err)
	}
	defer os.Remove(cg)
	log := filepath.Join(t.TempDir(), "log")
	s := begin(t, plan{Argv: []string{"sh", "-c", "echo $$ >" + cg + "/cgroup.procs; echo $$ >" + log + "; sleep 60"},
		StopAt: 700 * time.Millisecond, Grace: 100 * time.Millisecond})
	awaitPID(t, log)
	state := filepath.Join(cg, "freezer.state")
	if err := os.WriteFile(state, []byte("FROZEN"), 0o644); err != nil {
		t.Skipf("cannot be frozen here: %v", err)
	}
	rep := s.end()
	os.WriteFile(state, []byte("THAWED"), 0o644)
	if rep.Gone || rep.Ended || rep.Left < 1 || rep.Cause != CauseLost || len(rep.Warnings) != 1 {
		t.Errorf("%+v", rep)
	}
	eventually(t, "the cgroup is empty", func() bool { return os.Remove(cg) == nil })
}

// A chain of processes, each of which ends as soon as it has started the next, is met by no look at /proc for certain. It is
// not taken for gone while it lives.
func TestChainIsNotTakenForGone(t *testing.T) {
	const chain = `$SIG{TERM} = $SIG{HUP} = "IGNORE"; $end = time + 3; while (time < $end) { exit if fork } mkdir $ARGV[0]`
	perl := needs(t, "perl")
	for _, policy := range []Policy{Wait, Kill} {
		began, end := time.Now(), filepath.Join(t.TempDir(), "end")
		rep := run(t, plan{Argv: []string{perl, "-e", chain, end}, Descendants: policy, Grace: 100 * time.Millisecond})
		_, err := os.Stat(end)
		switch ended := err == nil; {
		case policy == Wait && !(rep.Gone && ended):
			t.Errorf("%+v; came to its end: %v", rep, ended)
		case policy == Kill && rep.Gone && !ended:
			time.Sleep(time.Until(began.Add(4 * time.Second)))
			if _, err := os.Stat(end); err == nil {
				t.Errorf("it went on after %+v", rep)
			}
		}
		t.Logf("%+v after %v", rep, time.Since(began))
	}
}
