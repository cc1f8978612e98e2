//go:build unix

package supervise

import "syscall"

// Pending takes a signal that has already arrived, without waiting; 0 where there is none. It costs a system call, and
// is for whoever has not asked for C, which starts a goroutine that Start has to stop again.
func (s *Signals) Pending() syscall.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil || s.busy {
		return 0 // somebody else reads the pipe
	}
	for {
		sig, ok := s.next()
		if ok && isForwarded(sig) {
			return sig
		}
		if sig == 0 && !ok {
			return 0
		}
	}
}
