package supervise

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/internal/boottime"
)

// startTicks is the start time that /proc shows for a process started now. The kernel counts in hundredths of a second
// on every machine that Go knows.
func startTicks(time.Duration) uint64 { return uint64(boottime.Raw() / (10 * time.Millisecond)) }

func threadID() int { return unix.Gettid() }

// becomeSubreaper makes orphans of the tree children of lockrun, so that none gets out of sight.
func becomeSubreaper() bool {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil || os.Getpid() == 1
}

// deadChild is a child that has ended and was not reaped; 0 where there is none, -1 where there are no children at all.
func deadChild() int {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	switch {
	case err == unix.ECHILD:
		return -1
	case err != nil:
		return 0
	}
	// si_pid is the first member of a union, which is aligned as a pointer.
	const offset = (12 + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), offset)))
}

// countLeft is how many descendants live after COMMAND has ended. Its common answer, none, costs two small reads: the
// kernel's own lists of children. A living descendant has a living ancestor that is our child, because we are a
// subreaper; so no child but the guard means no descendant. A look at all of /proc alone would not do: it takes its time, in
// which a process that forks and ends has been passed by.
func (t *Tree) countLeft() int {
	if t.subreaper && t.onlyGuard() {
		return 0
	}
	list, ok := t.survey()
	switch {
	case !ok:
		return t.countBlind()
	case len(list) == 0 && t.subreaper && t.hasUnseen():
		return 1
	}
	return len(list)
}

func (t *Tree) onlyGuard() bool {
	list, ok := t.children()
	for _, pid := range list {
		ok = ok && pid == t.guard.pid
	}
	return ok
}

// hasUnseen tells whether we have a child that is of the tree, and buries those that are dead first: what they leave behind
// is our child as well, but only after they have died.
func (t *Tree) hasUnseen() bool {
	for range 100 {
		list, _ := t.children()
		dead := false
		for _, pid := range list {
			p, alive := look(pid)
			switch {
			case pid == t.guard.pid:
			case alive && p.pgrp != t.ownGroup && p.start >= t.since:
				return true
			case !alive && !t.isForeign(pid, boottime.Now()):
				wait4(pid, nil, unix.WNOHANG)
				dead = true
			}
		}
		if !dead {
			return false
		}
	}
	return true
}

// children are ours, dead ones included; false where they cannot be told. COMMAND and the guard belong to the thread that
// started them, and orphans are given to the main thread. What the kernel prints can miss an entry only if one before it
// is just being reaped, which nobody but us does. The /proc of another namespace has no such threads of ours.
func (t *Tree) children() ([]int, bool) {
	list, ok := childrenOf(nil, t.self)
	if t.thread != t.self && ok {
		list, ok = childrenOf(list, t.thread)
	}
	return list, ok
}

func childrenOf(list []int, thread int) ([]int, bool) {
	fd, err := unix.Open("/proc/self/task/"+strconv.Itoa(thread)+"/children", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return list, false
	}
	defer unix.Close(fd)
	var buf [4096]byte
	n, err := unix.Read(fd, buf[:])
	for f := range strings.FieldsSeq(string(buf[:max(n, 0)])) {
		pid, _ := strconv.Atoi(f)
		list = append(list, pid)
	}
	return list, err == nil
}

// countBlind does without /proc. Only without a guard do "no children" and "nobody left" mean the same.
func (t *Tree) countBlind() int {
	if unix.Kill(-t.pid, 0) != unix.ESRCH {
		return 1
	}
	t.dismissGuard()
	t.Close()
	if t.subreaper && deadChild() == 0 {
		return 1
	}
	return 0
}

// descendants are the living processes of the tree, COMMAND included.
func (t *Tree) descendants() []proc {
	list, _ := t.survey()
	return list
}

// groupStopped finds out whether somebody in the group is stopped although COMMAND itself is not: a shell that has just
// forked a child with vfork, and waits for it, is not.
func (t *Tree) groupStopped() bool {
	for _, p := range t.descendants() {
		if p.stopped && p.pgrp == t.pid {
			return true
		}
	}
	return false
}

func (t *Tree) survey() ([]proc, bool) {
	all, ok := lookAround(t.since)
	if !ok {
		return nil, false
	}
	member := func(p proc) bool {
		if p.pid == t.guard.pid {
			return false
		}
		// Processes in lockrun's own group were started by lockrun, or before it; they are no part of the job.
		return p.pid == t.pid || p.ppid == t.self && p.pgrp != t.ownGroup || !t.ended && p.pgrp == t.pid
	}
	mark := ""
	if !t.subreaper {
		mark = ownerMark(t.job.Owner)
	}
	return members(all, member, mark, t.self, t.guard.pid), true
}

