package testscripts

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// slack is what a bound that the contract gives in figures is exceeded by at most before it counts as missed: a machine
// with a hundred processes waiting for two processors was seen to take more than a second to start one. Whatever waits for
// a wrong timeout here waits longer than that.
const slack = 3 * time.Second

// job runs under the lease until its file NAME.go appears, and then ends with CODE. Each round touches NAME.tick, whose
// time is the job's last sign of life: the kernel writes it, so nothing is measured late.
const job = `name=$1 code=$2
test "$3" != stubborn || trap "" TERM
: >"$name.first"
echo $$ >"$name.part" && mv "$name.part" "$name.pid"
while ! test -e "$name.go"; do : >"$name.tick"; sleep 0.03; done
exit $code`

// host is where lockrun runs in front of one server: a folder and an environment. All that lockrun says on it is searched
// for the server's password. Its methods end the test when they cannot do what they say, and are for one goroutine.
type host struct {
	t       *testing.T
	dir     string
	backend string
	secret  string
	env     []string // what lockrun is told beside the backend
	runs    *atomic.Int64
}

func newHost(t *testing.T, backend, secret string) *host {
	return &host{t: t, dir: t.TempDir(), backend: backend, secret: secret, runs: new(atomic.Int64)}
}

// at is the same host with another backend.
func (h *host) at(backend string) *host {
	other := *h
	other.backend = backend
	return &other
}

// with is the same host with these variables set as well.
func (h *host) with(env ...string) *host {
	other := *h
	other.env = append(slices.Clone(h.env), env...)
	return &other
}

// sub runs a subtest on this host.
func (h *host) sub(name string, test func(h *host)) {
	h.t.Run(name, func(t *testing.T) {
		inner := *h
		inner.t = t
		test(&inner)
	})
}

func (h *host) file(name string) string { return filepath.Join(h.dir, name) }

func (h *host) touch(name string) {
	h.t.Helper()
	write(h.t, h.file(name), nil, 0o644)
}

// await waits for what has to happen.
func (h *host) await(what string, cond func() bool) {
	h.t.Helper()
	for start := time.Now(); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > patience {
			h.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// run is one invocation of lockrun.
type run struct {
	h        *host
	name     string
	cmd      *exec.Cmd
	out, err *os.File
	started  time.Time
	done     chan struct{} // closed when it has ended
	failure  error
	ended    time.Time
}

// start starts lockrun in a session of its own, as cron does.
func (h *host) start(args ...string) *run {
	h.t.Helper()
	r := &run{h: h, name: "lockrun " + strings.Join(args[:min(len(args), 3)], " "), done: make(chan struct{})}
	n := strconv.FormatInt(h.runs.Add(1), 10)
	r.cmd = exec.Command(filepath.Join(binDir, "lockrun"), args...)
	r.cmd.Dir, r.cmd.SysProcAttr = h.dir, &syscall.SysProcAttr{Setsid: true}
	r.cmd.Env = []string{"PATH=" + binDir + ":" + os.Getenv("PATH"), "HOME=" + h.dir, "LANG=C.UTF-8",
		"GORACE=atexit_sleep_ms=0", "LOCKRUN_BACKEND=" + h.backend}
	r.cmd.Env = append(r.cmd.Env, h.env...)
	r.out, r.err = h.stream(n+".out"), h.stream(n+".err")
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.err
	r.started = time.Now()
	if err := r.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	go func() { r.failure, r.ended = r.cmd.Wait(), time.Now(); close(r.done) }()
	h.t.Cleanup(func() { _ = r.cmd.Process.Kill(); <-r.done })
	return r
}

func (h *host) stream(name string) *os.File {
	h.t.Helper()
	f, err := os.Create(h.file(name))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { f.Close() })
	return f
}

// lockrun runs it to its end, which has to be this code.
func (h *host) lockrun(code int, args ...string) *run {
	h.t.Helper()
	return h.start(args...).wants(code)
}

// wants waits for the end, and checks the code and that nothing told the password.
func (r *run) wants(code int) *run {
	r.h.t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.h.t.Fatalf("%s is still running after %v: %s", r.name, patience, r.stderr())
	}
	if got := r.code(); got != code {
		r.h.t.Fatalf("%s ended with %d, want %d: %s", r.name, got, code, r.stderr())
	}
	if r.h.secret != "" && strings.Contains(r.stdout()+r.stderr(), r.h.secret) {
		r.h.t.Errorf("%s tells the password: %s%s", r.name, r.stdout(), r.stderr())
	}
	return r
}

// code is the exit code as a shell tells it. The run has ended.
func (r *run) code() int {
	ws := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// over tells whether the run has ended.
func (r *run) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (r *run) stdout() string { return r.h.read(r.out.Name()) }
func (r *run) stderr() string { return r.h.read(r.err.Name()) }

func (h *host) read(name string) string {
	h.t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text)
}

