package supervise

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/internal/rounds"
)

func TestEveryExitCodeAndSignal(t *testing.T) {
	out, err := role(t, "codes").Output()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(out)) {
		var how string
		var number, got int
		fmt.Sscan(line, &how, &number, &got)
		want := number
		if how == "kill" {
			want += 128
		}
		if got != want {
			t.Errorf("%s %d: code %d, want %d", how, number, got, want)
		}
		n++
	}
	if n != 256+54 {
		t.Errorf("%d cases were run", n)
	}
}

// wrap executes the runner through a shell that first does something to itself.
func wrap(t *testing.T, cmd *exec.Cmd, before string) *exec.Cmd {
	t.Helper()
	sh := exec.Command("sh", append([]string{"-c", before + `; exec "$@"`, "sh"}, cmd.Args...)...)
	sh.Env, sh.Stderr = cmd.Env, os.Stderr
	return sh
}

// COMMAND has to find the same as it does without lockrun in between, whatever that is.
func TestChildGetsTheWorldAsItIs(t *testing.T) {
	if err := exec.Command("sh", "-c", "exec 9</dev/null; ulimit -Sn 777").Run(); err != nil {
		t.Skip("the limit on descriptors cannot be lowered here")
	}
	dir := t.TempDir()
	looks := map[string]string{
		"directory and umask":  `pwd; umask`,
		"soft limit":           `ulimit -Sn; ulimit -Hn`,
		"descriptors":          `exec ls -l /proc/self/fd | sed "s/.* \([0-9]* -> .*\)/\1/" | grep -v /fd$ | grep -v pipe:`,
		"standard output":      `readlink /proc/$$/fd/1`,
		"signals":              `exec grep -E "^Sig(Ign|Blk|Pnd)" /proc/self/status`,
		"arguments with quote": `printf "%s|" "$0" "a b" "" "*"`,
	}
	befores := map[string]string{
		"plain":        `:`,
		"limits":       `ulimit -Sn 777; umask 027; cd /usr`,
		"inherited":    `exec 7</dev/null 9</etc/passwd`,
		"no stdin":     `exec <&-`,
		"no stdin out": `exec <&- 2>&-`,
		"ignored":      `trap "" HUP INT TTIN TTOU TSTP`,
	}
	if exactDispositions {
		befores["all ignored"] = `trap "" HUP INT QUIT USR1 USR2 PIPE ALRM TERM CHLD CONT TTIN TTOU TSTP WINCH URG VTALRM PROF RTMIN RTMAX`
	}
	for bname, before := range befores {
		if !exactDispositions && bname == "no stdin out" {
			continue // Go opens /dev/null in their place, and only C can know
		}
		for lname, look := range looks {
			if !exactDispositions && bname == "no stdin" && lname == "descriptors" {
				continue
			}
			t.Run(bname+"/"+lname, func(t *testing.T) {
				direct, through := filepath.Join(dir, "direct"), filepath.Join(dir, "through")
				p := plan{Argv: []string{"bash", "-c", look}}
				cmd := runner(t, &p)
				want := output(t, wrap(t, exec.Command("bash", "-c", look), before), direct)
				got := output(t, wrap(t, cmd, before), through)
				if got = strings.ReplaceAll(got, through, direct); got != want {
					t.Errorf("through lockrun:\n%s\ndirectly:\n%s", got, want)
				}
				if len(want) < 3 {
					t.Errorf("nothing was looked at: %q", want)
				}
			})
		}
	}
}

func output(t *testing.T, cmd *exec.Cmd, path string) string {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd.Stdout = f
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return contents(path)
}

func TestChildGetsTheSignalMask(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	cmd := runner(t, &plan{Argv: []string{"cp", "/proc/self/status", log}})
	block := role(t, "block", cmd.Args...)
	if err := block.Run(); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%016x", blockedMask())
	if got := statusLine(contents(log), "SigBlk"); got != want {
		t.Errorf("blocked in COMMAND: %s, in lockrun's parent: %s", got, want)
	}
}

// A runtime that covers up an ignored CHLD would be one thing; a kernel that then reaps by itself loses the status.
func TestIgnoredCHLDLosesNoStatus(t *testing.T) {
	for range 20 {
		p := plan{Argv: []string{"sh", "-c", "exit 5"}}
		cmd := wrap(t, runner(t, &p), `trap "" CHLD`)
		cmd.Run()
		if rep := readReport(t, p.Report); rep.Code != 5 || !rep.Gone {
			t.Fatalf("%+v", rep)
		}
	}
}

// nohup(1): the terminal is hung up, the job runs on to its end.
func TestNohup(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p := plan{Argv: []string{"sh", "-c", `echo ready >` + log + `; while [ ! -e ` + log + `.end ]; do sleep 0.02; done`}}
	cmd := wrap(t, runner(t, &p), `trap "" HUP`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitFile(t, log, "ready")
	for range 3 {
		syscall.Kill(cmd.Process.Pid, syscall.SIGHUP)
	}
	// WINCH is caught after it, so that HUP had its chance.
	syscall.Kill(cmd.Process.Pid, syscall.SIGWINCH)
	time.Sleep(50 * time.Millisecond)
	os.WriteFile(log+".end", nil, 0o600)
	cmd.Wait()
	if rep := readReport(t, p.Report); rep.Code != 0 || rep.Cause != CauseNone {
		t.Errorf("%+v", rep)
	}
}

// As PID 1, everybody's orphans are lockrun's to bury.
func TestPIDOneReaps(t *testing.T) {
	few := 40
	if testing.Short() {
		few = 10
	}
	many, orphans := rounds.Of(few, 200), rounds.Of(30, 200)
	script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do (sleep 0.0$((i %% 9)) &); i=$((i+1)); done; exit 5`, orphans)
	inner := role(t, "rounds", fmt.Sprint(many), script)
	cmd := exec.Command("unshare", append([]string{"--pid", "--fork", "--mount-proc", "sh", "-c",
		`trap "" CHLD; exec "$@"`, "sh"}, inner.Args...)...)
	cmd.Env = inner.Env
	out, err := cmd.CombinedOutput()
	if err != nil && strings.Contains(string(out), "unshare") {
		t.Skipf("no pid namespace may be made here: %s", out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, line := range lines {
		if line != "5 true 0" {
			t.Fatalf("code, gone, zombies: %q", line)
		}
	}
	if len(lines) != many {
		t.Errorf("%d rounds: %s", len(lines), out)
	}
}

func TestStatusOfOthersIsNotStolen(t *testing.T) {
	out, err := role(t, "osexec").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(out)); got != "6 true 0 all <nil>" {
		t.Errorf("code, gone, left, of fifty, of the last: %q", got)
	}
}

// A guard that has died by then does not take COMMAND with it.
func TestSpawnBesideADeadGuard(t *testing.T) {
	var p [2]int
	if err := pipe(&p); err != nil {
		t.Fatal(err)
	}
	unix.Close(p[0])
	defer unix.Close(p[1])
	pid, _, err := spawn(&Job{Path: "/bin/sh", Argv: []string{"sh", "-c", "exit 5"}}, -1, p[1])
	if err != nil {
		t.Fatal(err)
	}
	var ws unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &ws, 0, nil); err != unix.EINTR {
			break
		}
	}
	if err != nil || ws.ExitStatus() != 5 {
		t.Errorf("COMMAND ended with %v (signal %v), %v", ws.ExitStatus(), ws.Signal(), err)
	}
}
