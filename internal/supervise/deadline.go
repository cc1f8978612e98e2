//go:build unix

package supervise

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/internal/boottime"
)

// Deadline is when the tree has to be dead. It starts as never, and one Deadline belongs to one Tree. Its methods may be
// called by any goroutine and never block, before Start and after Wait too.
type Deadline struct {
	mu     sync.Mutex // held only over a few instructions and a write that cannot block
	set    bool
	term   time.Duration
	kill   time.Duration
	guard  int  // where the guard reads; 0: there is none
	stale  bool // the guard has not been told of the latest
	missed bool // a deadline had passed before it was moved, so that the guard may have acted on it
	wake   *Signals
	next   time.Duration // when the loop wakes up by itself

	now func() time.Duration // boottime.Now, but in a test
}

// Set makes the tree get TERM at term and KILL at kill, both on the clock of package boottime, and tells the guard.
func (d *Deadline) Set(term, kill time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	set, old := d.set, d.kill
	d.set, d.term, d.kill = true, min(term, kill), kill
	d.tell()
	// Only now: between a look at the clock and the write this process may have waited for the processor.
	d.missed = d.missed || set && d.clock() >= old
	if d.wake != nil && d.term < d.next {
		d.wake.wake()
	}
}

func (d *Deadline) clock() time.Duration {
	if d.now != nil {
		return d.now()
	}
	return boottime.Now()
}

// Never takes the deadline away.
func (d *Deadline) Never() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set = false
	d.tell()
}

// get returns the times, which are far away where there is no deadline.
func (d *Deadline) get() (term, kill time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.set {
		return never, never
	}
	return d.term, d.kill
}

// wasMissed tells whether a deadline had passed when the guard was told that it had moved: lockrun was frozen until shortly
// before or after it, and its renewal was answered before the lease itself had run out.
func (d *Deadline) wasMissed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.missed
}

// tell writes the present deadline to the guard. A guard that is frozen with a full pipe is told later, by the loop.
func (d *Deadline) tell() {
	d.stale = d.guard != 0 && unix.EAGAIN == writeMessage(d.guard, d.message())
}

func (d *Deadline) message() message {
	if !d.set {
		return message{kind: msgNever}
	}
	return message{msgDeadline, rawNanos(d.kill)}
}

// attach makes fd the guard's pipe; 0 for none.
func (d *Deadline) attach(fd int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.guard = fd
	d.tell()
}

// sleeping says until when the loop is going to sleep, and whether the guard has to be told again before.
func (d *Deadline) sleeping(until time.Duration, wake *Signals) (term, kill time.Duration, stale bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stale {
		d.tell()
	}
	term, kill = never, never
	if d.set {
		term, kill = d.term, d.kill
	}
	d.wake, d.next = wake, min(until, term)
	return term, kill, d.stale
}