// silent wants that nothing at all was printed.
func (r *run) silent() *run {
	r.h.t.Helper()
	if out, err := r.stdout(), r.stderr(); out != "" || err != "" {
		r.h.t.Errorf("%s printed %q and said %q", r.name, out, err)
	}
	return r
}

// says wants one line on stderr that begins so and contains the rest, and nothing on stdout.
func (r *run) says(begin string, parts ...string) *run {
	r.h.t.Helper()
	line := r.stderr()
	if r.stdout() != "" || strings.Count(line, "\n") != 1 || !strings.HasPrefix(line, begin) {
		r.h.t.Errorf("%s printed %q and said %q, want one line %q", r.name, r.stdout(), line, begin)
	}
	for _, p := range parts {
		if !strings.Contains(line, p) {
			r.h.t.Errorf("%s does not say %q: %s", r.name, p, line)
		}
	}
	return r
}

// within wants that the run ended so soon after a moment.
func (r *run) within(bound time.Duration, since time.Time) *run {
	r.h.t.Helper()
	if took := r.ended.Sub(since); took > bound+slack {
		r.h.t.Errorf("%s took %v, want at most %v: %s", r.name, took, bound, r.stderr())
	}
	return r
}

func (r *run) signal(s syscall.Signal) {
	r.h.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.h.t.Fatal(err)
	}
}

// asking waits until the run has opened a connection, and so is in the middle of asking a server that does not answer.
func (r *run) asking() *run {
	r.h.t.Helper()
	folder := fmt.Sprintf("/proc/%d/fd/", r.cmd.Process.Pid)
	r.h.await(r.name+" connects", func() bool {
		if r.over() {
			r.h.t.Fatalf("%s ended with %d before it asked: %s", r.name, r.code(), r.stderr())
		}
		open, _ := os.ReadDir(folder)
		for _, e := range open {
			if to, _ := os.Readlink(folder + e.Name()); strings.HasPrefix(to, "socket:") {
				return true
			}
		}
		return false
	})
	return r
}

// hold starts a job that keeps the key until release is called, and returns when the job runs.
func (h *host) hold(key string, code int, options ...string) *holding {
	h.t.Helper()
	mode := ""
	if len(options) > 0 && options[0] == "stubborn" {
		mode, options = options[0], options[1:]
	}
	args := append([]string{"--key", key}, options...)
	c := &holding{run: h.start(append(args, "--", "sh", "-c", job, "job", key, strconv.Itoa(code), mode)...), key: key}
	c.awaitJob()
	return c
}

// holding is a run whose job holds a key.
type holding struct {
	*run
	key string
	pid int
}

// awaitJob waits for a job that is started later, by a run that waits.
func (c *holding) awaitJob() {
	h := c.h
	h.t.Helper()
	h.await("the job of "+c.key+" runs", func() bool {
		if c.over() {
			h.t.Fatalf("%s ended with %d instead of running its job: %s", c.name, c.code(), c.stderr())
		}
		text, err := os.ReadFile(h.file(c.key + ".pid"))
		if err != nil {
			return false
		}
		c.pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
}

// release lets the job end.
func (c *holding) release() *holding {
	c.h.t.Helper()
	c.h.touch(c.key + ".go")
	return c
}

// awaitReaped waits until lockrun has noticed that the job has ended.
func (c *holding) awaitReaped() {
	c.h.t.Helper()
	c.h.await("the job of "+c.key+" is reaped", func() bool { return syscall.Kill(c.pid, 0) == syscall.ESRCH })
}

// first and last are the job's signs of life.
func (c *holding) first() time.Time { return c.h.touched(c.key + ".first") }
func (c *holding) last() time.Time  { return c.h.touched(c.key + ".tick") }

func (h *host) touched(name string) time.Time {
	h.t.Helper()
	info, err := os.Stat(h.file(name))
	if err != nil {
		h.t.Fatal(err)
	}
	return info.ModTime()
}

// status is what lockrun status tells of a key, or nil where it cannot.
func (h *host) status(key string) map[string]any {
	h.t.Helper()
	r := h.start("status", "--json", key)
	<-r.done
	fields := map[string]any{}
	if json.Unmarshal([]byte(r.stdout()), &fields) != nil {
		return nil
	}
	return fields
}

// awaitBeat waits until the key's lease has been renewed from now on.
func (c *holding) awaitBeat() {
	c.h.t.Helper()
	var from any
	c.h.await("the lease of "+c.key+" is renewed", func() bool {
		if c.over() {
			c.h.t.Fatalf("%s ended with %d: %s", c.name, c.code(), c.stderr())
		}
		now := c.h.status(c.key)["renewed_at"]
		if from == nil {
			from = now
		}
		return now != nil && now != from
	})
}
