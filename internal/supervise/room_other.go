//go:build unix && !(linux && cgo)

package supervise

// HoardThreads does nothing: without C nobody can ask for a thread and be refused.
func HoardThreads() {}
