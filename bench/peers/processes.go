package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// start is the time from the start of the wrapper to the first word of its job, and to its end.
func (b *bench) start(s *stage) {
	all := b.peers(s, start(s))
	begun, whole := make([][]time.Duration, len(all)), make([][]time.Duration, len(all))
	for i := range b.runs + 3 {
		for j := range all {
			k := (i + j) % len(all)
			if all[k].slow() && i >= b.slowRuns+3 {
				continue
			}
			first, end := begin(all[k].guard("start", "/bin/echo", "up"))
			if i >= 3 {
				begun[k], whole[k] = append(begun[k], first), append(whole[k], end)
			}
		}
	}
	head("Start: from the wrapper's start to its job's first word, and to its own end; medians", "to the job", "ratio to flock",
		"to the end", "ratio to flock")
	reference := 0
	for k, p := range all {
		if p.name == "flock" {
			reference = k
		}
	}
	for k, p := range all {
		line(p.name, ms(median(begun[k])), ratio(median(begun[k]), median(begun[reference])),
			ms(median(whole[k])), ratio(median(whole[k]), median(whole[reference])))
	}
}

// begin runs a command to its end. Its job has to print a line.
func begin(argv []string) (first, end time.Duration) {
	cmd := exec.Command(argv[0], argv[1:]...)
	out, err := cmd.StdoutPipe()
	must(err)
	began := time.Now()
	must(cmd.Start())
	word, err := bufio.NewReader(out).ReadString('\n')
	first = time.Since(began)
	must(cmd.Wait())
	end = time.Since(began)
	if err != nil || word != "up\n" {
		must(fmt.Errorf("%q printed %q: %w", argv, word, errNoMeasure))
	}
	return first, end
}

// held is a wrapper beside its job, which sleeps.
type held struct {
	cmd *exec.Cmd
	job int
}

// hold starts a peer with a job that prints its process id and sleeps.
func (p *peer) hold(s *stage, key string) *held {
	argv := p.guard(key, "/bin/sh", "-c", "echo $$; exec sleep 1000")
	h := &held{cmd: exec.Command(argv[0], argv[1:]...)}
	out, err := h.cmd.StdoutPipe()
	must(err)
	must(h.cmd.Start())
	s.Cleanup(func() {
		if h.job > 0 {
			_ = syscall.Kill(h.job, syscall.SIGKILL)
		}
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
	})
	word, err := bufio.NewReader(out).ReadString('\n')
	must(err)
	h.job, err = strconv.Atoi(strings.TrimSpace(word))
	must(err)
	return h
}

// memory is what is resident beside a sleeping job.
func (b *bench) memory(s *stage) {
	head("Memory beside a sleeping job: the wrapper and what it has started, the job excepted", "resident", "shared with nobody")
	for i, p := range b.peers(s, start(s)) {
		h := p.hold(s, fmt.Sprint("memory", i))
		time.Sleep(time.Second) // what start-up has touched is part of it; what is returned soon is not
		var rss, private int
		for _, pid := range family(h.cmd.Process.Pid) {
			if pid != h.job {
				rss += rollup(pid, "Rss")
				private += rollup(pid, "Private_Clean") + rollup(pid, "Private_Dirty")
			}
		}
		line(p.name, megabytes(rss), megabytes(private))
	}
}

// family is a process and all its descendants.
func family(pid int) []int {
	all := []int{pid}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		for _, word := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(word); err == nil {
				all = append(all, family(n)...)
			}
		}
	}
	return all
}

// rollup is one field of smaps_rollup, in KB.
func rollup(pid int, field string) (n int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			_, _ = fmt.Sscan(v, &n)
		}
	}
	return n
}

func megabytes(kb int) string { return fmt.Sprintf("%.1f MB", float64(kb)/1024) }

// rate is whole runs a second by many shells at once, each with a key of its own.
func (b *bench) rate(s *stage) {
	head(fmt.Sprintf("Runs of `true` a second, %d contenders with a key each, a process a run", b.contenders), "runs/s")
	for _, p := range b.peers(s, start(s)) {
		if p.slow() {
			line(p.name, "a JVM a run is nothing that anybody does")
			continue
		}
		var runs atomic.Int64
		var all sync.WaitGroup
		begin := time.Now()
		for i := range b.contenders {
			argv := p.guard(fmt.Sprintf("rate%d", i), "/bin/true")
			all.Go(func() {
				for time.Since(begin) < b.span {
					if exec.Command(argv[0], argv[1:]...).Run() == nil {
						runs.Add(1)
					}
				}
			})
		}
		all.Wait()
		line(p.name, fmt.Sprintf("%.0f", float64(runs.Load())/time.Since(begin).Seconds()))
	}
}

// frozen is what happens to a job whose lock server stops answering.
func (b *bench) frozen(s *stage) {
	head(fmt.Sprintf("The server freezes while the job runs, with a lock of %v", b.ttl), "the job", "the wrapper's exit code")
	var names []string
	for _, p := range b.peers(s, start(s)) {
		names = append(names, p.name)
	}
	for i, name := range names { // servers of their own: the one before left them frozen
		must(perform(func(s *stage) {
			p := b.peers(s, start(s))[i]
			if p.server == nil {
				line(name, "has no server", "")
				return
			}
			h := p.hold(s, "frozen")
			time.Sleep(b.ttl / 2)
			p.server.Freeze()
			died, after := awaitDeath(h.job, b.patience)
			if !died {
				line(name, fmt.Sprintf("runs on, watched for %v", b.patience), "")
				return
			}
			line(name, fmt.Sprintf("dead after %.1f s", after.Seconds()), exitCode(h))
		}))
	}
}

// awaitDeath watches a process.
func awaitDeath(pid int, patience time.Duration) (died bool, after time.Duration) {
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(text), ") Z ") {
			return true, time.Since(begin)
		}
	}
	return false, patience
}

// exitCode is the wrapper's own, where it ends soon.
func exitCode(h *held) string {
	done := make(chan error, 1)
	go func() { done <- h.cmd.Wait() }()
	select {
	case <-done:
		return strconv.Itoa(h.cmd.ProcessState.ExitCode())
	case <-time.After(10 * time.Second):
		return "does not end"
	}
}

// killed is what happens to a job whose wrapper is killed.
func (b *bench) killed(s *stage) {
	head("The wrapper is killed (SIGKILL)", "the job")
	for i, p := range b.peers(s, start(s)) {
		h := p.hold(s, fmt.Sprint("killed", i)) // each its own: what was killed has not let go
		must(h.cmd.Process.Kill())
		if died, after := awaitDeath(h.job, 3*time.Second); died {
			line(p.name, fmt.Sprintf("dead after %s", ms(after)))
		} else {
			line(p.name, "runs on as an orphan")
		}
	}
}
