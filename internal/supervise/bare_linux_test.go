package supervise

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// roleSeccomp executes its arguments as the role run under a filter that makes the kernel look like one that is too old
// for subreapers, parent-death signals, process descriptors, close_range and timers that count suspend.
func roleSeccomp(args []string) {
	const nr, arg0 = 0, 16 // offsets in struct seccomp_data
	deny := uint32(unix.SECCOMP_RET_ERRNO | unix.ENOSYS)
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	equal := func(k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: yes, Jf: no, K: k}
	}
	ret := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	program := []unix.SockFilter{
		load(nr),
		equal(unix.SYS_PIDFD_OPEN, 9, 0), equal(unix.SYS_CLOSE_RANGE, 8, 0), equal(unix.SYS_TIMERFD_CREATE, 7, 0),
		equal(unix.SYS_PRCTL, 0, 5),
		load(arg0),
		equal(unix.PR_SET_CHILD_SUBREAPER, 4, 0), equal(unix.PR_GET_CHILD_SUBREAPER, 3, 0),
		equal(unix.PR_SET_PDEATHSIG, 2, 0), equal(unix.PR_GET_PDEATHSIG, 1, 0),
		ret(unix.SECCOMP_RET_ALLOW),
		ret(deny),
	}
	runtime.LockOSThread()
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		os.Exit(77)
	}
	panic(syscall.Exec(args[0], args, append(os.Environ(), roleVariable+"=run")))
}

// bare worlds lack what lockrun would like to have. It works, as far as it goes, and says what is missing.
func bareWorlds() map[string]struct {
	missing []string // words of Unprotected
	enter   func(t *testing.T, cmd *exec.Cmd) *exec.Cmd
} {
	type world = struct {
		missing []string
		enter   func(t *testing.T, cmd *exec.Cmd) *exec.Cmd
	}
	return map[string]world{
		"old kernel": {[]string{"subreapers", "parent-death"}, func(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
			return role(t, "seccomp", cmd.Args...)
		}},
		"no /proc": {[]string{"/proc is not mounted", "; mount /proc"}, func(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
			if exec.Command("unshare", "-m", "mount", "-t", "tmpfs", "none", "/proc").Run() != nil {
				t.Skip("no mount namespace may be made here")
			}
			if !exactDispositions {
				t.Skip("Go finds its own executable in /proc only, so this build has no guard without it")
			}
			in := exec.Command("unshare", append([]string{"-m", "sh", "-c", `mount -t tmpfs none /proc && exec "$@"`, "sh"},
				cmd.Args...)...)
			in.Env = cmd.Env
			return in
		}},
	}
}

func TestBareWorld(t *testing.T) {
	for name, w := range bareWorlds() {
		t.Run(name, func(t *testing.T) {
			p := plan{Argv: []string{"sh", "-c", "sleep 0.1; exit 5"}}
			cmd := w.enter(t, runner(t, &p))
			cmd.Run()
			if cmd.ProcessState.ExitCode() == 77 {
				t.Skip("no seccomp")
			}
			rep := readReport(t, p.Report)
			if rep.Code != 5 || !rep.Gone || rep.Cause != CauseNone || len(rep.Warnings) > 0 {
				t.Errorf("%+v", rep)
			}
			for _, m := range w.missing {
				if !strings.Contains(strings.Join(rep.Unprotected, "\n"), m) {
					t.Errorf("%q is not said to be missing: %q", m, rep.Unprotected)
				}
			}

			p = plan{Argv: []string{"sh", "-c", "trap '' TERM; sleep 60; sleep 60"}, Term: 300 * time.Millisecond, Kill: 500 * time.Millisecond}
			w.enter(t, runner(t, &p)).Run()
			if rep := readReport(t, p.Report); rep.Code != 137 || rep.Cause != CauseDeadline || !rep.Gone {
				t.Errorf("deadline: %+v", rep)
			}

			dir := t.TempDir()
			p = plan{Argv: []string{"sh", "-c", "sh -c 'echo $$ >" + dir + "/near; sleep 60; true' & echo $$ >" + dir + "/pid; wait"}}
			s := start(t, w.enter(t, runner(t, &p)), p.Report)
			all := pids(t, dir, []string{"pid", "near"})
			awaitGuard(t, s.Process.Pid)
			s.Process.Kill()
			for n, pid := range all {
				eventually(t, n+" is dead", func() bool { return !alive(pid) })
			}
		})
	}
}

// elsewhere executes a command, as a child of PID 1, in a PID namespace that kept its parent's /proc. That shows processes by
// numbers that mean others in the namespace, or nobody.
// What comes then is up to PID 1's script: with its end, all processes of the namespace end.
func elsewhere(t *testing.T, cmd *exec.Cmd, then string) *exec.Cmd {
	t.Helper()
	ns := []string{"-p", "-f", "--kill-child"}
	if exec.Command("unshare", append(ns, "true")...).Run() != nil {
		t.Skip("no PID namespace may be made here")
	}
	in := exec.Command("unshare", append(append(ns, "sh", "-c", `"$@"; `+then, "sh"), cmd.Args...)...)
	in.Env = cmd.Env
	return in
}

func TestProcOfAnotherNamespace(t *testing.T) {
	t.Run("what was not seen dead is not gone", func(t *testing.T) {
		p := plan{Argv: []string{"sh", "-c", "setsid sleep 60 & sleep 60"}, Term: 300 * time.Millisecond, Kill: 500 * time.Millisecond}
		elsewhere(t, runner(t, &p), "exit").Run()
		rep := readReport(t, p.Report)
		if rep.Cause != CauseDeadline || rep.Gone || rep.Left != 1 {
			t.Errorf("%+v", rep)
		}
		if !strings.Contains(strings.Join(rep.Unprotected, "\n"), "/proc is that of another PID namespace") {
			t.Errorf("%q", rep.Unprotected)
		}
	})
	t.Run("the guard leaves", func(t *testing.T) {
		dir := t.TempDir()
		p := plan{Argv: []string{"sh", "-c", "setsid sleep 60 & echo $$ >" + dir + "/pid; sleep 60; true"}}
		in := elsewhere(t, runner(t, &p), "sleep 60")
		start(t, in, p.Report)
		awaitPID(t, dir+"/pid")
		time.Sleep(5 * guardPatience) // until it is a program of its own
		var lockrun, guard int
		eventually(t, "there is a guard", func() bool {
			for _, lockrun = range named(in.Args[len(in.Args)-1]) {
				if guard = guardOf(lockrun); guard != 0 {
					return true
				}
			}
			return false
		})
		unix.Kill(lockrun, unix.SIGKILL)
		eventually(t, "the guard has left", func() bool { return !alive(guard) })
	})
}

// Where everything is there, nothing is said. What a build is short of, no other system mends.
func TestNothingIsUnprotectedHere(t *testing.T) {
	list := Unprotected()
	if exactDispositions && len(list) > 0 {
		t.Errorf("%q", list)
	}
	for _, g := range list {
		if !strings.HasPrefix(g.What, "this build (without cgo) ") || !strings.Contains(g.Remedy, "built with a C compiler") {
			t.Errorf("%+v", g)
		}
	}
}
