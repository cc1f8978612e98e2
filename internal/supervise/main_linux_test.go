package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockrun/lockrun/internal/boottime"
)

// The tests watch real processes: this test binary, executed again in one of these roles.
const (
	roleVariable = "LOCKRUN_TEST_ROLE"
	childRole    = "LOCKRUN_TEST_CHILD_ROLE" // becomes the role of COMMAND
)

var roles = map[string]func(args []string){
	"run":     roleRun,
	"signals": roleSignals,
	"codes":   roleCodes,
	"rounds":  roleRounds,
	"block":   roleBlock,
	"pending": rolePending,
	"osexec":  roleOSExec,
	"few":     roleFewFiles,
	"seccomp": roleSeccomp,
	"crowded": roleCrowded,
	"tight":   roleTight,
	headless:  roleHeadless,
}

func TestMain(m *testing.M) {
	GuardMain()
	if role := os.Getenv(roleVariable); role != "" {
		os.Unsetenv(roleVariable)
		roles[role](os.Args[1:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// plan is what the role run, a lockrun without leases, is asked to do. Times count from its start; 0 is never.
type plan struct {
	Argv        []string
	Owner       string
	Descendants Policy
	Grace       time.Duration
	Timeout     time.Duration
	Term, Kill  time.Duration // the deadline
	Later       time.Duration // when to move the deadline
	LaterTerm   time.Duration // where to
	LaterKill   time.Duration
	StopAt      time.Duration // when to call Stop(CauseLost)
	Keep        string        // a file to open, to lock and to hand to the guard
	Churn       bool          // threads come and go all the time
	Report      string        // where to write a report
}

type report struct {
	Result
	Warnings []string
	Error    string
	ExitCode int

	Unprotected []string
}

func roleRun(args []string) {
	var p plan
	if err := json.Unmarshal([]byte(args[0]), &p); err != nil {
		panic(err)
	}
	rep := execute(p)
	if p.Report != "" {
		text, _ := json.Marshal(rep)
		os.WriteFile(p.Report+".new", text, 0o600)
		os.Rename(p.Report+".new", p.Report)
	}
	os.Exit(rep.ExitCode)
}

func execute(p plan) (rep report) {
	for _, g := range Unprotected() {
		rep.Unprotected = append(rep.Unprotected, g.What+"; "+g.Remedy)
	}
	s, err := Listen()
	if err != nil {
		panic(err)
	}
	start := boottime.Now()
	d := new(Deadline)
	if p.Kill > 0 {
		d.Set(start+p.Term, start+p.Kill)
	}
	j := Job{
		Argv: p.Argv, Env: childEnv(p.Owner), Owner: p.Owner,
		Descendants: p.Descendants, Grace: p.Grace, Timeout: p.Timeout,
		Warn: func(s string) { rep.Warnings = append(rep.Warnings, s) },
	}
	if p.Keep != "" {
		j.Keep = append(j.Keep, openLocked(p.Keep))
	}
	if j.Path, err = Find(p.Argv[0], j.Env); err == nil {
		var t *Tree
		if t, err = Start(j, s, d); err == nil {
			disturb(p, t, d, start)
			rep.Result = t.Wait()
			t.Close()
			rep.ExitCode = rep.Code
		}
	}
	var se *StartError
	if errors.As(err, &se) {
		rep.Error, rep.ExitCode = se.Error(), se.Code
	} else if err != nil {
		panic(err)
	}
	return rep
}

func childEnv(owner string) []string {
	env := append(os.Environ(), "LOCKRUN_OWNER="+owner)
	if r := os.Getenv(childRole); r != "" {
		env = append(env, roleVariable+"="+r)
	}
	return env
}

func disturb(p plan, t *Tree, d *Deadline, start time.Duration) {
	if p.Later > 0 {
		time.AfterFunc(p.Later, func() { d.Set(start+p.LaterTerm, start+p.LaterKill) })
	}
	if p.StopAt > 0 {
		time.AfterFunc(p.StopAt, func() { t.Stop(CauseLost) })
	}
	if p.Churn {
		churn(t.signals)
	}
}

func openLocked(path string) *os.File {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		panic(err)
	}
	return f
}

// supervised is a running role run.
type supervised struct {
	*exec.Cmd
	t      *testing.T
	report string
}

var owners atomic.Int64

// newOwner is unique, so that processes of one test can be told from those of another.
func newOwner() string { return fmt.Sprintf("%08x%024x", os.Getpid(), owners.Add(1)) }

// role is a command that executes this binary in a role.
func role(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	// The race detector would otherwise sleep for a second at each exit.
	cmd.Env = append(os.Environ(), roleVariable+"="+name, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

// runner is the command for a plan, not yet started. Whatever is left of its tree is killed when the test ends.
func runner(t *testing.T, p *plan) *exec.Cmd {
	t.Helper()
	if p.Owner == "" {
		p.Owner = newOwner()
	}
	if p.Report == "" {
		p.Report = filepath.Join(t.TempDir(), "report")
	}
	if p.Grace == 0 {
		p.Grace = 10 * time.Second
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	owner := p.Owner
	t.Cleanup(func() {
		for _, pid := range marked(owner) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return role(t, "run", string(text))
}

func begin(t *testing.T, p plan) *supervised {
	t.Helper()
	cmd := runner(t, &p)
	return start(t, cmd, p.Report)
}

func start(t *testing.T, cmd *exec.Cmd, report string) *supervised {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return &supervised{cmd, t, report}
}

// end waits for the runner and returns what it reports.
func (s *supervised) end() report {
	s.t.Helper()
	s.Wait()
	return readReport(s.t, s.report)
}

func readReport(t *testing.T, path string) (rep report) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("no report: %v", err)
	}
	if err := json.Unmarshal(text, &rep); err != nil {
		t.Fatal(err)
	}
	return rep
}

func run(t *testing.T, p plan) report {
	t.Helper()
	return begin(t, p).end()
}

// patience is long for a machine that is busy with something else.
const patience = 20 * time.Second

// eventually polls until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(3 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

// contents is a file's text; "" while it is not there.
func contents(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}

func awaitFile(t *testing.T, path, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s holds %q", filepath.Base(path), want), func() bool {
		return strings.Contains(contents(path), want)
	})
}

// awaitPID waits for a file to hold the number of a process, on a whole line.
func awaitPID(t *testing.T, path string) int {
	t.Helper()
	var pid int
	eventually(t, filepath.Base(path)+" holds a pid", func() bool {
		line, _, whole := strings.Cut(contents(path), "\n")
		pid, _ = strconv.Atoi(line)
		return whole && pid > 0
	})
	return pid
}

// needs is the path of a program without which a test is skipped, but for CI's machine, which has to have it.
func needs(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
	return path
}
