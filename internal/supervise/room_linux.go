//go:build linux && cgo

package supervise

// #include "native.h"
import "C"

import (
	"runtime"
	"sync"
)

// spareThreads is how many threads of lockrun beside a job can be busy at once: the heartbeat and what it waits with, a
// signal while the lease is given back, and what looks after the others.
const spareThreads = 5

// roomBeside is what has to be left when they are made: for the guard and COMMAND, which a run that waits has yet to start,
// and for threads that the runtime makes besides.
const roomBeside = 4

// HoardThreads has the Go runtime make the threads that it may need later, while they can be had. Without one that it needs
// the runtime ends the program, and with it the job, which may have taken all processes that its user may have
// (RLIMIT_NPROC, pids.max) and would cope. Threads once made are kept. Where there is no room for them all, and some more, it
// makes none.
//
// A goroutine that waits locked to its thread keeps that from running others, so that each takes a thread more.
func HoardThreads() {
	if C.lockrun_has_room(spareThreads+roomBeside) == 0 {
		return
	}
	var waiting sync.WaitGroup
	enough := make(chan struct{})
	for range spareThreads {
		waiting.Add(1)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread() // or the thread would end with its goroutine
			waiting.Done()
			<-enough
		}()
	}
	waiting.Wait()
	close(enough)
}
