package supervise

import "golang.org/x/sys/unix"

// Unprotected says what this system or this build does not protect. It is empty where everything that lockrun promises
// about COMMAND is kept. It costs a few system calls.
func Unprotected() []Gap {
	const (
		allowed = "use a Linux from 3.4 on, and let its filter of system calls (seccomp) pass prctl"
		withC   = "use a lockrun that was built with a C compiler"
	)
	var list []Gap
	var v int32
	if prctlGet(unix.PR_GET_CHILD_SUBREAPER, &v) != nil {
		list = append(list, Gap{"this system knows no subreapers (prctl): " +
			"a descendant that loses its parent is found only by LOCKRUN_OWNER in its environment", allowed})
	}
	if prctlGet(unix.PR_GET_PDEATHSIG, &v) != nil {
		list = append(list, Gap{"this system sends no parent-death signal (prctl): " +
			"if lockrun and its guard are killed at once, COMMAND runs on", allowed})
	}
	switch {
	case unix.Access("/proc/self/stat", unix.R_OK) != nil:
		list = append(list, Gap{"/proc is not mounted: descendants that leave COMMAND's process group are not found", "mount /proc"})
	case !procIsOurs():
		list = append(list, Gap{"/proc is that of another PID namespace: descendants that leave COMMAND's process group are not found",
			"mount a /proc for this one (unshare --mount-proc)"})
	}
	if !exactDispositions {
		list = append(list, Gap{"this build (without cgo) passes on only HUP, INT, TTIN, TTOU and TSTP as ignored: " +
			"COMMAND gets the default for other signals that lockrun's parent ignored", withC},
			Gap{"this build (without cgo) cannot find, when lockrun is killed, " +
				"a descendant that left COMMAND's process group with a clean environment", withC})
	}
	return list
}
