package main

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"time"
)

// run is one contender from its start to its end, as the harness and its job saw it. The game's lock guards it.
type run struct {
	N      int
	Plan   plan
	Began  time.Duration // on the boot clock, before lockrun was started
	Ended  time.Duration // when it was reaped; 0: it is still there
	Code   int           // its exit code, 128+N where signal N ended it
	Killed bool          // a SIGKILL of ours ended lockrun
	Stderr string
	Acts   []act
	Gone   time.Duration // when nothing of its tree was left; 0: not yet
	Job    *life         // nil: the job was not started
}

// act is something that was done to a run, for as long as it lasted.
type act struct {
	Kind     string
	From, To time.Duration // To is 0 while it lasts
}

// life is what a job told.
type life struct {
	PID       int
	Token     int64
	Slot      string
	Attempt   int
	Start     time.Duration
	Seen      time.Duration // the last sign of life
	Done      time.Duration // when it said that it would exit; 0: never
	Code      int           // with which code
	Read      int64         // the counter as it was found, -1: not read
	Writer    int           // the run that had written it, 0: nobody
	ReadAt    time.Duration
	Wrote     int64 // 0: nothing
	WroteAt   time.Duration
	Fence     string
	Witnessed []meeting
}

// meeting is an overlap that the kernel testified to.
type meeting struct {
	Claim string
	Other int           // the run that was there
	Until time.Duration // when it was gone; 0: it outlived us, or is still there
}

// listen reads what a job tells, until nobody is left who could tell more. began is told once.
func (g *game) listen(r *run, from io.Reader, began chan<- int) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) == 0 {
			continue
		}
		g.mu.Lock()
		known := r.Job != nil
		r.hear(f)
		pid := 0
		if r.Job != nil && !known {
			pid = r.Job.PID
			g.grants++
		}
		g.mu.Unlock()
		if pid != 0 {
			began <- pid
		}
	}
	g.mu.Lock()
	r.Gone = bootNow()
	g.mu.Unlock()
}

// hear takes in one line.
func (r *run) hear(f []string) {
	arg := func(i int) int64 {
		if i >= len(f) {
			return 0
		}
		n, _ := strconv.ParseInt(f[i], 10, 64)
		return n
	}
	if f[0] == "S" && len(f) >= 5 {
		at := time.Duration(arg(1))
		r.Job = &life{Start: at, Seen: at, PID: int(arg(2)), Token: arg(3), Slot: f[4], Attempt: int(arg(5)), Read: -1}
		return
	}
	j := r.Job
	if j == nil {
		return
	}
	switch f[0] {
	case "B":
		j.Seen = time.Duration(arg(1))
	case "O":
		j.Witnessed = append(j.Witnessed, meeting{Claim: f[1], Other: int(arg(2))})
	case "o":
		for i := range j.Witnessed {
			if j.Witnessed[i].Claim == f[1] {
				j.Witnessed[i].Until = time.Duration(arg(2))
			}
		}
	case "R":
		j.Read, j.Writer, j.ReadAt = arg(1), int(arg(2)), time.Duration(arg(3))
	case "W":
		j.Wrote, j.WroteAt = arg(1), time.Duration(arg(2))
	case "F":
		j.Fence = f[1]
	case "E":
		j.Seen, j.Done, j.Code = time.Duration(arg(1)), time.Duration(arg(1)), int(arg(2))
	}
}

// did tells whether one of these was done to the run.
func (r *run) did(kinds ...string) bool {
	for _, a := range r.Acts {
		for _, k := range kinds {
			if a.Kind == k {
				return true
			}
		}
	}
	return false
}

// last is the last moment at which the job is known to have been alive.
func (r *run) last() time.Duration { return r.Job.Seen }
