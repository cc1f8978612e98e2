package main

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/supervise"
)

// interruptBound is how long an acquire under way is awaited once lockrun is told to end.
const interruptBound = 300 * time.Millisecond

// answer is what came of asking for the lease.
type answer struct {
	g      granted
	b      backends.Backend // nil where it could not be opened
	runID  string
	ttl    time.Duration // what --ttl auto came to; 0 without
	waited time.Duration
	took   *time.Duration // the last exchange that was answered; nil: none was
	err    error
}

// learn takes over what the part of acquire that talks to the backend has found out.
func (r *runner) learn(a answer) {
	r.b, r.req.RunID, r.waited, r.asked = a.b, a.runID, a.waited, a.took
	if a.ttl != 0 {
		r.cfg = r.cfg.withTTL(a.ttl)
		r.req.TTL = a.ttl
	}
}

// acquire opens the backend, names the run and takes the lease, while signals can end it at any moment. sig is the
// signal that did; then nothing is held.
func (r *runner) acquire() (granted, syscall.Signal, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	patience, impatient := context.WithCancel(ctx)
	defer impatient()
	answered := make(chan answer, 1)
	go func() { answered <- r.openAndAcquire(ctx, patience) }()
	select {
	case a := <-answered:
		return r.took(a, r.signals.Pending())
	case <-time.After(quick):
	}
	for {
		select {
		case a := <-answered:
			return r.took(a, 0)
		case s := <-r.signals.C():
			if !ends(s) {
				continue // without a command there is nobody to pass it on to
			}
			impatient()
			select {
			case a := <-answered:
				r.took(a, s.(syscall.Signal))
			case <-time.After(interruptBound): // the process ends now, and the exchange under way with it
			}
			return granted{}, s.(syscall.Signal), nil
		}
	}
}

// quick is how soon most stores answer. Listening for signals while one is asked costs more than the answer does, so it
// begins after that; those that come before are kept.
const quick = 20 * time.Millisecond

// took takes over an answer, and gives the lease back where sig ended the run meanwhile.
func (r *runner) took(a answer, sig syscall.Signal) (granted, syscall.Signal, error) {
	r.learn(a)
	if !ends(sig) {
		return a.g, 0, a.err
	}
	r.giveBack(a.g)
	return granted{}, sig, nil
}

// openAndAcquire is the part of acquire that talks to the backend. It may still run when a signal has ended the wait,
// and therefore shares nothing with it but its answer.
func (r *runner) openAndAcquire(ctx, patience context.Context) (a answer) {
	req := r.req
	defer caught(func(bug error) { a = answer{runID: req.RunID, err: bug} })
	a.runID = req.RunID // as asked, also where nobody can be asked
	if a.b, a.err = r.opened(ctx); a.err != nil {
		return a
	}
	if req.RunID, a.err = r.runID(ctx, a.b); a.err != nil {
		return a
	}
	a.runID = req.RunID
	if r.cfg.AutoTTL {
		a.ttl = r.autoTTL(ctx, a.b)
		req.TTL = a.ttl
	}
	q := &acquirer{b: a.b, req: req, wait: r.patience(), timeout: r.cfg.BackendTimeout, now: bootNow,
		waiting: func(h *backends.HeldError) { r.ui.notice("waiting: %v", h) }}
	if r.cfg.OnUnavail != "run" && r.cfg.OnUnavail != "fallback" { // these say what else to do instead of asking on
		q.silent = func(err error) { r.ui.notice("waiting, though the store has stopped answering: %v", err) }
	}
	a.g, a.err = q.acquire(ctx, patience)
	a.waited, a.took = r.waited+q.req.Waited, q.took
	return a
}

// opened opens the backend within the backend timeout.
func (r *runner) opened(ctx context.Context) (backends.Backend, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.BackendTimeout)
	defer cancel()
	return r.open(ctx, r.cfg)
}

// runID names the run: as asked, or after the tick of --schedule that is nearest to the store's time.
func (r *runner) runID(ctx context.Context, b backends.Backend) (string, error) {
	if r.cfg.Schedule == "" || r.req.RunID != "" { // the fallback has to name it as the backend did
		return r.req.RunID, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.BackendTimeout)
	defer cancel()
	now, err := b.Now(ctx)
	if err != nil {
		return "", err
	}
	return tickNearest(r.cfg.Schedule, now)
}

