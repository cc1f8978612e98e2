package supervise

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/internal/rounds"
)

// family starts descendants of every kind and waits until each has written its number into dir.
func family(dir string) ([]string, []string) {
	names := []string{"command", "group", "session", "daemon", "bare", "barechild"}
	script := `cd ` + dir + `
		sh -c 'echo $$ >group; exec sleep 60' &
		setsid sh -c 'echo $$ >session; exec sleep 60' &
		(setsid sh -c '(sh -c "echo \$\$ >daemon; exec sleep 60" &)' &)
		env -i sh -c 'echo $$ >bare; sh -c "echo \$\$ >barechild; sleep 60; true"; true' &
		for f in group session daemon bare barechild; do while [ ! -s $f ]; do sleep 0.01; done; done
		echo $$ >command
		wait`
	return []string{"sh", "-c", script}, names
}

func pids(t *testing.T, dir string, names []string) map[string]int {
	t.Helper()
	m := make(map[string]int)
	for _, n := range names {
		m[n] = awaitPID(t, filepath.Join(dir, n))
	}
	return m
}

// The tree is dead within a second of lockrun's death by SIGKILL.
func TestKilledLockrunTakesTheTreeAlong(t *testing.T) {
	var worst time.Duration
	for range 10 {
		dir := t.TempDir()
		argv, names := family(dir)
		s := begin(t, plan{Argv: argv})
		all := pids(t, dir, names)
		guard := awaitGuard(t, s.Process.Pid)
		s.Process.Kill()
		began := time.Now()
		for n, pid := range all {
			eventually(t, n+" is dead", func() bool { return !alive(pid) })
		}
		worst = max(worst, time.Since(began))
		s.Wait()
		eventually(t, "the guard has left", func() bool { return !alive(guard) })
	}
	t.Logf("the slowest of ten took %v", worst)
	if worst > time.Second {
		t.Errorf("took %v", worst)
	}
}

