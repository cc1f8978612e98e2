package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/supervise"
)

// IO is what an invocation was given by its parent.
type IO struct {
	In, Out, Err *os.File
	Env          []string
}

// opener opens the backend that a configuration names.
type opener func(ctx context.Context, cfg *Config) (backends.Backend, error)

// runner is one guarded run: what it was asked for, and what it has got so far.
type runner struct {
	cfg     *Config
	io      IO
	ui      *ui
	open    opener
	signals *supervise.Signals

	b       backends.Backend // nil while, or if, the backend cannot be opened
	req     backends.Request
	lease   backends.Lease // nil without a lease: refused, or --on-unavailable run
	keep    *keeper
	waited  time.Duration
	sentAt  time.Duration // when the lease was asked for that was granted, on the boot clock
	started time.Duration // when COMMAND was started, on the same
	record  backends.Record

	unanswered error // why COMMAND runs without a lease; nil where it does not

	fellBack error // why the lease is the fallback's; nil where it is not

	obs          *observers                      // nil: nobody watches
	own          int                             // what lockrun itself answers a refused, or not started, run with, before --exit-code; 0: nothing yet
	asked        *time.Duration                  // how long the acquire took that was answered; nil: none was
	unreleased   bool                            // the release was not answered, or found the lease gone
	whileRunning atomic.Pointer[backends.Record] // the record as it was when COMMAND was started; nil before
}

// run guards one command: take the lease, keep it, start the command, supervise it, stop it in time, give the lease back
// and answer with the exit code. Whatever observes the run can change neither the code nor the moment of a kill.
func run(cfg *Config, std IO, u *ui, open opener) int {
	r, err := newRunner(cfg, std, u, open)
	if err != nil {
		u.err("%v", err)
		return cfg.exit(codeInternal)
	}
	r.tellUnprotected()
	code, message := r.run()
	r.report(code, message)
	r.conclude(code)
	return code
}

// tellUnprotected says at the start, to whoever is looking, what this system or build does not protect.
func (r *runner) tellUnprotected() {
	if !r.ui.watched() {
		return
	}
	var missing []string
	for _, gap := range supervise.Unprotected() {
		missing = append(missing, gap.What)
	}
	if missing != nil {
		r.ui.notice("not protected here: %s", strings.Join(missing, "; "))
	}
}

// newRunner catches signals from now on, so that none is missed while the lease is asked for.
func newRunner(cfg *Config, std IO, u *ui, open opener) (*runner, error) {
	time.AfterFunc(quick, settleIn) // most runs of a short command are over by then
	signals, err := supervise.Listen()
	r := &runner{cfg: cfg, io: std, ui: u, open: open, signals: signals, req: newRequest(cfg)}
	r.obs = newObservers(cfg, u, r.hookEnv)
	return r, err
}

// settleIn prepares for a run that takes its time. Spread comes last, because it gives back the memory of code that is not
// needed any more.
func settleIn() {
	supervise.HoardThreads()
	supervise.Spread()
}

// run is the story of a run; message is what a person is told about the code, "" for nothing.
func (r *runner) run() (code int, message string) {
	path, err := supervise.Find(r.cfg.Command[0], r.io.Env)
	if err != nil {
		r.own = startCode(err)
		return r.notFound(err)
	}
	began := bootNow()
	g, sig, err := r.acquire()
	if err != nil && sig == 0 && r.cfg.Fallback != nil && codeOf(err) == codeUnavailable {
		g, sig, err = r.fallBack(err)
		if err == nil && sig == 0 {
			r.observe(eventFallback, r.withFallback(""))
		}
	}
	defer r.close()
	if sig == 0 && err == nil {
		err = r.misfit(g)
	}
	switch {
	case sig != 0:
		return r.interrupted(sig)
	case err != nil && codeOf(err) != codeUnavailable:
		r.own = codeOf(err)
		return r.refused(err)
	case err != nil:
		if code, message, stop := r.unavailable(err); stop {
			r.noteElsewhere(r.lastMoment(began))
			return code, message
		}
		r.unanswered = err
	}
	r.tellTaken(g)
	return r.guard(path, g)
}

