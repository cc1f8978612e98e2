//go:build unix && !(linux && cgo)

package supervise

// WasClosed cannot tell: Go's runtime has opened /dev/null by now.
func WasClosed(int) bool { return false }