// `su - user -c job` starts a process in a session of its own, with a clean environment: once its parent is dead nothing
// tells whose it was. The guard has seen it before.
func TestKilledLockrunTakesTheUnmarkedAlong(t *testing.T) {
	if !exactDispositions {
		t.Skip("Unprotected says so of this build")
	}
	dir := t.TempDir()
	s := begin(t, plan{Argv: []string{"sh", "-c", `cd ` + dir + `
		env -i setsid sh -c 'echo $$ >su; sh -c "echo \$\$ >job; sleep 60; true"; true' &
		(env -i setsid sh -c '(sh -c "echo \$\$ >daemon; exec sleep 60" &)' &)
		wait`}})
	all := pids(t, dir, []string{"su", "job", "daemon"})
	t.Cleanup(func() {
		for _, pid := range all {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	awaitGuard(t, s.Process.Pid)
	time.Sleep(time.Second) // the pause between two looks is about as long as the job has run
	s.Process.Kill()
	for n, pid := range all {
		eventually(t, n+" is dead", func() bool { return !alive(pid) })
	}
}

// A job may be a lockrun itself. When the outer one is killed its guard must not keep the inner one's from killing what
// only that can tell: it carries the inner owner's mark, and may be younger than the last look at the tree.
func TestKilledLockrunWithALockrunInside(t *testing.T) {
	for range 4 {
		dir := t.TempDir()
		inner := plan{Argv: []string{"sh", "-c", `cd ` + dir + `; echo $$ >command; while [ ! -e go ]; do sleep 0.01; done
			sh -c 'echo $$ >group; exec sleep 60' & setsid sh -c 'echo $$ >session; exec sleep 60' & wait`}}
		cmd := runner(t, &inner)
		t.Setenv(childRole, "run")
		outer := begin(t, plan{Argv: cmd.Args})
		guard := awaitGuard(t, outer.Process.Pid)
		awaitGuard(t, awaitChild(t, outer.Process.Pid))
		if exactDispositions { // the outer guard knows the inner one then, and is in no hurry to look again
			slept := sleeps(guard)
			eventually(t, "the outer guard has looked again", func() bool { return sleeps(guard) != slept })
		}
		if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		all := pids(t, dir, []string{"command", "group", "session"})
		outer.Process.Kill()
		for n, pid := range all {
			eventually(t, n+" is dead", func() bool { return !alive(pid) })
		}
		outer.Wait()
	}
}

// sleeps is how often a process has gone to sleep.
func sleeps(pid int) string {
	_, rest, _ := strings.Cut(contents(fmt.Sprintf("/proc/%d/status", pid)), "\nvoluntary_ctxt_switches:")
	count, _, _ := strings.Cut(rest, "\n")
	return count
}

// A guard within the job is spared for half a second, which is longer than the lease may last. What has only its name is not:
// it dies together with the others.
func TestNameOfAGuardSparesNobody(t *testing.T) {
	sleep := needs(t, "sleep")
	best := time.Hour
	for range 3 {
		dir := t.TempDir()
		if err := os.Symlink(sleep, dir+"/"+guardName); err != nil {
			t.Fatal(err)
		}
		s := begin(t, plan{Term: time.Second, Kill: time.Second, Argv: []string{"sh", "-c", `cd ` + dir + `
			setsid sh -c 'echo $$ >named; exec ./` + guardName + ` 60' &
			setsid sh -c 'echo $$ >other; exec sleep 60' &
			wait`}})
		all := pids(t, dir, []string{"named", "other"})
		awaitGuard(t, s.Process.Pid)
		eventually(t, "it has the name", func() bool { return contents(fmt.Sprintf("/proc/%d/comm", all["named"])) == guardName+"\n" })
		s.Process.Signal(syscall.SIGSTOP)
		eventually(t, "the other is dead", func() bool { return !alive(all["other"]) })
		began := time.Now()
		eventually(t, "the named one is dead", func() bool { return !alive(all["named"]) })
		best = min(best, time.Since(began))
		s.Process.Kill()
		s.Wait()
	}
	if best > 300*time.Millisecond {
		t.Errorf("it lived for %v longer", best)
	}
}

// A guard that has killed in the place of a frozen lockrun sleeps until that goes on, for however long.
func TestGuardOfAFrozenLockrunSleeps(t *testing.T) {
	dir := t.TempDir()
	s := begin(t, plan{Argv: []string{"sh", "-c", "echo $$ >" + dir + "/command; exec sleep 60"}, Term: time.Second, Kill: time.Second})
	command := awaitPID(t, filepath.Join(dir, "command"))
	guard := awaitGuard(t, s.Process.Pid)
	s.Process.Signal(syscall.SIGSTOP)
	eventually(t, "the command is dead", func() bool { return !alive(command) })
	time.Sleep(300 * time.Millisecond) // until it has looked for others
	before, began := cpuTime(t, guard), time.Now()
	time.Sleep(500 * time.Millisecond)
	if used, passed := cpuTime(t, guard)-before, time.Since(began); used > passed/10 {
		t.Errorf("the guard used %v of the processor in %v", used, passed)
	}
	s.Process.Signal(syscall.SIGCONT)
	if rep := s.end(); rep.Cause != CauseDeadline || !rep.Gone {
		t.Errorf("%+v", rep)
	}
}

// cpuTime is what a process has used until now, in steps of 10 ms.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// Whoever kills the guard leaves lockrun to start another, and to say so.
func TestKilledGuardIsReplaced(t *testing.T) {
	dir := t.TempDir()
	argv, names := family(dir)
	s := begin(t, plan{Argv: argv})
	all := pids(t, dir, names)
	for range 2 {
		old := awaitGuard(t, s.Process.Pid)
		syscall.Kill(old, syscall.SIGKILL)
		eventually(t, "there is another guard", func() bool {
			g := guardOf(s.Process.Pid)
			return g != 0 && g != old
		})
	}
	s.Process.Signal(syscall.SIGTERM)
	rep := s.end()
	if rep.Code != 143 || rep.Cause != CauseSignal || !rep.Gone || len(rep.Warnings) != 2 {
		t.Errorf("%+v", rep)
	}
	for n, pid := range all {
		if alive(pid) {
			t.Errorf("%s lives", n)
		}
	}
}

func TestReplacedGuardKnowsItsTask(t *testing.T) {
	dir := t.TempDir()
	argv, names := family(dir)
	s := begin(t, plan{Argv: argv})
	all := pids(t, dir, names)
	old := awaitGuard(t, s.Process.Pid)
	syscall.Kill(old, syscall.SIGKILL)
	eventually(t, "there is another guard", func() bool {
		g := guardOf(s.Process.Pid)
		return g != 0 && g != old
	})
	s.Process.Kill()
	for n, pid := range all {
		eventually(t, n+" is dead", func() bool { return !alive(pid) })
	}
}

// At first the guard is no program of its own yet (guardstart.c). It is a guard all the same.
func TestGuardBeforeItsExecution(t *testing.T) {
	early := 0
	for round := range 20 {
		dir := t.TempDir()
		p := plan{Argv: []string{"sh", "-c", "setsid sleep 60 & echo $! >" + dir + "/far; echo $$ >" + dir + "/near; wait"},
			Owner: fmt.Sprintf("early%026d", round)}
		s := start(t, runner(t, &p), p.Report)
		near, far := awaitPID(t, dir+"/near"), awaitPID(t, dir+"/far")
		guard := guardOf(s.Process.Pid)
		line := contents(fmt.Sprintf("/proc/%d/cmdline", guard))
		s.Process.Kill()
		if guard != 0 && line != "" && !strings.HasPrefix(line, guardName) {
			early++
		}
		for n, pid := range map[string]int{"COMMAND": near, "what left its session": far} {
			eventually(t, n+" is dead", func() bool { return !alive(pid) })
		}
		eventually(t, "the guard is gone", func() bool { return guard == 0 || !alive(guard) })
	}
	t.Logf("%d of 20 before", early)
}

// The guard is nobody: no descriptors, no signals, no name that somebody would look for, hardly any memory.
func TestGuardKeepsOutOfTheWay(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p := plan{Argv: []string{"sh", "-c", "echo $$ >" + log + "; exec sleep 60"}}
	cmd := runner(t, &p)
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	cmd.ExtraFiles = []*os.File{null, null} // inherited by lockrun and COMMAND, and not by the guard
	s := start(t, cmd, p.Report)
	child := awaitPID(t, log)
	if got := len(descriptors(child)); got < 5 {
		t.Errorf("COMMAND has %d descriptors: the test shows nothing", got)
	}
	guard := awaitGuard(t, s.Process.Pid)
	eventually(t, "the guard is a program of its own", func() bool {
		return strings.HasPrefix(contents(fmt.Sprintf("/proc/%d/cmdline", guard)), guardName)
	})
	eventually(t, "the guard has got rid of what it inherited", func() bool {
		for _, to := range descriptors(guard) {
			if strings.Contains(to, "/dev/") || to == log {
				return false
			}
		}
		return true
	})
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGTSTP} {
		syscall.Kill(guard, sig)
	}
	g, _ := look(guard)
	if g.pgrp != guard {
		t.Errorf("its group is %d", g.pgrp)
	}
	sid1, _ := unix.Getsid(guard)
	if sid2, _ := unix.Getsid(child); sid1 != sid2 {
		t.Errorf("session %d, COMMAND's is %d", sid1, sid2)
	}
	line := contents(fmt.Sprintf("/proc/%d/cmdline", guard))
	if strings.Contains(line, "lockrun") || strings.Contains(line, "supervise") || strings.Contains(line, "sleep") {
		t.Errorf("somebody may look for %q", line)
	}
	eventually(t, "the guard keeps no folder busy", func() bool {
		cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", guard))
		return cwd == "/"
	})
	rss, _ := strconv.Atoi(strings.Fields(statusOf(guard, "RssAnon"))[0])
	t.Logf("private memory: %d KB, threads: %s", rss, statusOf(guard, "Threads"))
	if exactDispositions && rss > 500 {
		t.Errorf("%d KB of memory", rss)
	}
	time.Sleep(50 * time.Millisecond)
	if !alive(guard) || statusOf(guard, "State")[0] == 'T' {
		t.Error("a signal ended or stopped it")
	}
	s.Process.Signal(syscall.SIGTERM)
	if rep := s.end(); len(rep.Warnings) != 0 {
		t.Errorf("%+v", rep)
	}
	if alive(guard) {
		t.Error("it outlived lockrun")
	}
}

func descriptors(pid int) (to []string) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	list, _ := os.ReadDir(dir)
	for _, e := range list {
		l, _ := os.Readlink(filepath.Join(dir, e.Name()))
		to = append(to, l)
	}
	return to
}

// The lock that proves that the holder lives is free only after the tree is dead.
func TestKeptDescriptorOutlivesTheTree(t *testing.T) {
	for range 10 {
		dir := t.TempDir()
		argv, names := family(dir)
		s := begin(t, plan{Argv: argv, Keep: dir + "/lock"})
		all := pids(t, dir, names)
		awaitGuard(t, s.Process.Pid)
		lock, err := os.Open(dir + "/lock")
		if err != nil {
			t.Fatal(err)
		}
		s.Process.Kill()
		for unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			runtime.Gosched()
		}
		for n, pid := range all {
			if alive(pid) {
				t.Errorf("the lock is free, and %s lives", n)
			}
		}
		lock.Close()
	}
}

