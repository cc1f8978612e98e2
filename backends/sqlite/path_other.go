//go:build unix && !linux

package sqlite

// fileSystem cannot tell on this system.
func fileSystem(string) (string, error) { return "", nil }
