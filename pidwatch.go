package main

import (
	"errors"
	"os"
)

// pidWatch watches one process that is not a child. A number alone could be somebody else's by the time it is looked at,
// so it comes with proof: a descriptor of the process where the system has them, else the time of its start.
type pidWatch struct {
	PID   int
	Start string // when it started, as the system tells it; "" where there is a descriptor, or nothing better

	fd *os.File // nil without pidfd_open
}

var errNoProcess = errors.New("there is no such process; give the script's own, $$")

// files adds the descriptor to those of a new process.
func (w pidWatch) files(f []*os.File) []*os.File {
	if w.fd != nil {
		f = append(f, w.fd)
	}
	return f
}

// inherited is the watch in the process that was given the descriptor under this number.
func (w pidWatch) inherited(fd uintptr) pidWatch {
	if w.Start == "" && hasPidfd {
		w.fd = os.NewFile(fd, "script")
	}
	return w
}

func (w pidWatch) close() {
	if w.fd != nil {
		w.fd.Close()
	}
}
