package supervise

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// churn makes threads come and go (a goroutine that ends on a locked thread takes it along) and keeps the processors so
// busy that the loop, woken all the time, is moved from thread to thread. A COMMAND whose thread ended would be killed.
func churn(s *Signals) {
	for range 4 {
		go func() {
			for {
				done := make(chan bool)
				go func() {
					runtime.LockOSThread()
					for began := time.Now(); time.Since(began) < 50*time.Microsecond; {
					}
					close(done)
				}()
				<-done
				s.wake()
				time.Sleep(500 * time.Microsecond)
			}
		}()
	}
}

// roleSignals writes down each signal it gets, one a line.
func roleSignals(args []string) {
	log, err := os.OpenFile(args[0], os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	c := make(chan os.Signal, 100)
	signal.Notify(c)
	fmt.Fprintln(log, "ready")
	for sig := range c {
		if sig != unix.SIGURG { // the Go runtime's own
			fmt.Fprintln(log, unix.SignalName(sig.(syscall.Signal)))
		}
	}
}

// roleCodes runs a shell for each number and prints what came of it.
func roleCodes(args []string) {
	s, err := Listen()
	if err != nil {
		panic(err)
	}
	for n := range 256 {
		fmt.Println("exit", n, inShell(s, fmt.Sprint("exit ", n)))
	}
	for n := 1; n <= 64; n++ {
		switch syscall.Signal(n) {
		case unix.SIGCHLD, unix.SIGCONT, unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGURG,
			unix.SIGWINCH, 32, 33: // do not kill, or belong to the C library
		default:
			fmt.Println("kill", n, inShell(s, fmt.Sprintf("kill -%d $$", n)))
		}
	}
}

func inShell(s *Signals, script string) int {
	t, err := Start(Job{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: os.Environ()}, s, nil)
	if err != nil {
		panic(err)
	}
	if r := t.Wait(); r.Gone && r.Ended {
		return r.Code
	}
	return -1
}

// roleRounds runs a script again and again, and looks for zombies after each round.
func roleRounds(args []string) {
	rounds, err := strconv.Atoi(args[0])
	if err != nil {
		panic(err)
	}
	s, err := Listen()
	if err != nil {
		panic(err)
	}
	for range rounds {
		t, err := Start(Job{Path: "/bin/sh", Argv: []string{"sh", "-c", args[1]}, Env: os.Environ(),
			Descendants: Wait}, s, nil)
		if err != nil {
			panic(err)
		}
		r := t.Wait()
		t.Close()
		fmt.Println(r.Code, r.Gone, zombies())
	}
}

// zombies counts the dead children of this process.
func zombies() (n int) {
	for _, e := range must(os.ReadDir("/proc")) {
		f := strings.Fields(contents("/proc/" + e.Name() + "/stat"))
		if len(f) > 3 && f[2] == "Z" && f[3] == strconv.Itoa(os.Getpid()) {
			n++
		}
	}
	return n
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// blockedMask has USR1 in it, and PROF, which Go keeps unblocked for itself, where the build can pass that on.
func blockedMask() uint64 {
	if exactDispositions {
		return 1<<(unix.SIGUSR1-1) | 1<<(unix.SIGPROF-1)
	}
	return 1 << (unix.SIGUSR1 - 1)
}

// roleBlock executes the rest of its arguments with blockedMask.
func roleBlock(args []string) {
	runtime.LockOSThread()
	var set unix.Sigset_t
	set.Val[0] = blockedMask()
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
		panic(err)
	}
	panic(syscall.Exec(args[0], args, append(os.Environ(), roleVariable+"=run")))
}

// rolePending receives signals before it starts anything: one of two is consumed, the other is for COMMAND.
func rolePending(args []string) {
	s := must(Listen())
	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	if sig := <-s.C(); sig != syscall.SIGUSR1 {
		panic(sig)
	}
	syscall.Kill(os.Getpid(), syscall.SIGUSR2)
	if args[0] == "in the channel" {
		for len(s.C()) == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	t := must(Start(Job{Path: "/bin/sleep", Argv: []string{"sleep", "30"}, Env: os.Environ()}, s, nil))
	r := t.Wait()
	syscall.Kill(os.Getpid(), syscall.SIGHUP)
	after := <-s.C()
	fmt.Println(r.Code, after)
}

// roleOSExec starts other processes by os/exec while a tree is being supervised, and wants their status.
func roleOSExec(args []string) {
	s := must(Listen())
	t := must(Start(Job{Path: "/bin/sh", Argv: []string{"sh", "-c", "(setsid sleep 0.3 &); sleep 1; exit 6"},
		Env: os.Environ(), Descendants: Kill}, s, nil))
	done := make(chan string)
	go func() {
		for range 50 {
			err := exec.Command("sh", "-c", "exit 3").Run()
			if e, ok := err.(*exec.ExitError); !ok || e.ExitCode() != 3 {
				done <- fmt.Sprint(err)
				return
			}
		}
		done <- "all"
	}()
	hook := exec.Command("sleep", "3")
	if err := hook.Start(); err != nil {
		panic(err)
	}
	r := t.Wait()
	fmt.Println(r.Code, r.Gone, r.Left, <-done, hook.Wait())
}

// roleFewFiles may open no descriptor any more.
func roleFewFiles([]string) {
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: 3}); err != nil {
		fmt.Println(err)
		return
	}
	_, err := Listen()
	fmt.Println(err)
}
