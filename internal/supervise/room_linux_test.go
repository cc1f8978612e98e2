package supervise

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// roleCrowded is a user who may have no further process, and then needs several threads at once.
func roleCrowded(args []string) {
	if args[0] == "hoard" {
		HoardThreads()
	}
	time.Sleep(50 * time.Millisecond)             // a thread that is not asleep yet cannot be had by others, for a moment
	if err := syscall.Setuid(60177); err != nil { // limits do not count for root
		panic(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: 1, Max: 1}); err != nil {
		panic(err)
	}
	var waiting sync.WaitGroup
	for range 4 {
		waiting.Add(1)
		go func() {
			runtime.LockOSThread()
			waiting.Done()
			select {}
		}()
	}
	waiting.Wait()
	fmt.Println("well")
}

// A job may take all processes that its user may have. That ends no lockrun.
func TestThreadsAreThereBeforeTheyAreRefused(t *testing.T) {
	if !exactDispositions {
		t.Skip("without C no thread is made before it is needed")
	}
	if os.Getuid() != 0 {
		t.Skip("only root can become somebody who has no other processes")
	}
	for how, want := range map[string]bool{"hoard": true, "do not": false} {
		cmd := role(t, "crowded", how)
		cmd.Stderr = nil // the Go runtime says a lot
		out, err := cmd.Output()
		if well := err == nil && strings.TrimSpace(string(out)) == "well"; well != want {
			t.Errorf("%s: %v, want %v; %s%v", how, well, want, out, err)
		}
	}
}

// roleTight is a user with no other processes, who may have a process or two more than there are spare threads, and then starts two.
func roleTight([]string) {
	if err := syscall.Setuid(100_000 + os.Getpid()); err != nil {
		panic(err)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		panic(err)
	}
	most := uint64(len(threads) + 5)
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: most, Max: most}); err != nil {
		panic(err)
	}
	HoardThreads()
	for range 2 {
		pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "60"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer syscall.Wait4(pid, nil, 0, nil)
		defer syscall.Kill(pid, syscall.SIGKILL)
	}
	fmt.Println("well")
}

// Where there is just room for COMMAND and the guard, no spare thread takes their place.
func TestSpareThreadsLeaveRoomForTheJob(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become somebody who has no other processes")
	}
	cmd := role(t, "tight")
	cmd.Stderr = nil // the Go runtime says a lot
	if out, err := cmd.Output(); err != nil || strings.TrimSpace(string(out)) != "well" {
		t.Errorf("%v; %s", err, out)
	}
}