// proc is a process as /proc shows it.
type proc struct {
	pid, ppid, pgrp int
	start           uint64 // in clock ticks after boot
	stopped         bool
	guard           bool // it calls itself so
	member          bool
}

// procIsOurs tells whether /proc shows processes by the numbers that they have here. In a PID namespace that was made without
// a /proc of its own (unshare --pid without --mount-proc) it shows other processes, or ours by other numbers, and is as good
// as none.
func procIsOurs() bool {
	self, err := os.Readlink("/proc/self")
	return err == nil && self == strconv.Itoa(os.Getpid())
}

// lookAround reads all living processes that were started at since or later; false: there is no /proc, or not ours.
func lookAround(since uint64) ([]proc, bool) {
	if !procIsOurs() {
		return nil, false
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, false
	}
	var list []proc
	seen := false
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		seen = true
		if p, ok := look(pid); ok && p.start >= since {
			list = append(list, p)
		}
	}
	return list, seen
}

// look reads one process; false for one that is gone, or dead but for its parent's interest.
func look(pid int) (proc, bool) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return proc{}, false
	}
	defer unix.Close(fd)
	var buf [1024]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return proc{}, false
	}
	return parseStat(pid, string(buf[:n]))
}

// parseStat takes a process for dead when its last thread has ended. The state is that of the main thread, which may be a
// zombie while others work on, or are still letting go of what they have.
func parseStat(pid int, text string) (proc, bool) {
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // the name may hold anything
	if len(f) < 20 || f[0] == "X" || f[0] == "Z" && f[17] == "1" {
		return proc{}, false
	}
	p := proc{pid: pid, stopped: f[0] == "T", guard: strings.Contains(text, " ("+guardName+") ")}
	var err1, err2, err3 error
	p.ppid, err1 = strconv.Atoi(f[1])
	p.pgrp, err2 = strconv.Atoi(f[2])
	p.start, err3 = strconv.ParseUint(f[19], 10, 64)
	return p, err1 == nil && err2 == nil && err3 == nil
}

// members picks the processes that are members by themselves, those that carry the mark in their environment, and all
// descendants of both; never one of not.
func members(all []proc, is func(proc) bool, mark string, not ...int) []proc {
	barred := func(pid int) bool {
		for _, n := range not {
			if n == pid {
				return true
			}
		}
		return false
	}
	for i, p := range all {
		all[i].member = !barred(p.pid) && (is(p) || mark != "" && carriesMark(p.pid, mark))
	}
	in := make(map[int]bool)
	for grew := true; grew; {
		grew = false
		for i, p := range all {
			if p.member && !in[p.pid] {
				in[p.pid] = true
				grew = true
			} else if !p.member && in[p.ppid] && !barred(p.pid) {
				all[i].member = true
				grew = true
			}
		}
	}
	list := all[:0]
	for _, p := range all {
		if p.member {
			list = append(list, p)
		}
	}
	return list
}

// ownerMark is how the environment of the job begins an entry that nobody else's has.
func ownerMark(owner string) string {
	if owner == "" {
		return ""
	}
	return "LOCKRUN_OWNER=" + owner
}

func carriesMark(pid int, mark string) bool {
	env, err := environment(pid)
	if err != nil {
		return false
	}
	for entry := range strings.SplitSeq(env, "\x00") {
		if entry == mark {
			return true
		}
	}
	return false
}

// environment is a process's. One whose main thread has ended shows it through its other threads only.
func environment(pid int) (string, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	env, err := os.ReadFile(dir + "/environ")
	if len(env) > 0 {
		return string(env), nil
	}
	// Some kernels show it as empty, others (seen: 6.18) do not let it be opened.
	tasks, _ := os.ReadDir(dir + "/task")
	for _, task := range tasks {
		if env, _ := os.ReadFile(dir + "/task/" + task.Name() + "/environ"); len(env) > 0 {
			return string(env), nil
		}
	}
	return "", err
}

// signal sends to exactly the process that was looked at, although its number may have passed to another since.
func (p proc) signal(sig syscall.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		if err != unix.ESRCH {
			unix.Kill(p.pid, sig) // a kernel before 5.3
		}
		return
	}
	defer unix.Close(fd)
	if again, ok := look(p.pid); ok && again.start == p.start {
		unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}
