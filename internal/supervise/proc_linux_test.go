package supervise

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// marked are the living processes whose environment has this owner; a zombie is not alive.
func marked(owner string) (pids []int) {
	all, _ := lookAround(0)
	for _, p := range all {
		if carriesMark(p.pid, ownerMark(owner)) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// named are the living processes with this as one of their arguments.
func named(argument string) (pids []int) {
	all, _ := lookAround(0)
	for _, p := range all {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/cmdline")
		for a := range strings.SplitSeq(string(line), "\x00") {
			if a == argument {
				pids = append(pids, p.pid)
			}
		}
	}
	return pids
}

func alive(pid int) bool {
	_, ok := look(pid)
	return ok
}

// guardOf finds the guard of a runner; 0 while there is none.
func guardOf(pid int) int {
	all, _ := lookAround(0)
	for _, p := range all {
		comm, _ := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/comm")
		if p.ppid == pid && strings.TrimSpace(string(comm)) == guardName {
			return p.pid
		}
	}
	return 0
}

func awaitGuard(t *testing.T, pid int) (guard int) {
	t.Helper()
	eventually(t, "there is a guard", func() bool {
		guard = guardOf(pid)
		return guard != 0
	})
	return guard
}

// statusLine is one line of /proc/PID/status or of a copy of it.
func statusLine(text, name string) string {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func statusOf(pid int, name string) string {
	return statusLine(contents("/proc/"+strconv.Itoa(pid)+"/status"), name)
}

// awaitChild finds COMMAND, by its parent.
func awaitChild(t *testing.T, parent int) (child int) {
	t.Helper()
	eventually(t, "COMMAND runs", func() bool {
		all, _ := lookAround(0)
		for _, p := range all {
			if p.ppid == parent && p.pid != guardOf(parent) {
				child = p.pid
			}
		}
		return child != 0
	})
	return child
}
