package supervise

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// session is an interactive shell with job control on a terminal of its own. Its variable L is lockrun.
type session struct {
	t   *testing.T
	tty *os.File
	cmd *exec.Cmd
	dir string

	mu   sync.Mutex
	out  strings.Builder
	seen int // how much of out was waited for
	n    int
}

func newSession(t *testing.T) *session {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash")
	}
	s := &session{t: t, dir: t.TempDir()}
	s.cmd = exec.Command("bash", "--norc", "--noprofile", "-i")
	exe, _ := os.Executable()
	s.cmd.Env = append(os.Environ(), "PS1=prompt> ", "TERM=dumb", "GORACE=atexit_sleep_ms=0", "HISTFILE=", "EXE="+exe,
		"D="+s.dir)
	var err error
	if s.tty, err = pty.Start(s.cmd); err != nil {
		t.Skipf("no terminal: %v", err)
	}
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		s.tty.Close()
		s.cmd.Wait()
		for _, pid := range named(s.dir) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if t.Failed() {
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Logf("the terminal showed:\n%s", s.out.String())
		}
	})
	go s.read()
	s.send("bind 'set enable-bracketed-paste off' 2>/dev/null; stty -echo; set -m; echo be'gun'")
	s.await("begun")
	return s
}

func (s *session) read() {
	buf := make([]byte, 4096)
	for {
		n, err := s.tty.Read(buf)
		s.mu.Lock()
		s.out.Write(buf[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *session) send(line string) { fmt.Fprintf(s.tty, "%s\n", line) }

func (s *session) key(c byte) { s.tty.Write([]byte{c}) }

const ctrlC, ctrlZ = 3, 26

// await waits for a text after the last one that was waited for.
func (s *session) await(text string) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("the terminal shows %q", text), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		i := strings.Index(s.out.String()[s.seen:], text)
		if i >= 0 {
			s.seen += i + len(text)
		}
		return i >= 0
	})
}

// lockrun is the shell's command for running argv under supervision; $D is an argument only to be found by.
func (s *session) lockrun(script string) string {
	s.n++
	path := filepath.Join(s.dir, fmt.Sprint("script", s.n))
	write(s.t, path, script, 0o700)
	return s.wrap(plan{Argv: []string{"sh", path, s.dir}})
}

func (s *session) wrap(p plan) string {
	p.Grace, p.Owner = 10*time.Second, newOwner()
	return fmt.Sprintf("%s=run $EXE '%s'", roleVariable, must(json.Marshal(p)))
}

// owned checks that the shell has its terminal back: otherwise it could not read, and would be stopped.
func (s *session) owned() {
	s.t.Helper()
	s.send("echo code $? and ali've'")
	s.await("alive")
}

func TestPromptFromTheTerminal(t *testing.T) {
	s := newSession(t)
	s.send(s.lockrun(`read x </dev/tty; echo "got <$x>"; exit 5`))
	time.Sleep(100 * time.Millisecond)
	s.send("hello")
	s.await("got <hello>")
	s.send("echo code $?")
	s.await("code 5")
	s.owned()
}

// One Ctrl-C is one INT, whether the terminal's driver sends it to COMMAND or to lockrun.
func TestOneCtrlCIsOneInterrupt(t *testing.T) {
	for _, suffix := range []string{"", " | cat"} {
		t.Run("suffix"+suffix, func(t *testing.T) {
			s := newSession(t)
			log := filepath.Join(s.dir, "log")
			s.send(s.lockrun(`trap 'echo INT >>`+log+`' INT; trap 'exit 4' TERM; echo $$ >`+log+`.pid; while :; do sleep 0.02; done`) + suffix)
			pid := awaitPID(t, log+".pid")
			for i := range 3 {
				s.key(ctrlC)
				awaitFile(t, log, strings.Repeat("INT\n", i+1))
			}
			time.Sleep(100 * time.Millisecond)
			syscall.Kill(pid, syscall.SIGTERM)
			s.owned()
			if got := contents(log); got != "INT\nINT\nINT\n" {
				t.Errorf("COMMAND got %q", got)
			}
		})
	}
}