// The lock is free as soon as Wait has returned and lockrun has closed its own.
func TestKeptDescriptorIsGivenUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	for range 10 {
		run(t, plan{Argv: []string{"true"}, Keep: path})
		openLocked(path).Close()
	}
}

// Without a guard the kernel is the last to see to it that COMMAND does not run on.
func TestLockrunAndGuardKilledAtOnce(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	s := begin(t, plan{Argv: []string{"sh", "-c", "echo $$ >" + log + "; while :; do :; done"}})
	pid := awaitPID(t, log)
	guard := awaitGuard(t, s.Process.Pid)
	s.Process.Signal(syscall.SIGSTOP) // so that it does not start another
	syscall.Kill(guard, syscall.SIGKILL)
	s.Process.Kill()
	eventually(t, "COMMAND is dead", func() bool { return !alive(pid) })
}

// The kernel kills COMMAND when the thread that started it ends; so that thread must not end.
func TestThreadsComeAndGo(t *testing.T) {
	n, long := 25, "0.7"
	if testing.Short() {
		n = 4
	}
	if rounds.Full() {
		long = "10"
	}
	for procs := 1; procs <= 8; procs++ {
		var jobs []*supervised
		for range n {
			p := plan{Argv: []string{"sh", "-c", "sleep " + long + "; exit 3"}, Churn: true}
			cmd := runner(t, &p)
			cmd.Env = append(cmd.Env, fmt.Sprintf("GOMAXPROCS=%d", procs))
			jobs = append(jobs, start(t, cmd, p.Report))
		}
		for _, s := range jobs {
			if rep := s.end(); rep.Code != 3 || rep.Cause != CauseNone {
				t.Fatalf("GOMAXPROCS=%d: %+v", procs, rep)
			}
		}
	}
}

