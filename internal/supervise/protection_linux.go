package supervise

import "golang.org/x/sys/unix"

// Unprotected says, a sentence each, what this system or this build does not protect. It is empty where everything that
// lockrun promises about COMMAND is kept. It costs a few system calls.
func Unprotected() []string {
	var list []string
	var v int32
	if prctlGet(unix.PR_GET_CHILD_SUBREAPER, &v) != nil {
		list = append(list, "this system knows no subreapers (prctl): "+
			"a descendant that loses its parent is found only by LOCKRUN_OWNER in its environment")
	}
	if prctlGet(unix.PR_GET_PDEATHSIG, &v) != nil {
		list = append(list, "this system sends no parent-death signal (prctl): "+
			"if lockrun and its guard are killed at once, COMMAND runs on")
	}
	if unix.Access("/proc/self/stat", unix.R_OK) != nil {
		list = append(list, "/proc is not mounted: descendants that leave COMMAND's process group are not found")
	}
	if !exactDispositions {
		list = append(list, "this build (without cgo) passes on only HUP, INT, TTIN, TTOU and TSTP as ignored: "+
			"COMMAND gets the default for other signals that lockrun's parent ignored",
			"this build (without cgo) cannot find, when lockrun is killed, "+
				"a descendant that left COMMAND's process group with a clean environment")
	}
	return list
}
