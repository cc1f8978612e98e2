//go:build unix && !linux && !freebsd

package supervise

import "syscall"

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
