//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"
)

// counter is a number in a file, with the run that wrote it and the greatest token that was shown.
type counter struct{ f *os.File }

func openCounter(path string) *counter {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	check(err)
	return &counter{f}
}

// read gives zeros, and "-" for the run, where nobody has written.
func (c *counter) read() (value int64, run string, token int64) {
	run = "-"
	var b [64]byte
	if n, _ := c.f.ReadAt(b[:], 0); n > 0 {
		_, err := fmt.Sscan(string(b[:n]), &value, &run, &token)
		check(err)
	}
	return value, run, token
}

func (c *counter) write(value int64, run string, token int64) {
	_, err := fmt.Fprintf(&at{c.f, 0}, "%-20d %-20s %-20d\n", value, run, token)
	check(err)
}

// present reads the counter of a receiver that compares tokens. It refuses one that is less than the greatest it has seen.
func (c *counter) present(token int64) (value int64, refused bool) {
	defer c.lock()()
	value, run, greatest := c.read()
	if token < greatest {
		return value, true
	}
	c.write(value, run, token)
	return value, false
}

// store writes the same counter, and tells whether it was let to.
func (c *counter) store(value int64, run string, token int64) bool {
	defer c.lock()()
	if _, _, greatest := c.read(); token < greatest {
		return false
	}
	c.write(value, run, token)
	return true
}

func (c *counter) lock() (unlock func()) {
	check(syscall.Flock(int(c.f.Fd()), syscall.LOCK_EX))
	return func() { check(syscall.Flock(int(c.f.Fd()), syscall.LOCK_UN)) }
}

// at writes at an offset, in one write.
type at struct {
	f   *os.File
	off int64
}

func (a *at) Write(b []byte) (int, error) { return a.f.WriteAt(b, a.off) }
