package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is one server. Its methods end the test when they cannot do what they say.
type Process struct {
	t     TB
	spec  spec
	mu    sync.Mutex // held through starting and ending, so that the two do not cross
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has been reaped
}

// spec is how to start a server, again and again.
type spec struct {
	name  string
	argv  []string
	env   []string            // beside this process's own
	user  *syscall.Credential // nil: as this process
	log   string              // file that takes the server's output; appended to
	data  string              // what RestartEmpty empties
	fill  func() error        // what has to be in an empty data folder; nil: nothing
	ready func(pid int) error // asks the server something, and makes sure that it is this process that answers
	quit  time.Duration       // how long Stop waits for it to end by itself
}

// errInUse tells that a server did not start because something else has its port.
var errInUse = errors.New("address already in use")

// launch starts a server at an address that choose picks, and elsewhere when somebody else was quicker.
func launch(t TB, choose func() (spec, error)) *Process {
	t.Helper()
	for try := 1; ; try++ {
		s, err := choose()
		if err != nil {
			t.Fatalf("preparing a server: %v", err)
		}
		p := &Process{t: t, spec: s}
		err = p.start()
		if err == nil {
			t.Cleanup(p.cleanup)
			return p
		}
		p.end()
		if !errors.Is(err, errInUse) || try == 5 {
			t.Fatalf("%v", err)
		}
	}
}

// start starts the server and waits until it answers.
func (p *Process) start() error {
	log, err := os.OpenFile(p.spec.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer log.Close()
	from, _ := log.Seek(0, 2)
	cmd := exec.Command(p.spec.argv[0], p.spec.argv[1:]...)
	cmd.Env = append(os.Environ(), p.spec.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attributes(p.spec.user)
	if err := startOn(cmd); err != nil {
		return fmt.Errorf("cannot start %s: %w", p.spec.name, err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	p.cmd, p.ended = cmd, ended
	return p.awaitReady(from)
}

// awaitReady asks until the server answers or has ended.
func (p *Process) awaitReady(from int64) error {
	gone := false
	err := poll(func() error {
		select {
		case <-p.ended:
			gone = true
			return nil
		default:
			return p.spec.ready(p.cmd.Process.Pid)
		}
	})
	switch {
	case gone && strings.Contains(strings.ToLower(p.logFrom(from)), errInUse.Error()):
		return fmt.Errorf("%s: %w", p.spec.name, errInUse)
	case gone:
		return fmt.Errorf("%s ended while starting; its log:\n%s", p.spec.name, p.logFrom(from))
	case err != nil:
		return fmt.Errorf("%s does not answer after %v: %w; its log:\n%s", p.spec.name, patience, err, p.logFrom(from))
	}
	return nil
}

// PID is the server's process id, also after it has ended.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// Running tells whether the server's process is there, be it frozen.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

func (p *Process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Freeze stops the server's process without ending it: the kernel still accepts connections for it, and nothing answers.
// It returns when the process has stopped.
func (p *Process) Freeze() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	await(p.t, "freezing "+p.spec.name, func() error {
		return stopped(p.PID())
	})
}

// Thaw lets a frozen server go on. It then answers what was asked meanwhile.
func (p *Process) Thaw() {
	p.t.Helper()
	p.signal(syscall.SIGCONT)
}

func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		p.t.Fatalf("%s is not running", p.spec.name)
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("sending %v to %s: %v", s, p.spec.name, err)
	}
}

// Kill is kill -9. It returns when the process has been reaped, and does nothing to one that has ended.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
}

// end kills the whole group, for what the server has started itself. It is reached without the lock only before anybody
// else knows p.
func (p *Process) end() {
	if p.cmd == nil || !p.running() {
		return
	}
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.ended
}

// Stop asks the server to end as a service manager would, and kills it when it has not ended in time.
func (p *Process) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quit()
}

func (p *Process) quit() {
	if p.cmd == nil || !p.running() {
		return
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.cmd.Process.Signal(syscall.SIGCONT)
	select {
	case <-p.ended:
	case <-time.After(p.spec.quit):
		p.end()
	}
}

// Restart starts the server again at the same address with the data that it has on disk, after a kill -9 if it still
// runs. It returns when the server answers.
func (p *Process) Restart() {
	p.t.Helper()
	p.restart(func() error { return nil })
}

// RestartEmpty is Restart with the data taken away.
func (p *Process) RestartEmpty() {
	p.t.Helper()
	p.restart(func() error {
		if err := empty(p.spec.data); err != nil || p.spec.fill == nil {
			return err
		}
		return p.spec.fill()
	})
}

func (p *Process) restart(prepare func() error) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	if err := prepare(); err != nil {
		p.t.Fatalf("restarting %s: %v", p.spec.name, err)
	}
	// The address is known to others by now, so wait for it rather than take another.
	err := poll(func() error {
		if err := p.start(); errors.Is(err, errInUse) {
			return err
		} else if err != nil {
			p.end()
			p.t.Fatalf("restarting: %v", err)
		}
		return nil
	})
	if err != nil {
		p.t.Fatalf("restarting: %v", err)
	}
}

// Log is what the server has printed since its first start.
func (p *Process) Log() string { return p.logFrom(0) }

func (p *Process) logFrom(from int64) string {
	b, err := os.ReadFile(p.spec.log)
	if err != nil {
		return err.Error()
	}
	return string(b[min(from, int64(len(b))):])
}

// cleanup ends the server for good; its data is not worth an orderly end.
func (p *Process) cleanup() {
	p.Kill()
	if p.t.Failed() {
		p.t.Logf("the end of the log of %s:\n%s", p.spec.name, tail(p.Log(), 40))
	}
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
