package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// handover is the time from the end of the holder's job to the first word of the waiter's, as whole processes: the
// release, the notice of it, the acquire, and the start of a job. Beside it, flock does the same.
func (b *bench) handover(s *stage, st *store) []row {
	dir, err := os.MkdirTemp("", "lockrun-bench-")
	must(err)
	s.Cleanup(func() { os.RemoveAll(dir) })
	lock := filepath.Join(dir, "lock")
	lockrun := func(more ...string) []string {
		return append([]string{b.lockrun, "--backend", st.url, "--key", "handover"}, more...)
	}
	var ours, peer []time.Duration
	for range b.handovers {
		ours = append(ours, handOver(lockrun("--", "cat"), lockrun("--wait", "60s", "--", "echo", "mine")))
		peer = append(peer, handOver([]string{b.flock, lock, "cat"}, []string{b.flock, lock, "echo", "mine"}))
	}
	return []row{times(st.name+", a lease handed to a waiter, from the end of one job to the first word of the next, against flock", ours, peer)}
}

// handOver starts holder, which has to run cat, and waiter, which has to print a line, and gives the time between.
func handOver(holder, waiter []string) time.Duration {
	h, w := exec.Command(holder[0], holder[1:]...), exec.Command(waiter[0], waiter[1:]...)
	h.Stderr, w.Stderr = os.Stderr, os.Stderr
	in, err := h.StdinPipe()
	must(err)
	echo, err := h.StdoutPipe()
	must(err)
	said, err := w.StdoutPipe()
	must(err)
	must(h.Start())
	fmt.Fprintln(in, "up")
	_, err = bufio.NewReader(echo).ReadString('\n') // cat runs, and so the lease is held
	must(err)
	must(w.Start())
	// Long enough for the waiter to have been refused, and not in step with any back-off.
	time.Sleep(300*time.Millisecond + rand.N(300*time.Millisecond))
	begin := time.Now()
	in.Close()
	_, err = bufio.NewReader(said).ReadString('\n')
	took := time.Since(begin)
	must(err)
	must(h.Wait())
	must(w.Wait())
	return took
}
