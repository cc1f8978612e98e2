package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lockrun/lockrun/internal/boottime"
)

func bootNow() time.Duration { return boottime.Now() }

// work is one worker: it starts one run after the other until the game is over.
func (g *game) work(worker int) {
	for n := 0; !g.over(); n++ {
		g.contend(g.newPlan(worker, n))
	}
}

// contend starts one lockrun, harms it as planned and waits until it has ended.
func (g *game) contend(p plan) *run {
	g.mu.Lock()
	r := &run{N: len(g.runs) + 1, Plan: p, Began: bootNow()}
	g.runs = append(g.runs, r)
	g.mu.Unlock()
	c, err := g.start(r)
	if err != nil {
		g.broken("starting lockrun: %v", err)
		return r
	}
	done := make(chan struct{})
	var harming sync.WaitGroup
	harming.Go(func() { c.harm(done) })
	c.wait()
	close(done)
	harming.Wait()
	return r
}

// contender is a lockrun process.
type contender struct {
	g     *game
	r     *run
	cmd   *exec.Cmd
	began chan int // the job's process id, once
}

func (g *game) start(r *run) (*contender, error) {
	c := &contender{g: g, r: r, began: make(chan int, 1)}
	argv := g.command(r)
	c.cmd = exec.Command(argv[0], argv[1:]...)
	c.cmd.Env = g.environ()
	c.cmd.Dir = g.dir
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	// A file, and not a pipe, whose other end what lingers would keep open, and cmd.Wait with it.
	errs, err := os.Create(filepath.Join(g.dir, "stderr-"+strconv.Itoa(r.N)))
	if err != nil {
		return nil, err
	}
	defer errs.Close()
	c.cmd.Stdout, c.cmd.Stderr = write, errs
	err = startOn(c.cmd)
	write.Close()
	if err != nil {
		read.Close()
		return nil, err
	}
	g.listening.Go(func() {
		defer read.Close()
		g.listen(r, read, c.began)
	})
	return c, nil
}

// command is a run's command line.
func (g *game) command(r *run) []string {
	p := r.Plan
	argv := []string{g.lockrun, "--key", p.Key, "--ttl", p.TTL.String(), "--backend-timeout", g.timeout.String(), "--descendants", "kill"}
	if p.Slots > 1 {
		argv = append(argv, "--slots", strconv.Itoa(p.Slots))
	}
	if p.RunID != "" {
		argv = append(argv, "--run-id", p.RunID)
	}
	if p.Wait > 0 {
		argv = append(argv, "--wait", p.Wait.String())
	}
	if p.Timeout > 0 {
		argv = append(argv, "--timeout", p.Timeout.String())
	}
	argv = append(argv, "--", g.job, g.dir, strconv.Itoa(r.N), p.Work.String(), strconv.Itoa(p.Exit), p.Mode)
	if p.Space >= 0 && p.Space < len(g.spaces) {
		argv = append([]string{"nsenter", "--time=" + g.spaces[p.Space], "--"}, argv...)
	}
	return argv
}

// environ is what all contenders get: the store, and nothing that the caller's environment says to lockrun.
func (g *game) environ() []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "LOCKRUN_") || strings.HasPrefix(kv, "XDG_") || strings.HasPrefix(kv, "GORACE")
	})
	return append(env, "LOCKRUN_BACKEND="+g.arena.url, "XDG_CONFIG_HOME="+g.dir)
}

// wait waits for lockrun's end, and kills one that does not come to it.
func (c *contender) wait() {
	hung := time.AfterFunc(c.bound(), func() {
		c.g.violated(violation{Rule: "lockrun comes to an end", Runs: []int{c.r.N}, What: "it was still there after " + c.bound().String()})
		c.signal(syscall.SIGKILL)
		c.signal(syscall.SIGCONT)
	})
	defer hung.Stop()
	err := c.cmd.Wait()
	state := c.cmd.ProcessState
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	c.r.Ended = bootNow()
	c.r.Stderr = c.g.said(c.r.N)
	status := state.Sys().(syscall.WaitStatus)
	c.r.Code = status.ExitStatus()
	if status.Signaled() {
		c.r.Code = 128 + int(status.Signal())
		c.r.Killed = status.Signal() == syscall.SIGKILL
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.r.Stderr += err.Error()
	}
}

// bound is how long a run may last at the very most.
func (c *contender) bound() time.Duration {
	p := c.r.Plan
	return p.Wait + min(p.Work, 5*time.Second) + 2*p.TTL + p.Harm.Length + p.Harm.After + 3*c.g.timeout + c.g.slack + 30*time.Second
}

func (c *contender) signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) }

// said is what a run that has ended told on stderr.
func (g *game) said(n int) string {
	name := filepath.Join(g.dir, "stderr-"+strconv.Itoa(n))
	b, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	_ = os.Remove(name)
	return strings.TrimSpace(string(b))
}

// startOn starts a command on a thread that lives as long as the process, since the kernel sends a child its Pdeathsig when
// the thread that started it ends (golang/go#27505).
func startOn(cmd *exec.Cmd) error {
	done := make(chan error)
	starter() <- func() { done <- cmd.Start() }
	return <-done
}
