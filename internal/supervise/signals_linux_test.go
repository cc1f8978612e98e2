package supervise

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Each signal reaches COMMAND exactly once, in a session of lockrun's own as in the caller's.
func TestForwardsEachSignalOnce(t *testing.T) {
	for name, attr := range map[string]*syscall.SysProcAttr{
		"same session": nil,
		"own group":    {Setpgid: true},
		"own session":  {Setsid: true},
	} {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			p := plan{Argv: []string{role(t, "signals").Path, log}}
			cmd := runner(t, &p)
			cmd.Env = append(cmd.Env, childRole+"=signals")
			cmd.SysProcAttr = attr
			s := start(t, cmd, p.Report)
			awaitFile(t, log, "ready\n")

			want := "ready\n"
			for range 3 {
				for _, sig := range forwarded {
					s.Process.Signal(sig)
					want += unix.SignalName(sig) + "\n"
					awaitFile(t, log, want) // the next signal might otherwise overtake
				}
			}
			syscall.Kill(awaitChild(t, s.Process.Pid), syscall.SIGKILL)
			if rep := s.end(); rep.Code != 137 || rep.Cause != CauseSignal || !rep.Gone {
				t.Errorf("%+v", rep)
			}
			if got := contents(log); got != want {
				t.Errorf("COMMAND got %q, want %q", strings.Fields(got), strings.Fields(want))
			}
		})
	}
}

// A whole group that is signalled (as by a terminal whose foreground lockrun's group is) does not include COMMAND.
func TestSignalToTheGroupArrivesOnce(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p := plan{Argv: []string{role(t, "signals").Path, log}}
	cmd := runner(t, &p)
	cmd.Env = append(cmd.Env, childRole+"=signals")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s := start(t, cmd, p.Report)
	awaitFile(t, log, "ready\n")
	want := "ready\n"
	for range 5 {
		syscall.Kill(-s.Process.Pid, syscall.SIGINT)
		want += "SIGINT\n"
		awaitFile(t, log, want)
	}
	syscall.Kill(awaitChild(t, s.Process.Pid), syscall.SIGKILL)
	s.end()
	if got := contents(log); got != want {
		t.Errorf("COMMAND got %q", got)
	}
}

// What nobody took from the channel before the start is COMMAND's.
func TestSignalBeforeTheStart(t *testing.T) {
	for _, where := range []string{"in the channel", "in the pipe"} {
		out, err := role(t, "pending", where).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(string(out)); got != "140 hangup" {
			t.Errorf("%s: code of COMMAND, and the signal after Wait: %q", where, got)
		}
	}
}

// A stop asked of lockrun is a stop of the tree: what outlives COMMAND after it is stopped, whatever the policy says.
func TestAfterTermNothingIsLeft(t *testing.T) {
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGHUP} {
		dir := t.TempDir()
		p := plan{Grace: 200 * 1e6, Argv: []string{"sh", "-c", `
			(trap "" TERM INT QUIT HUP; echo $$; exec setsid sh -c 'echo $$ >` + dir + `/far; sleep 99; sleep 99') &
			(trap "" INT QUIT; sh -c 'echo $$ >` + dir + `/near; exec sleep 99') &
			trap "exit 7" ` + strings.TrimPrefix(unix.SignalName(sig), "SIG") + `
			echo >` + dir + `/ready
			while :; do sleep 0.02; done`}}
		s := begin(t, p)
		awaitFile(t, dir+"/ready", "\n")
		far, near := awaitPID(t, dir+"/far"), awaitPID(t, dir+"/near")
		s.Process.Signal(sig)
		rep := s.end()
		if rep.Code != 7 || rep.Cause != CauseSignal || !rep.Gone || rep.Left != 0 {
			t.Errorf("%v: %+v", sig, rep)
		}
		if alive(far) || alive(near) {
			t.Errorf("%v: something outlived it: setsid %v, group %v", sig, alive(far), alive(near))
		}
	}
}

// COMMAND that goes on after a TERM is not hurried.
func TestTermLeavesTheRestToCommand(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	s := begin(t, plan{Grace: 50 * 1e6, Argv: []string{"sh", "-c",
		`trap "echo got >` + log + `" TERM; echo >` + log + `.ready; sleep 0.1; while [ ! -s ` + log + ` ]; do sleep 0.02; done; sleep 0.5; exit 3`}})
	awaitFile(t, log+".ready", "\n")
	s.Process.Signal(unix.SIGTERM)
	if rep := s.end(); rep.Code != 3 || rep.Cause != CauseSignal {
		t.Errorf("%+v", rep)
	}
}

// A job that was stopped by SIGSTOP could not obey.
func TestTermContinuesAStoppedTree(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	s := begin(t, plan{Argv: []string{"sh", "-c",
		`trap "exit 7" TERM; echo $$ >` + log + `; while :; do sleep 0.02; done`}})
	pid := awaitPID(t, log)
	syscall.Kill(-pid, syscall.SIGSTOP)
	// A shell that has just called vfork is not stopped itself, but waits (D) for its stopped child.
	eventually(t, "it is stopped", func() bool { return strings.Contains("TD", statusOf(pid, "State")[:1]) })
	s.Process.Signal(unix.SIGTERM)
	if rep := s.end(); rep.Code != 7 || rep.Cause != CauseSignal {
		t.Errorf("%+v", rep)
	}
}

func TestNoDescriptorsForSignals(t *testing.T) {
	out, err := role(t, "few").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := string(out); !strings.HasPrefix(got, "signals cannot be caught: ") || !strings.Contains(got, "too many open files; raise ulimit -n") {
		t.Errorf("told %q", got)
	}
}
