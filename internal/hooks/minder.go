//go:build unix

package hooks

import (
	"encoding/json"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// MinderMain is the whole life of a process that minds a hook. spread is called before the hook is started; see
// supervise.Spread.
func MinderMain(spread func()) int {
	var o orders
	told, mine := strings.CutPrefix(firstVariable(), ordersVariable)
	if !mine || json.Unmarshal([]byte(told), &o) != nil {
		return 64 // somebody has started it by hand
	}
	closeOnExec()
	deadline := time.After(min(o.Bound, time.Until(o.Until))) // the clock may have been set
	// Whatever ends lockrun's group must not end the minder before it has ended the hook. Caught and not ignored, since
	// the hook would inherit that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE)
	spread()
	becomeReaper()
	m := &minder{}
	a := m.mind(o.Command, deadline, letGo(os.NewFile(fdLeash, "leash")))
	_ = json.NewEncoder(os.NewFile(fdAnswer, "answer")).Encode(a) // where lockrun is gone nobody is left to be told
	return 0
}

// letGo is closed when lockrun has let go of the other end of the pipe, or is dead.
func letGo(leash *os.File) <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = leash.Read(make([]byte, 1)) // nothing is ever written
	}()
	return gone
}

func firstVariable() string {
	if env := os.Environ(); len(env) > 0 {
		return env[0]
	}
	return ""
}

// minder is one hook while it runs.
type minder struct {
	pid    int
	output sync.WaitGroup
	more   atomic.Bool // there was more output than is passed on
}

// mind runs the command to its end, to the deadline, or until lockrun lets go.
func (m *minder) mind(command string, deadline <-chan time.Time, gone <-chan struct{}) answer {
	r, w, err := os.Pipe()
	if err != nil {
		return answer{Failure: err.Error()}
	}
	env := os.Environ()[1:]
	m.pid, err = syscall.ForkExec("/bin/sh", []string{"sh", "-c", command}, &syscall.ProcAttr{
		Env: env, Files: []uintptr{0, w.Fd(), w.Fd()}, Sys: hookAttr(),
	})
	w.Close()
	if err != nil {
		return answer{Failure: "/bin/sh cannot be executed: " + err.Error()}
	}
	m.output.Go(func() { m.pass(r) })
	ended, all := make(chan int, 1), make(chan struct{})
	go m.reap(ended, all)
	a := answer{}
	select {
	case <-all:
	case <-deadline:
		a.Late = true
	case <-gone:
		a.Late = true
	}
	if a.Late {
		m.killAll(all)
	}
	select {
	case a.Code = <-ended:
	default: // it cannot be killed
	}
	m.finishOutput()
	a.Dropped = m.more.Load()
	return a
}

// reap buries everything below the minder. ended gets sh's code; all is closed when nothing is left.
func (m *minder) reap(ended chan<- int, all chan<- struct{}) {
	defer close(all)
	for {
		var st syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &st, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return
		case pid == m.pid && st.Signaled():
			ended <- 128 + int(st.Signal())
		case pid == m.pid:
			ended <- st.ExitStatus()
		}
	}
}

// killAll kills until nothing is left, or that is clearly useless: something hangs in the kernel.
func (m *minder) killAll(all <-chan struct{}) {
	for range 100 {
		_ = syscall.Kill(-m.pid, syscall.SIGKILL)
		killBelow()
		select {
		case <-all:
			return
		case <-time.After(late / 200):
		}
	}
}

// pass passes on what the hook prints, up to maxOutput bytes, and reads on, so that it is not blocked.
func (m *minder) pass(r *os.File) {
	buf, room := make([]byte, 32<<10), maxOutput
	for {
		n, err := r.Read(buf)
		take := min(n, room)
		if take > 0 {
			_, _ = os.Stderr.Write(buf[:take]) // where nobody reads, the hook is blocked as any program would be
			room -= take
		}
		if take < n {
			m.more.Store(true)
		}
		if err != nil {
			return
		}
	}
}

// finishOutput waits a moment for what was printed last; somebody may hold the pipe who cannot be killed, or nobody read
// stderr.
func (m *minder) finishOutput() {
	done := make(chan struct{})
	go func() { m.output.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(late / 20):
	}
}
