package supervise

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func prctlGet(option int, v *int32) error {
	return unix.Prctl(option, uintptr(unsafe.Pointer(v)), 0, 0, 0)
}
