//go:build unix && !linux

package hooks

import (
	"os"
	"strconv"
	"syscall"
)

func becomeReaper() {}

func hookAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// closeOnExec keeps everything but the standard descriptors from the hook.
func closeOnExec() {
	open, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

func killBelow() {}
