//go:build !linux

package testserver

import "syscall"

// attributes lets a server be killed together with what it starts. Nothing here ends it when this process is killed.
func attributes(user *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: user}
}

// stopped takes the signal's word for it.
func stopped(int) error { return nil }