// guard runs the command under the lease that was granted, or under none where the user asked for that.
func (r *runner) guard(path string, g granted) (code int, message string) {
	var deadline supervise.Deadline
	stopKeeping := r.startKeeping(g, &deadline)
	defer stopKeeping()
	if r.late() {
		return r.tooLate()
	}
	r.started = bootNow()
	tree, err := supervise.Start(r.job(path), r.signals, &deadline)
	if err != nil {
		r.own = startCode(err)
		return r.cannotStart(err)
	}
	defer tree.Close()
	if r.keep != nil && r.cfg.OnLost == "kill" {
		// Another may run by now. The stop is only posted; the supervisor acts on it alone.
		r.keep.whenLost(func() { tree.Stop(supervise.CauseLost) })
	}
	r.observeStart() // after the way to the kill is laid: whoever watches comes second
	return r.finish(tree.Wait())
}

// misfit gives a lease back that is too short for the grace that was asked for, and says so by an error.
func (r *runner) misfit(g granted) error {
	if g.lease == nil {
		return nil
	}
	err := misfit(g.lease.Grant(), r.cfg, r.b.Name())
	if err == nil {
		return nil
	}
	r.lease = nil
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.BackendTimeout)
	defer cancel()
	if kept := r.b.Abandon(ctx, r.req); kept != nil {
		r.ui.warn("the lease was not given back, so the key stays taken until it runs out: %v", kept)
	}
	return err
}

// startKeeping starts the heartbeat and tells the deadline to whoever will supervise the job.
func (r *runner) startKeeping(g granted, deadline *supervise.Deadline) (stop func()) {
	if g.lease == nil {
		deadline.Never()
		return func() {}
	}
	r.lease, r.sentAt = g.lease, g.sentAt
	r.keep = newKeeper(g.lease, newTiming(g.lease.Grant(), r.cfg), g.sentAt, bootNow)
	r.keep.onState = r.tellState
	if r.cfg.OnLost == "continue" {
		deadline.Never()
	} else {
		r.keep.onDeadline = deadline.Set
		term, kill, _ := r.keep.deadlines()
		deadline.Set(term, kill)
	}
	return r.keep.start()
}

// job is the command as the supervisor wants it.
func (r *runner) job(path string) supervise.Job {
	j := supervise.Job{
		Path: path, Argv: r.cfg.Command, Owner: r.req.Owner,
		Env:     childEnv(r.cfg, r.io.Env, r.childVars()),
		Grace:   r.cfg.Grace,
		Timeout: r.cfg.Timeout,
		Warn:    func(s string) { r.ui.warn("%s", s) },
	}
	j.Descendants = map[string]supervise.Policy{
		"leave": supervise.Leave, "wait": supervise.Wait, "kill": supervise.Kill,
	}[r.cfg.Descendants]
	if l, ok := r.lease.(backends.Liveness); ok {
		j.Keep = l.Files()
	}
	if r.keep != nil {
		j.Grace = r.keep.t.Grace
	}
	return j
}

// finish settles what became of a command that has ended, and gives the lease back.
func (r *runner) finish(res supervise.Result) (code int, message string) {
	end := backends.End{Duration: bootNow() - r.started}
	if res.Ended {
		end.ExitCode = &res.Code
		r.ui.info("COMMAND ended with %d after %s", res.Code, shortDuration(end.Duration))
	}
	state := stateHeld
	if r.keep != nil {
		state = r.keep.stop()
	}
	code, end.Outcome, end.Reason = r.verdict(res, state)
	if state == stateLost && isInternal(r.keep.why()) {
		return r.broken(end, code)
	}
	var err error
	if r.lease != nil && res.Gone {
		if err = r.release(end); errors.Is(err, backends.ErrLost) && end.Outcome != backends.Lost {
			code, end.Outcome, end.Reason = r.foundGone(res)
		}
	}
	if end.Reason != "" {
		r.ui.err("%s", end.Reason)
	}
	r.settle(end, err)
	r.tellBackend()
	if r.unanswered != nil {
		r.record.Reason = strings.TrimPrefix(r.record.Reason+"; without a lease, because: "+r.unanswered.Error(), "; ")
		r.noteElsewhere(bootNow() + r.cfg.BackendTimeout)
	}
	return code, end.Reason
}

// broken answers for a run whose heartbeat has met a bug. The store is not asked anything more: what the bug has left locked
// might never be given back, and the lease runs out by itself.
func (r *runner) broken(end backends.End, code int) (int, string) {
	if r.cfg.OnLost == "kill" {
		code = r.cfg.exit(codeInternal)
	}
	r.ui.err("%s", end.Reason)
	r.settle(end, nil)
	r.unreleased, r.record.Backend, r.b = true, r.b.Name(), nil
	return code, end.Reason
}

