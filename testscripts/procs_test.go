package testscripts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// patience bounds every wait for something that has to happen. It is generous, because machines that run tests are busy;
// what has to be quick is measured where it matters.
const patience = 60 * time.Second

type procsKey struct{}

// proc is a background process of a script.
type proc struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error
}

func procs(ts *testscript.TestScript) map[string]*proc {
	return ts.Value(procsKey{}).(map[string]*proc)
}

// environ is the script's environment as it stands.
func environ(ts *testscript.TestScript) []string {
	ts.Check(ts.Exec("env", "-0"))
	return strings.Split(strings.TrimSuffix(ts.ReadFile("stdout"), "\x00"), "\x00")
}

// command prepares a command in the script's folder and environment.
func command(ts *testscript.TestScript, env, args []string) *exec.Cmd {
	name := args[0]
	if !strings.Contains(name, "/") {
		for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
			if p := filepath.Join(dir, name); unix.Access(p, unix.X_OK) == nil {
				name = p
				break
			}
		}
	}
	cmd := exec.Command(name, args[1:]...)
	cmd.Args[0] = args[0]
	cmd.Dir, cmd.Env = ts.MkAbs("."), env
	return cmd
}

// codeOf is an exit code as a shell tells it.
func codeOf(ts *testscript.TestScript, err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit):
		ts.Fatalf("cannot run: %v", err)
	}
	ws := exit.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

func cmdSpawn(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: spawn NAME CMD...")
	}
	name := args[0]
	cmd := command(ts, environ(ts), args[1:])
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdout, cmd.Stderr = create(ts, name+".out"), create(ts, name+".err")
	ts.Check(cmd.Start())
	p := &proc{cmd: cmd, done: make(chan struct{})}
	go func() { p.err = cmd.Wait(); close(p.done) }()
	procs(ts)[name] = p
	ts.Setenv(name+"_pid", strconv.Itoa(cmd.Process.Pid))
	ts.Defer(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill() // harmless where it has ended
		<-p.done
	})
}

func create(ts *testscript.TestScript, name string) *os.File {
	f, err := os.Create(ts.MkAbs(name))
	ts.Check(err)
	ts.Defer(func() { f.Close() })
	return f
}

func lookup(ts *testscript.TestScript, name string) *proc {
	p := procs(ts)[name]
	if p == nil {
		ts.Fatalf("nothing was spawned as %q", name)
	}
	return p
}

func cmdEnded(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: ended NAME CODE")
	}
	p := lookup(ts, args[0])
	select {
	case <-p.done:
	case <-time.After(patience):
		ts.Fatalf("%s is still running after %v; its messages: %s", args[0], patience, ts.ReadFile(args[0]+".err"))
	}
	if got := strconv.Itoa(codeOf(ts, p.err)); got != args[1] {
		ts.Fatalf("%s ended with %s, want %s; its messages: %s", args[0], got, args[1], ts.ReadFile(args[0]+".err"))
	}
}

func cmdRunning(ts *testscript.TestScript, neg bool, args []string) {
	p := lookup(ts, args[0])
	select {
	case <-p.done:
		if !neg {
			ts.Fatalf("%s has ended with %d: %s", args[0], codeOf(ts, p.err), ts.ReadFile(args[0]+".err"))
		}
	default:
		if neg {
			ts.Fatalf("%s is still running", args[0])
		}
	}
}

// pidOf takes a spawned name, a number, or a file that holds one.
func pidOf(ts *testscript.TestScript, arg string) int {
	if p := procs(ts)[arg]; p != nil {
		return p.cmd.Process.Pid
	}
	if n, err := strconv.Atoi(arg); err == nil {
		return n
	}
	n, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(arg)))
	ts.Check(err)
	return n
}

func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: signal NAME|PID|FILE SIG")
	}
	sig := unix.SignalNum("SIG" + args[1])
	if sig == 0 {
		ts.Fatalf("no signal is called %s", args[1])
	}
	ts.Check(syscall.Kill(pidOf(ts, args[0]), sig))
}

// cmdGuarded is for what a guard alone can do: it is started beside the command, which may be quicker to be ready.
func cmdGuarded(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: guarded NAME")
	}
	pid := lookup(ts, args[0]).cmd.Process.Pid
	poll(ts, patience, args[0]+" has no guard", func() bool {
		files, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
		kids := 0
		for _, f := range files {
			text, _ := os.ReadFile(f)
			kids += len(strings.Fields(string(text)))
		}
		return kids >= 2
	})
}

// alive tells whether a process exists and is no zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return after != "" && after[0] != 'Z' && after[0] != 'X'
}

func cmdDead(ts *testscript.TestScript, neg bool, args []string) {
	pid, within := pidOf(ts, args[0]), patience
	if len(args) > 1 {
		within = duration(ts, args[1])
	}
	if neg {
		if !alive(pid) {
			ts.Fatalf("process %d is dead", pid)
		}
		return
	}
	poll(ts, within, "process "+strconv.Itoa(pid)+" is alive", func() bool { return !alive(pid) })
}
