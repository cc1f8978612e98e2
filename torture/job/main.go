//go:build unix

// Command job is what lockrun guards under torture: it does work that any overlap spoils, and tells on stdout what it sees,
// a line at a time, so that what it told before it was killed is known.
//
//	job DIR RUN WORK EXIT MODE
//
// DIR holds the files that jobs of one key and slot share, RUN is the number by which the harness knows this run, WORK is
// how long it takes, EXIT its exit code. MODE is plain; stubborn, which ignores the signals that ask for an end; or
// linger, which leaves a process in a session of its own that does as well.
//
// The lines, with instants in nanoseconds of the boot clock:
//
//	S instant pid token slot attempt   it has begun
//	O file run                         another run, this one, is alive beside it: the kernel says so, by a lock
//	o file instant                     the other is gone
//	R value run instant                the counter as it was found, by whom it was written, and when the look began
//	B instant                          still alive
//	W value instant                    the counter as it was left, and when
//	F accepted|refused                 what a receiver that compares tokens said to the write
//	E instant code                     about to exit
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockrun/lockrun/internal/boottime"
)

// beat is how often a job tells that it is alive, and so how precisely the end of a killed one is known.
const beat = 5 * time.Millisecond

// lingers is how long a descendant stays where nobody kills it: longer than any run may last.
const lingers = 10 * time.Minute

type job struct {
	dir, run   string
	work       time.Duration
	code       int
	name       string // of the key and slot, for files
	token      int64
	claims     []*claim
	raw, fence *counter
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "lingerer" {
		ignoreEnds()
		time.Sleep(lingers)
		return
	}
	if len(os.Args) != 6 {
		fail(fmt.Errorf("usage: job DIR RUN WORK EXIT MODE"))
	}
	work, err := time.ParseDuration(os.Args[3])
	check(err)
	code, err := strconv.Atoi(os.Args[4])
	check(err)
	j := &job{dir: os.Args[1], run: os.Args[2], work: work, code: code}
	if os.Args[5] == "stubborn" {
		ignoreEnds()
	}
	j.begin()
	if os.Args[5] == "linger" {
		j.leaveDescendant()
	}
	j.doWork()
	say("E", now(), j.code)
	os.Exit(j.code)
}

func ignoreEnds() { signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT) }

// begin says who this is, and claims what only one may have.
func (j *job) begin() {
	slot := os.Getenv("LOCKRUN_SLOT")
	j.token, _ = strconv.ParseInt(os.Getenv("LOCKRUN_TOKEN"), 10, 64)
	say("S", now(), os.Getpid(), j.token, slot, os.Getenv("LOCKRUN_ATTEMPT"))
	j.name = os.Getenv("LOCKRUN_KEY") + "." + slot
	j.claims = append(j.claims, j.claim(j.name))
	if id := os.Getenv("LOCKRUN_RUN_ID"); id != "" {
		j.claims = append(j.claims, j.claim(os.Getenv("LOCKRUN_KEY")+".run."+id))
	}
}

// doWork is a read, a wait and a write, which lose an update where another does the same meanwhile. It is done twice: to a
// counter that takes any write, and to one that compares tokens.
func (j *job) doWork() {
	j.raw, j.fence = openCounter(j.path("raw")), openCounter(j.path("fenced"))
	before := now()
	value, run, _ := j.raw.read()
	say("R", value, run, before)
	fenced, refused := j.fence.present(j.token)
	for end := now() + j.work; now() < end; {
		time.Sleep(min(beat, end-now()))
		j.look()
	}
	j.raw.write(value+1, j.run, 0)
	say("W", value+1, now())
	if !refused {
		refused = !j.fence.store(fenced+1, j.run, j.token)
	}
	say("F", map[bool]string{false: "accepted", true: "refused"}[refused])
}

func (j *job) path(kind string) string { return filepath.Join(j.dir, j.name+"."+kind) }

// look tells that we are alive, and whether who was there before us has gone.
func (j *job) look() {
	for _, c := range j.claims {
		if !c.mine && c.take(j.run) {
			say("o", filepath.Base(c.f.Name()), now())
		}
	}
	say("B", now())
}

// leaveDescendant starts a process that shares the claims, and so keeps them for as long as it lives.
func (j *job) leaveDescendant() {
	cmd := exec.Command("/proc/self/exe", "lingerer")
	for _, c := range j.claims {
		cmd.ExtraFiles = append(cmd.ExtraFiles, c.f)
	}
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	check(cmd.Start())
}

// claim is a file that the kernel lets one job at a time have, together with its descendants. It is free exactly when all
// of them are gone, however they ended, and no clock is asked.
type claim struct {
	f    *os.File
	mine bool
}

func (j *job) claim(name string) *claim {
	f, err := os.OpenFile(filepath.Join(j.dir, name+".claim"), os.O_CREATE|os.O_RDWR, 0o644)
	check(err)
	c := &claim{f: f}
	if !c.take(j.run) {
		var other [20]byte
		n, _ := f.ReadAt(other[:], 0)
		say("O", filepath.Base(f.Name()), strings.TrimSpace(string(other[:n])))
	}
	return c
}

func (c *claim) take(run string) bool {
	if syscall.Flock(int(c.f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return false
	}
	c.mine = true
	_, err := fmt.Fprintf(&at{c.f, 0}, "%-20s", run)
	check(err)
	return true
}

func now() time.Duration { return boottime.Now() }

// say writes one line by one write(2), so that lines of a tree are not mixed.
func say(kind string, args ...any) {
	line := kind
	for _, a := range args {
		if d, ok := a.(time.Duration); ok {
			a = int64(d)
		}
		line += fmt.Sprintf(" %v", a)
	}
	_, _ = os.Stdout.WriteString(line + "\n")
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

// broken is the exit code of a job that could not do its work; the harness takes it for a failure of its own.
const broken = 99

func fail(err error) {
	fmt.Fprintln(os.Stderr, "job:", err)
	os.Exit(broken)
}
