package testscripts

import (
	"fmt"
	"strings"
	"syscall"
	"time"
)

// fleet is one kind of server as these tests see it.
type fleet struct {
	*host
	wrong  string           // its URL with a wrong password
	forget func(key string) // takes the lease's record away by hand, on all servers
	freeze func()           // those that keep leases stop answering, without ending
	thaw   func()           // they go on, and what they form is whole again
	kill   func()           // they are gone for good

	// revives says that a beat which was on its way when the key was forgotten is the record that is left of the lease.
	revives bool
}

// peace are the checks that leave the servers as they were.
func (f *fleet) peace() {
	f.sub("silence", (*host).checkSilence)
	f.sub("secrets", func(h *host) { h.checkSecrets(f.wrong) })
	f.sub("crowd", (*host).checkCrowd)
	f.sub("short runs", func(h *host) { h.checkShortRuns(2) })
	f.sub("waiter", (*host).checkWaiter)
	f.sub("run id", (*host).checkRunID)
	f.sub("unlocked", (*host).checkUnlocked)
	f.sub("forgotten", func(h *host) { h.checkForgotten(f.forget, f.revives) })
	f.sub("blip", func(h *host) { h.checkBlip(f.freeze, f.thaw) })
}

// war are the checks that freeze the servers for long, and kill them at last.
func (f *fleet) war() {
	f.sub("frozen for good", func(h *host) {
		defer f.thaw()
		h.checkDeadInTime("frozen", f.freeze)
	})
	f.sub("frozen", func(h *host) { h.checkFrozen(f.freeze, f.thaw) })
	f.sub("gone", func(h *host) { h.checkGone(f.kill) })
}

// LOG-01: cron sends no mail about success and skip.
func (h *host) checkSilence() {
	h.lockrun(0, "--key", "quiet", "--", "true").silent()
	c := h.hold("silence", 0)
	h.lockrun(75, "--key", "silence", "--", "echo", "started").silent()
	c.release().wants(0).silent()
}

// CFG-01: the child sees where the backend is, but not the password; nor does anybody see one that is wrong.
func (h *host) checkSecrets(wrong string) {
	r := h.lockrun(0, "--key", "secrets", "-v", "--", "sh", "-c", `printf %s "$LOCKRUN_BACKEND"`)
	scheme, _, _ := strings.Cut(h.backend, "://")
	if !strings.HasPrefix(r.stdout(), scheme+"://") {
		h.t.Errorf("the child's LOCKRUN_BACKEND is %q", r.stdout())
	}
	h.lockrun(0, "history", "--json", "secrets")
	h.lockrun(1, "status", "--json", "secrets")
	h.lockrun(0, "doctor")
	refused := *h.at(wrong)
	refused.secret = wrongPassword
	refused.refused("secrets")
}

const wrongPassword = "not-the-password"

// A waiter gets the lease after its release, with a higher token.
func (h *host) checkWaiter() {
	c := h.hold("waiter", 3)
	before, _ := h.status("waiter")["token"].(float64)
	w := h.start("--key", "waiter", "--wait", "1h", "--", "sh", "-c", `echo "$LOCKRUN_TOKEN"`)
	h.await("status tells of the waiter", func() bool {
		n, tells := h.status("waiter")["waiters"].(float64)
		return !tells || n == 1
	})
	if w.over() {
		h.t.Fatalf("the waiter ended with %d while the key was held: %s", w.code(), w.stderr())
	}
	c.release().wants(3)
	var after float64
	if _, err := fmt.Sscan(w.wants(0).stdout(), &after); err != nil || before < 1 || after <= before {
		h.t.Errorf("the waiter's token is %q after %.0f (%v)", w.stdout(), before, err)
	}
}

// A run id succeeds once.
func (h *host) checkRunID() {
	h.lockrun(4, "--key", "tick", "--run-id", "r1", "--", "sh", "-c", "exit 4")
	if r := h.lockrun(0, "--key", "tick", "--run-id", "r1", "--", "sh", "-c", "echo $LOCKRUN_ATTEMPT"); r.stdout() != "2\n" {
		h.t.Errorf("the second attempt is told to be %q", r.stdout())
	}
	h.lockrun(76, "--key", "tick", "--run-id", "r1", "--", "echo", "started").silent()
	h.lockrun(0, "--key", "tick", "--run-id", "r2", "--", "true").silent()
}

// An operator breaks the lease: the run is stopped and tells.
func (h *host) checkUnlocked() {
	// Beats that come quicker than a busy server answers would be between each look of unlock and its change.
	c := h.hold("unlocked", 0, "--ttl", "60s", "--heartbeat", "1s")
	h.lockrun(1, "unlock", "unlocked", "--token", "9007199254740991")
	if c.over() {
		h.t.Fatal("a wrong token broke the lease")
	}
	h.lockrun(0, "unlock", "unlocked", "--force")
	c.wants(79).says("lockrun: ", `"unlocked"`)
	if alive(c.pid) {
		h.t.Error("the job outlived lockrun")
	}
}

