//go:build linux && cgo

package main

// knowsClosed tells whether this build can see that stdout was closed.
const knowsClosed = true
