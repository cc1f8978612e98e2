package supervise

import (
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/internal/boottime"
)

func init() {
	if os.Getenv(roleVariable) == headless {
		runtime.LockOSThread() // main is to have the main thread, which it will end
	}
}

const headless = "headless"

// roleHeadless ends its main thread and lives on in others. It writes its number down and ignores TERM.
func roleHeadless(args []string) {
	signal.Ignore(unix.SIGTERM)
	go func() {
		stat := "/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/stat"
		for {
			if p := contents(stat); p != "" && p[len(p)-1] == '\n' && isZombie(p) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		os.WriteFile(args[0], []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
		time.Sleep(10 * time.Minute)
		os.Exit(0)
	}()
	syscall.Syscall(unix.SYS_EXIT, 0, 0, 0) // this thread; exit_group(2) would be the process
}

func isZombie(stat string) bool {
	for i := len(stat) - 1; i > 0; i-- {
		if stat[i] == ')' {
			return i+2 < len(stat) && stat[i+2] == 'Z'
		}
	}
	return false
}

// A process whose main thread has ended is shown as a zombie, and is not dead.
func TestZombieWithLivingThreads(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := func(dir, then string) []string {
		return []string{"sh", "-c", roleVariable + "=" + headless + " setsid " + exe + " " + dir + `/far &
			while [ ! -s ` + dir + `/far ]; do sleep 0.01; done; ` + then}
	}
	threads := func(pid int) int {
		tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*")
		return len(tasks)
	}
	t.Run("is killed in order", func(t *testing.T) {
		dir := t.TempDir()
		rep := run(t, plan{Descendants: Kill, Grace: 50 * time.Millisecond, Argv: script(dir, "exit 6")})
		if rep.Code != 6 || !rep.Gone || rep.Left != 0 {
			t.Errorf("%+v", rep)
		}
		if n := threads(awaitPID(t, dir+"/far")); n > 1 {
			t.Errorf("%d threads are left", n)
		}
	})
	t.Run("is killed by the guard", func(t *testing.T) {
		dir := t.TempDir()
		s := begin(t, plan{Descendants: Kill, Argv: script(dir, "sleep 60")})
		pid := awaitPID(t, dir+"/far")
		awaitGuard(t, s.Process.Pid)
		s.Process.Kill()
		s.Wait()
		eventually(t, "no thread lives", func() bool { return threads(pid) <= 1 }) // a zombie is what its new parent has not buried yet
	})
}

// lockrun alone was frozen until shortly after its deadline, and a renewal moved the deadline before the loop looked at it.
// What the guard has done in between is no death of COMMAND's own.
func TestGuardsKillIsKnownAfterTheDeadlineMoved(t *testing.T) {
	t.Parallel()
	now := boottime.Now()
	for name, c := range map[string]struct {
		kill   time.Duration
		status syscall.WaitStatus
		want   Cause
	}{
		"killed after the deadline":      {now - time.Millisecond, syscall.WaitStatus(unix.SIGKILL), CauseDeadline},
		"killed before the deadline":     {now + time.Hour, syscall.WaitStatus(unix.SIGKILL), CauseNone},
		"ended by itself, found late":    {now - time.Millisecond, 0, CauseNone},
		"ended by TERM, found that late": {now - time.Millisecond, syscall.WaitStatus(unix.SIGTERM), CauseNone},
	} {
		d := new(Deadline)
		d.Set(c.kill, c.kill)
		d.Set(now+time.Hour, now+2*time.Hour)
		tree := &Tree{deadline: d, ended: true, status: c.status}
		term, kill := d.get()
		got := tree.due(now, term)
		if got != c.want || got != CauseNone && !tree.liable(got, now, kill) {
			t.Errorf("%s: cause %v, want %v", name, got, c.want)
		}
	}
}

// lockrun was in time to move the deadline, and then got no processor until after it, before the guard was told.
func TestDeadlineThatPassesBeforeTheGuardIsTold(t *testing.T) {
	t.Parallel()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	d := &Deadline{guard: p[1]}
	told := make([]byte, messageSize)
	d.now = func() time.Duration {
		if n, _ := unix.Read(p[0], told); n == messageSize {
			return 11 * time.Second
		}
		return 9 * time.Second
	}
	d.Set(10*time.Second, 10*time.Second)
	if n, _ := unix.Read(p[0], told); n != messageSize || d.wasMissed() {
		t.Fatalf("the guard was told %d bytes, missed is %v", n, d.wasMissed())
	}
	d.Set(20*time.Second, 20*time.Second)
	if !d.wasMissed() {
		t.Error("the guard may have acted on a deadline that is not known to have been missed")
	}
}

// The guard got no processor from before its execution until after the first deadline, which was moved meanwhile.
func TestLateGuardReadsTheNewsFirst(t *testing.T) {
	t.Parallel()
	s := begin(t, plan{Argv: []string{"sh", "-c", "sleep 2; exit 4"}, Term: 900 * time.Millisecond, Kill: time.Second,
		Later: 300 * time.Millisecond, LaterTerm: time.Hour, LaterKill: time.Hour})
	guard := 0
	eventually(t, "there is a guard", func() bool {
		all, _ := lookAround(0)
		for _, p := range all {
			comm := contents("/proc/" + strconv.Itoa(p.pid) + "/comm")
			if p.ppid == s.Process.Pid && comm != "sh\n" && comm != "sleep\n" {
				guard = p.pid
			}
		}
		return guard != 0
	})
	syscall.Kill(guard, syscall.SIGSTOP)
	time.Sleep(1200 * time.Millisecond)
	syscall.Kill(guard, syscall.SIGCONT)
	if rep := s.end(); rep.Code != 4 || rep.Cause != CauseNone || !rep.Gone {
		t.Errorf("%+v", rep)
	}
}