// LSE-05: the record is taken away by hand and a rival acquires. The first run is stopped, and harms the rival neither by
// a beat nor by its exit.
func (h *host) checkForgotten(forget func(key string), revives bool) {
	c := h.hold("forgotten", 0, "--ttl", "60s", "--heartbeat", "300ms")
	var rival *run
	h.await("a rival gets the lease", func() bool {
		forget("forgotten")
		rival = h.start("acquire", "--key", "forgotten", "--ttl", "10m")
		<-rival.done
		return !revives || rival.code() != 75
	})
	token := strings.TrimSpace(rival.wants(0).stdout())
	c.wants(79).says("lockrun: ", `"forgotten"`)
	if alive(c.pid) {
		h.t.Error("the job outlived lockrun")
	}
	h.lockrun(75, "--key", "forgotten", "--", "echo", "started").silent()
	h.lockrun(0, "release", "--key", "forgotten", "--token", token)
}

// LOG-01: a server that does not answer for a moment is not worth a word.
func (h *host) checkBlip(freeze, thaw func()) {
	c := h.hold("blip", 0, "--ttl", "20s", "--heartbeat", "100ms")
	freeze()
	time.Sleep(300 * time.Millisecond) // the blip
	thaw()
	c.awaitBeat()
	c.release().wants(0).silent()
}

// LSE-02: the server stops serving for good, and the job does not listen to TERM: it is dead before the lease that the
// last good request was given could have run out.
func (h *host) checkDeadInTime(key string, fault func()) {
	// What is kept free between KILL and the end of the lease, for a busy machine, grows with the lease.
	const ttl, beat = 8 * time.Second, time.Second
	c := h.hold(key, 0, "stubborn", "--ttl", ttl.String(), "--heartbeat", beat.String(), "--grace", "500ms", "--backend-timeout", "1s")
	fault()
	// Without a beat before the fault, the acquire was the last good request, and the job started after it.
	granted := c.first()
	if now := time.Now(); now.Sub(c.started) > beat {
		granted = now
	}
	// The release is tried too, and may have a line of its own.
	if said := c.wants(79).stderr(); !strings.HasPrefix(said, `lockrun: "`+key+`": the lease was lost and COMMAND was stopped: `) {
		h.t.Errorf("it said %s", said)
	}
	if alive(c.pid) {
		h.t.Error("the job outlived lockrun")
	}
	if lived := c.last().Sub(granted); lived >= ttl {
		h.t.Errorf("the job lived %v into a lease of %v", lived, ttl)
	}
	if lived := c.last().Sub(c.first()); lived < ttl/2 {
		h.t.Errorf("the job was killed after %v, with most of a lease of %v left", lived, ttl)
	}
}

// EXC-01, CON-01: a server that takes connections and never answers changes no code, and holds nobody up.
func (h *host) checkFrozen(freeze, thaw func()) {
	short := h.hold("release", 6, "--backend-timeout", "1s")
	long := h.hold("hurried", 7, "--backend-timeout", "5m")
	freeze()
	defer thaw()
	h.warned(short, 6)
	h.interrupted()
	h.refused("frozen")
	long.release().awaitReaped()
	asked := time.Now()
	// A TERM that comes before the release has begun is still meant for the job, so that one alone may be too early.
	h.await("TERM ends the release", func() bool {
		_ = long.cmd.Process.Signal(syscall.SIGTERM)
		return long.over()
	})
	long.wants(7).says("lockrun: warning: the release was not answered").within(time.Second, asked)
}

// warned wants that a release without an answer leaves the job's code, within the backend timeout of a second.
func (h *host) warned(c *holding, code int) {
	h.t.Helper()
	asked := time.Now()
	c.release().wants(code).says("lockrun: warning: the release was not answered").within(2*time.Second, asked)
}

// refused wants that a start is refused, for the reason that nobody knows, within the backend timeout and a second. It can
// be had again, and so is measured more closely than the rest: the best of three counts.
func (h *host) refused(key string, parts ...string) {
	h.t.Helper()
	var took time.Duration
	for range 3 {
		r := h.lockrun(69, "--key", key, "--backend-timeout", "1s", "--", "echo", "started").says("lockrun: ", parts...)
		if took = r.ended.Sub(r.started); took <= 2500*time.Millisecond {
			return
		}
	}
	h.t.Errorf("with a backend timeout of 1s, a start without an answer takes %v", took)
}

// interrupted wants that TERM ends an unanswered acquire at once.
func (h *host) interrupted() {
	h.t.Helper()
	r := h.start("--key", "interrupted", "--backend-timeout", "5m", "--", "echo", "started").asking()
	asked := time.Now()
	r.signal(syscall.SIGTERM)
	r.wants(143).within(time.Second, asked)
	if r.stdout() != "" {
		h.t.Error("the job was started")
	}
}

// EXC-01, CON-03: the same for a server that is not there any more.
func (h *host) checkGone(kill func()) {
	c := h.hold("orphaned", 5, "--backend-timeout", "1s")
	kill()
	h.warned(c, 5)
	h.refused("gone")
}

// survives wants that a run keeps its lease through a fault, and ends well without a word.
func (c *holding) survives(fault func()) {
	c.h.t.Helper()
	fault()
	c.awaitBeat()
	c.release().wants(0).silent()
}