// A COMMAND that freezes lockrun with its first breath is stopped at the deadline all the same, and one that kills lockrun
// takes its detached descendants along: the guard is there before COMMAND is.
func TestGuardIsThereBeforeCommand(t *testing.T) {
	for i := range 6 {
		dir := t.TempDir()
		s := begin(t, plan{Argv: []string{"sh", "-c", `kill -STOP $PPID; echo $$ >` + dir + `/pid; exec sleep 60`},
			Term: 900 * time.Millisecond, Kill: time.Second})
		frozen := awaitPID(t, filepath.Join(dir, "pid"))
		eventually(t, fmt.Sprintf("round %d: COMMAND is dead", i), func() bool { return !alive(frozen) })
		s.Process.Signal(syscall.SIGCONT)
		if rep := s.end(); rep.Cause != CauseDeadline {
			t.Errorf("round %d: cause %v, want deadline", i, rep.Cause)
		}
	}
	for i := range 6 {
		dir := t.TempDir()
		pid := filepath.Join(dir, "pid")
		s := begin(t, plan{Argv: []string{"sh", "-c",
			`setsid sh -c 'echo $$ >` + pid + `; exec sleep 60' & until [ -s ` + pid + ` ]; do :; done; kill -9 $PPID; sleep 60`}})
		s.Wait()
		detached := awaitPID(t, pid)
		eventually(t, fmt.Sprintf("round %d: the detached descendant is dead", i), func() bool { return !alive(detached) })
	}
}
