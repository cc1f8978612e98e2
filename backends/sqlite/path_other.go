//go:build unix && !linux

package sqlite

import "errors"

// fileSystem cannot tell on this system.
func fileSystem(string) (string, error) { return "", nil }

// renameNew is not to be had here.
func renameNew(string, string) error { return errors.ErrUnsupported }
