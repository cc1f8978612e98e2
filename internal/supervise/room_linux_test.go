package supervise

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// roleCrowded is a user who may have no further process, and then needs several threads at once.
func roleCrowded(args []string) {
	if args[0] == "hoard" {
		HoardThreads()
	}
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
