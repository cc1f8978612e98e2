package measure

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Child is a command under measurement, in a process group of its own.
type Child struct {
	cmd     *exec.Cmd
	out     *os.File
	lines   *bufio.Reader
	limit   time.Time
	told    *os.File // its stderr
	Started time.Time
	ended   chan struct{}
	Ended   time.Time // valid once End has returned
}

// Launch starts a command that has to be over after limit. Release has to be called in the end.
func Launch(limit time.Duration, argv ...string) *Child {
	out, w, err := os.Pipe()
	Must(err)
	defer w.Close()
	told, err := os.CreateTemp("", "lockrun-stderr-")
	Must(err)
	Must(os.Remove(told.Name()))
	c := &Child{cmd: exec.Command(argv[0], argv[1:]...), out: out, lines: bufio.NewReader(out), told: told, ended: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = w, told // files, so that Wait does not wait for jobs that have inherited them
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Started = time.Now()
	c.limit = c.Started.Add(limit)
	if err := c.cmd.Start(); err != nil {
		out.Close()
		told.Close()
		Must(err)
	}
	go func() {
		_ = c.cmd.Wait()
		c.Ended = time.Now()
		close(c.ended)
	}()
	return c
}

// Line is the next line that the command or its job prints.
func (c *Child) Line() string {
	Must(c.out.SetReadDeadline(c.limit))
	line, err := c.lines.ReadString('\n')
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("nothing is printed within %v", c.limit.Sub(c.Started))
	}
	if err != nil {
		Must(fmt.Errorf("%s: %w", c, err))
	}
	return strings.TrimSuffix(line, "\n")
}

// Say waits for a line that has to be this one.
func (c *Child) Say(want string) {
	if got := c.Line(); got != want {
		Must(fmt.Errorf("%s prints %q instead of %q: %w", c, got, want, ErrNoMeasure))
	}
}

// End waits for the command's own end and gives its exit code, -1 where a signal ended it.
func (c *Child) End() int {
	if !c.EndsWithin(time.Until(c.limit)) {
		Must(fmt.Errorf("%s does not end within %v", c, c.limit.Sub(c.Started)))
	}
	return c.cmd.ProcessState.ExitCode()
}

// Succeed waits for the end, which has to be a success.
func (c *Child) Succeed() {
	if code := c.End(); code != 0 {
		Must(fmt.Errorf("%s ends with %d: %w", c, code, ErrNoMeasure))
	}
}

// EndsWithin waits for the end for a while.
func (c *Child) EndsWithin(d time.Duration) bool {
	select {
	case <-c.ended:
		return true
	case <-time.After(d):
		return false
	}
}

// PID is the command's process.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Kill kills the command alone, so that it is seen what becomes of its job.
func (c *Child) Kill() { Must(c.cmd.Process.Kill()) }

// Release kills what is left of the command and its group.
func (c *Child) Release() {
	_ = syscall.Kill(-c.PID(), syscall.SIGKILL)
	<-c.ended
	c.out.Close()
	c.told.Close()
}

// String names the command without its arguments, which are long, but with its last words.
func (c *Child) String() string {
	if said := c.lastWords(); said != "" {
		return fmt.Sprintf("%s (%s)", c.cmd.Path, said)
	}
	return c.cmd.Path
}

// lastWords is the last line of its stderr that is no part of a stack trace.
func (c *Child) lastWords() (last string) {
	text, _ := io.ReadAll(io.NewSectionReader(c.told, 0, 1<<20))
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "at ") {
			last = line
		}
	}
	return last
}