// Ctrl-Z stops one job of the shell, fg continues it with the terminal, and the terminal comes back at the end.
func TestCtrlZAndForeground(t *testing.T) {
	for _, suffix := range []string{"", " | cat"} {
		t.Run("suffix"+suffix, func(t *testing.T) {
			s := newSession(t)
			pidfile := filepath.Join(s.dir, "pid")
			s.send(s.lockrun(`echo $$ >`+pidfile+`; read x </dev/tty; echo "first <$x>"; read x </dev/tty; echo "second <$x>"; exit 6`) + suffix)
			pid := awaitPID(t, pidfile)
			s.send("a")
			s.await("first <a>")
			for range 3 {
				s.key(ctrlZ)
				s.await("Stopped")
				eventually(t, "COMMAND is stopped", func() bool { return statusOf(pid, "State")[0] == 'T' })
				s.owned()
				s.send("fg")
				eventually(t, "COMMAND goes on", func() bool { return statusOf(pid, "State")[0] != 'T' })
			}
			s.send("b")
			s.await("second <b>")
			s.owned()
		})
	}
}

// In the background COMMAND may not read; the shell sees one job that wants the terminal.
func TestBackgroundJobWantsTheTerminal(t *testing.T) {
	s := newSession(t)
	pidfile := filepath.Join(s.dir, "pid")
	s.send(s.lockrun(`echo $$ >`+pidfile+`; read x </dev/tty; echo "got <$x>"; exit 7`) + " &")
	pid := awaitPID(t, pidfile)
	eventually(t, "COMMAND is stopped", func() bool { return statusOf(pid, "State")[0] == 'T' })
	s.send("while ! jobs | grep -q Stopped; do sleep 0.02; done; jobs; echo look'ed'")
	s.await("Stopped")
	s.await("looked")
	s.send("fg")
	eventually(t, "COMMAND goes on", func() bool { return statusOf(pid, "State")[0] != 'T' })
	s.send("there")
	s.await("got <there>")
	s.owned()
}

// bg continues a stopped job without the terminal.
func TestCtrlZAndBackground(t *testing.T) {
	s := newSession(t)
	pidfile := filepath.Join(s.dir, "pid")
	s.send(s.lockrun(`echo $$ >` + pidfile + `; while [ ! -e ` + pidfile + `.end ]; do sleep 0.02; done; echo fin"ished"`))
	pid := awaitPID(t, pidfile)
	eventually(t, "COMMAND has the terminal", func() bool { return hasTerminal(pid) }) // without C it comes a moment later
	s.key(ctrlZ)
	s.await("Stopped")
	s.send("bg")
	eventually(t, "COMMAND goes on", func() bool { return statusOf(pid, "State")[0] != 'T' })
	s.owned()
	write(t, pidfile+".end", "", 0o600)
	s.await("finished")
	s.owned()
}

// Others in lockrun's group keep the terminal as long as COMMAND does not ask for it.
func TestPipelineKeepsTheTerminal(t *testing.T) {
	s := newSession(t)
	s.send(s.lockrun(`echo from command`) + ` | (read x; read y </dev/tty; echo "pager <$x> <$y>")`)
	time.Sleep(100 * time.Millisecond)
	s.send("typed")
	s.await("pager <from command> <typed>")
	s.owned()
}

// A script is not a shell with job control; COMMAND gets the terminal when it reads, and the script gets it back.
func TestScriptGetsTheTerminalBack(t *testing.T) {
	s := newSession(t)
	script := filepath.Join(s.dir, "outer")
	write(t, script, s.lockrun(`read x </dev/tty; echo "inner <$x>"`)+"\nread y; echo \"outer <$y>\"\n", 0o700)
	s.send("sh " + script)
	time.Sleep(100 * time.Millisecond)
	s.send("one")
	s.await("inner <one>")
	s.send("two")
	s.await("outer <two>")
	s.owned()
}

// Each way out gives the terminal back, also lockrun's own death.
func TestTerminalComesBack(t *testing.T) {
	for name, end := range map[string]func(lockrun, child int){
		"COMMAND killed": func(_, child int) { syscall.Kill(child, syscall.SIGKILL) },
		"TERM":           func(lockrun, _ int) { syscall.Kill(lockrun, syscall.SIGTERM) },
		"lockrun killed": func(lockrun, _ int) { syscall.Kill(lockrun, syscall.SIGKILL) },
	} {
		for _, how := range []string{"", "sh "} {
			t.Run(name+" "+how, func(t *testing.T) {
				s := newSession(t)
				pidfile := filepath.Join(s.dir, "pid")
				line := s.lockrun(`echo $$ $PPID >` + pidfile + `; read x </dev/tty`)
				if how != "" { // a script without job control: nobody but lockrun or its guard repairs the terminal
					write(t, s.dir+"/outer", line+"\n"+readsOnceItCan, 0o700)
					line = "sh " + s.dir + "/outer"
				}
				s.send(line)
				var child, parent int
				eventually(t, "COMMAND runs", func() bool {
					n, _ := fmt.Sscan(contents(pidfile), &child, &parent)
					return n == 2
				})
				awaitGuard(t, parent)
				eventually(t, "COMMAND has the terminal", func() bool { return hasTerminal(child) })
				end(parent, child)
				eventually(t, "COMMAND is dead", func() bool { return !alive(child) })
				if how != "" {
					s.send("typed")
					s.await("outer <typed>")
				}
				s.owned()
			})
		}
	}
}

