package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestWatchedProcessEnds(t *testing.T) {
	for _, how := range []string{"descriptor", "start time"} {
		cmd := exec.Command("sleep", "1000")
		start(t, cmd)
		w, err := watchPID(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if how == "start time" { // an older kernel
			w.close()
			w = pidWatch{PID: w.PID, Start: startOf(w.PID)}
		}
		done := make(chan struct{})
		go func() { w.wait(); close(done) }()
		select {
		case <-done:
			t.Errorf("%s: ended while it lives", how)
		case <-time.After(300 * time.Millisecond):
		}
		// It stays a zombie: only its parent has still to look.
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Errorf("%s: its end is not seen", how)
		}
	}
}

func TestWatchRefusesWhatIsNoProcess(t *testing.T) {
	if _, err := watchPID(1 << 30); err != errNoProcess {
		t.Errorf("nobody: %v", err)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		pid := 0
		for _, d := range task.Name() {
			pid = pid*10 + int(d-'0')
		}
		if w, err := watchPID(pid); pid != os.Getpid() && (err == nil || !strings.Contains(err.Error(), "thread")) {
			t.Errorf("a thread: %+v, %v", w, err)
		}
	}
}
