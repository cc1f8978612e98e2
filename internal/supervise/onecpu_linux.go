//go:build linux && cgo

package supervise

// #include "native.h"
import "C"

// Spread ends the start on one processor, for all threads; it does nothing in a program that did not ask for that. It
// has to be called before the program goes on for longer than a moment, and before it starts a process by other means
// than Start, which would inherit the confinement. It may be called again, and by any goroutine.
//
// A program that defines the C variable lockrun_starts_on_one_cpu is confined to the processor that it finds itself on,
// before the Go runtime starts. The runtime starts half a dozen threads, each of which the kernel would put on another,
// idle processor; to wake that one up, and to tell it of each change to the address space, takes an interrupt, which is
// dear wherever the processors are virtual. Measured there, a whole run took 5.3 ms, and 4.2 ms when confined. Only the
// first milliseconds may be spent so: on a busy processor a heartbeat could come too late.
//
// With the start ends the use of most of the program's code. It is given back, so that lockrun is small beside a job.
func Spread() {
	C.lockrun_spread()
	C.lockrun_slim()
}