// giveBack returns a lease that was granted while lockrun was being told to end.
func (r *runner) giveBack(g granted) {
	if g.lease == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), interruptBound)
	defer cancel()
	_ = r.b.Abandon(ctx, r.req) // where it fails the lease runs out by itself
}

// interrupted answers for a run that a signal ended before its command was started.
func (r *runner) interrupted(sig syscall.Signal) (int, string) {
	r.record.Outcome = backends.Skipped
	r.record.Reason = "ended by a signal while waiting for the lease"
	return 128 + int(sig), ""
}

// refused answers for a run that the backend positively refused, or that it cannot be asked for.
func (r *runner) refused(err error) (int, string) {
	code := codeOf(err)
	r.record.Outcome, r.record.Reason = backends.Skipped, err.Error()
	switch code {
	case codeSkipped:
		r.ui.notice("skipped: %v", err)
	case codeDone:
		r.record.Outcome = backends.Done
		r.ui.notice("done: %v", err)
	default:
		r.record.Outcome = backends.Unavailable
		if code == codeUsage { // nobody was asked
			r.record.Outcome = backends.NotStarted
		}
		r.ui.err("%v (key %q)", err, r.req.Key)
	}
	return r.cfg.exit(code), err.Error()
}

// unavailable answers for a backend whose answer is not known, as --on-unavailable says; stop is false where the command
// is to run without a lease.
func (r *runner) unavailable(err error) (code int, message string, stop bool) {
	r.record.Outcome, r.record.Reason = backends.Unavailable, err.Error()
	switch r.cfg.OnUnavail {
	case "run":
		r.ui.warn("%v; COMMAND runs WITHOUT A LEASE, as --on-unavailable run asks (key %q)", err, r.req.Key)
		r.observe(eventUnavailable, err.Error())
		return 0, "", false
	case "skip":
		r.ui.warn("%v; skipped, as --on-unavailable skip asks (key %q)", err, r.req.Key)
		return r.cfg.exit(codeSkipped), err.Error(), true
	default:
		r.ui.err("%v; COMMAND was not started (key %q)", err, r.req.Key)
		return r.cfg.exit(codeUnavailable), err.Error(), true
	}
}

// notFound answers for a command that cannot be executed, found before a lease was taken.
func (r *runner) notFound(err error) (int, string) {
	r.ui.err("%v", err)
	r.record.Outcome, r.record.Reason = backends.NotStarted, err.Error()
	ctx, cancel := context.WithTimeout(context.Background(), min(r.cfg.BackendTimeout, time.Second))
	defer cancel()
	if b, openErr := r.open(ctx, r.cfg); openErr == nil {
		r.b = b
		defer r.close()
		r.note(r.recordNow())
	}
	return r.cfg.exit(startCode(err)), err.Error()
}

// cannotStart answers for a command that the kernel refused to start; its lease is given back at once.
func (r *runner) cannotStart(err error) (int, string) {
	r.ui.err("%v", err)
	if r.keep != nil {
		r.keep.stop()
	}
	end := backends.End{Outcome: backends.NotStarted, Reason: err.Error()}
	r.record.Outcome, r.record.Reason = end.Outcome, end.Reason
	if r.lease != nil {
		r.settle(end, r.release(end))
		r.tellBackend()
	}
	return r.cfg.exit(startCode(err)), err.Error()
}

// late tells whether COMMAND would have to be stopped as soon as it is started: this process was frozen, or suspended,
// since it asked for the lease.
func (r *runner) late() bool {
	if r.keep == nil {
		return false
	}
	term, _, _ := r.keep.deadlines()
	return bootNow() >= term
}

// tooLate answers for a lease whose time was over before COMMAND was started.
func (r *runner) tooLate() (int, string) {
	r.keep.stop()
	end := backends.End{Outcome: backends.Lost, Reason: r.about("the lease ran out before COMMAND was started, so it was not")}
	r.ui.err("%s", end.Reason)
	r.settle(end, r.release(end))
	r.tellBackend()
	return r.cfg.exit(codeLost), end.Reason
}

// startCode is 126 or 127, as a shell would answer.
func startCode(err error) int {
	var s *supervise.StartError
	if errors.As(err, &s) {
		return s.Code
	}
	return codeCannotExecute
}
