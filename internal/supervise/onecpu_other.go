//go:build unix && !(linux && cgo)

package supervise

// Spread does nothing: without C there is no code that could run before the Go runtime.
func Spread() {}
