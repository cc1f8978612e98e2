//go:build !(linux && cgo)

package main

// knowsClosed is false: Go has opened /dev/null there.
const knowsClosed = false
