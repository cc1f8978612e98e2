package hooks

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeReaper makes orphans of the hook children of the minder.
func becomeReaper() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// hookAttr puts the hook into a group of its own, and has it die with its minder. The thread that starts it must not end
// before (golang/go#27505): the caller's goroutine keeps it to the end.
func hookAttr() *syscall.SysProcAttr {
	runtime.LockOSThread()
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// closeOnExec keeps everything but the standard descriptors from the hook.
func closeOnExec() {
	if unix.CloseRange(3, ^uint(0)>>33, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	open, err := os.ReadDir("/proc/self/fd") // a kernel before 5.11
	if err != nil {
		return
	}
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// killBelow kills every process below this one. One that is started meanwhile is met in the next round.
func killBelow() {
	dir, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return
	}
	parents := map[int]int{}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			parents[pid] = parentOf(name)
		}
	}
	self := os.Getpid()
	for pid := range parents {
		at := pid
		for n := 0; at > 1 && at != self && n < len(parents); n++ {
			at = parents[at]
		}
		if at == self && pid != self {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func parentOf(pid string) int {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // the name may hold anything
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(f[1]) // 0 ends the way up
	return n
}
