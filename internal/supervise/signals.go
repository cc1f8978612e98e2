//go:build unix

package supervise

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// forwarded is what reaches COMMAND through lockrun. Never URG, with which Go's runtime interrupts its own threads.
var forwarded = [...]syscall.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGCONT,
}

// asksStop tells whether the signal asks for the end of the tree.
func asksStop(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM:
		return true
	}
	return false
}

// Signals are the signals that lockrun passes on. There is one per process. Each one arrives as a byte in a pipe; a
// zero is a wake-up and no signal. As long as a Tree is being waited for the bytes are the loop's, and before and after
// they go to the channel of C, if anybody asked for it.
type Signals struct {
	r, w int
	origin

	mu   sync.Mutex
	ch   chan os.Signal
	stop chan struct{} // ends the pump; nil: none runs
	done chan struct{} // the pump has ended
	busy bool          // a Tree reads the pipe
}

// Listen starts catching HUP INT QUIT TERM USR1 USR2 WINCH CONT, except those that were ignored when lockrun was
// started, which stay so. It is called once, before the lease is asked for, so that nothing is lost. Nobody else may
// ask for these signals, or for CHLD and TSTP, by os/signal.
func Listen() (*Signals, error) {
	var p [2]int
	if err := pipe(&p); err != nil {
		return nil, fmt.Errorf("signals cannot be caught: pipe: %w; raise ulimit -n, or close what this process was started with", err)
	}
	unix.SetNonblock(p[0], true)
	unix.SetNonblock(p[1], true)
	s := &Signals{r: p[0], w: p[1], origin: readOrigin()}
	s.catchTo()
	for _, sig := range forwarded {
		if !s.ignored(sig) {
			s.catch(sig)
		}
	}
	s.keepIgnored()
	return s, nil
}

// C is where signals arrive while no Tree is being waited for: before Start and after Wait. It is always the same
// channel. One that nobody took from it before Start is forwarded after Start.
func (s *Signals) C() <-chan os.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan os.Signal, 64)
	}
	s.startPump()
	return s.ch
}

func (s *Signals) startPump() {
	if s.stop != nil || s.busy || s.ch == nil {
		return
	}
	s.stop, s.done = make(chan struct{}), make(chan struct{})
	go s.pump(s.stop, s.done)
}

func (s *Signals) pump(stop, done chan struct{}) {
	defer close(done)
	for {
		poll(-1, s.r)
		// One at a time: what is not delivered yet stays in the pipe for the Tree that takes over.
		sig, ok := s.next()
		select {
		case <-stop:
			if ok {
				s.post(sig)
			}
			return
		default:
		}
		if !ok || !isForwarded(sig) {
			continue
		}
		select {
		case s.ch <- sig:
		case <-stop:
			s.post(sig)
			return
		}
	}
}

// take hands the pipe to a Tree and returns what the channel still held, in order.
func (s *Signals) take() []syscall.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = true
	if s.stop != nil {
		close(s.stop)
		s.wake()
		<-s.done
		s.stop = nil
	}
	var held []syscall.Signal
	for {
		select {
		case sig := <-s.ch:
			held = append(held, sig.(syscall.Signal))
		default:
			return held
		}
	}
}

// giveBack returns the pipe.
func (s *Signals) giveBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = false
	s.startPump()
}

// next takes one byte from the pipe; false: it was a wake-up, or there was none.
func (s *Signals) next() (syscall.Signal, bool) {
	var b [1]byte
	n, _ := unix.Read(s.r, b[:])
	return syscall.Signal(b[0]), n == 1 && b[0] != 0
}

// drain takes all bytes that are there.
func (s *Signals) drain(buf []byte) []byte {
	n, err := unix.Read(s.r, buf)
	if err != nil || n < 0 {
		return nil
	}
	return buf[:n]
}

// wake makes whoever reads the pipe look up. It never blocks: a full pipe wakes as well.
func (s *Signals) wake() { s.post(0) }

func (s *Signals) post(sig syscall.Signal) { unix.Write(s.w, []byte{byte(sig)}) }

func isForwarded(sig syscall.Signal) bool {
	for _, f := range forwarded {
		if f == sig {
			return true
		}
	}
	return false
}