// readsOnceItCan is the rest of a script whose lockrun was killed. The guard needs a moment to notice that, and who reads
// before it has given the terminal back is stopped.
const readsOnceItCan = `until set -- $(cat /proc/$$/stat); [ "$5" = "$8" ]; do sleep 0.02; done; read y; echo "outer <$y>"
`

// A COMMAND that is a shell gives the terminal to a group of its own making. It comes back all the same.
func TestTerminalComesBackFromAShellsJob(t *testing.T) {
	s := newSession(t)
	pidfile := filepath.Join(s.dir, "pid")
	line := s.lockrun(`set -m; P=$PPID; sh -c 'echo $$ '$P' >` + pidfile + `; read x </dev/tty; true'; true`)
	write(t, s.dir+"/outer", line+"\n"+readsOnceItCan, 0o700)
	s.send("sh " + s.dir + "/outer")
	var child, lockrun int
	eventually(t, "the job runs", func() bool {
		n, _ := fmt.Sscan(contents(pidfile), &child, &lockrun)
		return n == 2
	})
	awaitGuard(t, lockrun)
	eventually(t, "the job has the terminal", func() bool { return hasTerminal(child) })
	syscall.Kill(lockrun, syscall.SIGKILL)
	eventually(t, "the job is dead", func() bool { return !alive(child) })
	s.send("typed")
	s.await("outer <typed>")
	s.owned()
}

// hasTerminal tells whether the process is in the foreground group of its terminal.
func hasTerminal(pid int) bool {
	text := contents(fmt.Sprintf("/proc/%d/stat", pid))
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	return len(f) > 5 && f[2] == f[5] && f[0] != "T"
}

// A stopped job is no exception from the deadline, and lockrun says so when it goes on.
func TestStoppedJobMeetsItsDeadline(t *testing.T) {
	s := newSession(t)
	pidfile, rep := filepath.Join(s.dir, "pid"), filepath.Join(s.dir, "report")
	write(t, s.dir+"/job", `echo $$ >`+pidfile+`; sleep 99; sleep 99`, 0o700)
	// The deadline has to be far enough for Ctrl-Z to come before it on a busy machine: a job that TERM has ended is not
	// stopped.
	s.send(s.wrap(plan{Argv: []string{"sh", s.dir + "/job"}, Report: rep, Term: 6 * time.Second, Kill: 7 * time.Second}))
	pid := awaitPID(t, pidfile)
	eventually(t, "COMMAND has the terminal", func() bool { return hasTerminal(pid) }) // without C it comes a moment later
	s.key(ctrlZ)
	s.await("Stopped")
	eventually(t, "the guard has killed it", func() bool { return !alive(pid) })
	s.send("fg")
	eventually(t, "lockrun reports", func() bool { return contents(rep) != "" })
	if r := readReport(t, rep); r.Code != 137 || r.Cause != CauseDeadline || !r.Gone {
		t.Errorf("%+v", r)
	}
	s.owned()
}

// lockrun as the leader of the session, as in a container with a terminal: nobody could continue a stopped lockrun, so
// Ctrl-Z stops COMMAND only for a moment.
func TestSessionLeaderIsNotStopped(t *testing.T) {
	dir := t.TempDir()
	p := plan{Argv: []string{"sh", "-c", `echo $$ >` + dir + `/pid; read x; echo "got <$x>"; exit 3`}}
	cmd := runner(t, &p)
	cmd.Stderr = nil
	tty, err := pty.Start(cmd)
	if err != nil {
		t.Skip(err)
	}
	defer tty.Close()
	s := &session{t: t, tty: tty, cmd: cmd, dir: dir}
	go s.read()
	pid := awaitPID(t, dir+"/pid")
	eventually(t, "COMMAND has the terminal", func() bool { return hasTerminal(pid) })
	s.key(ctrlZ)
	s.await("^Z")
	s.send("more")
	s.await("got <more>")
	cmd.Wait()
	if rep := readReport(t, p.Report); rep.Code != 3 || rep.Cause != CauseNone {
		t.Errorf("%+v", rep)
	}
}