// foundGone is the verdict on a run whose lease turned out to be gone only when it was to be given back: another may
// have run meanwhile, so its success does not count.
func (r *runner) foundGone(res supervise.Result) (int, backends.Outcome, string) {
	code := res.Code
	if r.cfg.OnLost == "kill" {
		code = r.cfg.exit(codeLost)
	}
	return code, backends.Lost, r.about("the lease was found gone at its release (" + r.takenBy() + "); another run may have overlapped")
}

// verdict is the exit code, the outcome and what to tell about a command that has ended.
func (r *runner) verdict(res supervise.Result, state leaseState) (int, backends.Outcome, string) {
	stopped := res.Cause == supervise.CauseDeadline || res.Cause == supervise.CauseLost
	switch {
	case !res.Gone:
		return r.cfg.exit(codeLost), backends.Lost,
			r.about("COMMAND could not be shown to be dead, so its lease is left to run out; look for its processes in state D")
	case state == stateLost && r.cfg.OnLost == "continue":
		return res.Code, backends.Lost, r.about("the lease was lost, and COMMAND went on as --on-lost continue asks: " + r.whyLost())
	case stopped || state == stateLost:
		return r.cfg.exit(codeLost), backends.Lost,
			r.about("the lease was lost and COMMAND was stopped: " + r.whyLost())
	case res.Cause == supervise.CauseTimeout:
		return r.cfg.exit(codeTimeout), backends.TimedOut,
			r.about("COMMAND was stopped after --timeout " + r.cfg.Timeout.String())
	case res.Code == 0:
		return 0, backends.Succeeded, ""
	default:
		return res.Code, backends.Failed, ""
	}
}

// about adds to what happened for which key, and on which backend.
func (r *runner) about(what string) string {
	s := strconv.Quote(r.req.Key) + ": " + what
	if r.b != nil {
		s += " (" + r.b.Name() + ")"
	}
	return s
}

// release gives the lease back, again while the answer is not known. A lost lease is asked about too: it may still be
// ours, and then the next run need not wait for its end.
func (r *runner) release(end backends.End) error {
	end.Reason = r.withFallback(end.Reason)
	bound := r.cfg.BackendTimeout
	if end.Outcome == backends.Lost {
		bound = min(bound, 2*time.Second)
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	defer r.hurry(cancel)()
	for back := (backoff{first: 20 * time.Millisecond, most: 500 * time.Millisecond}); ; {
		err := r.lease.Release(ctx, end)
		if err == nil || errors.Is(err, backends.ErrLost) || backends.IsPermanent(err) || !backends.Sleep(ctx, back.next()) {
			return err
		}
	}
}

// hurry shortens a release to a second once TERM or INT arrives. Nobody looks for them before a release has shown itself
// to be slow, because listening costs more than a release.
func (r *runner) hurry(cancel func()) (stop func()) {
	done := make(chan struct{})
	listen := func() {
		for {
			select {
			case <-done:
				return
			case s := <-r.signals.C():
				if ends(s) {
					time.AfterFunc(time.Second, cancel)
				}
			}
		}
	}
	slow := time.AfterFunc(quick, listen)
	return func() { slow.Stop(); close(done) }
}

// settle writes down how the run ended where the release did not do it.
func (r *runner) settle(end backends.End, err error) {
	rec := &r.record
	rec.Outcome, rec.Reason, rec.ExitCode, rec.Duration = end.Outcome, r.withFallback(end.Reason), end.ExitCode, &end.Duration
	r.unreleased = err != nil
	switch {
	case err == nil:
	case errors.Is(err, backends.ErrLost):
		r.note(r.recordOfLease())
	case end.Outcome == backends.Lost:
		r.ui.info("the lost lease could not be given back either: %v", err) // one line says enough
	default:
		r.ui.warn("the release was not answered, so the key stays taken until its lease runs out or the store notices that this process has ended: %v (key %q)", err, r.req.Key)
	}
}

// note writes a run record that no release tells. Failing to do so changes nothing.
func (r *runner) note(rec backends.Record) {
	if r.b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(r.cfg.BackendTimeout, time.Second))
	defer cancel()
	if err := r.b.Record(ctx, rec); err != nil {
		r.ui.info("the run record was not written: %v", err)
	}
}

// close closes the backend. It gives nothing back.
func (r *runner) close() {
	if r.b != nil {
		_ = r.b.Close()
	}
}

// ends tells whether a signal that reaches lockrun without a running command ends it.
func ends(s os.Signal) bool {
	switch s {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}
