package main

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/hooks"
	"github.com/lockrun/lockrun/internal/metrics"
	"github.com/lockrun/lockrun/internal/supervise"
)

// observers are what is told about a run: hooks, a ping, a metrics file, a Pushgateway. They work beside the run and are
// waited for only when everything else is done, so that none of them can delay a kill, a renewal or the release, nor
// change the exit code. Each is bounded by --hook-timeout, and so are all of them together at the end.
//
// A nil *observers is none at all, and costs nothing. Methods are safe for concurrent use and return at once, but for
// conclude.
type observers struct {
	cfg *Config
	ui  *ui
	env func(vars []string) []string // the environment of a hook, from what it is told

	ctx  context.Context // ends when all have to be done
	stop context.CancelCauseFunc
	all  sync.WaitGroup

	mu     sync.Mutex
	told   map[string]bool // events that are told once
	early  sync.WaitGroup  // hooks of events before the end
	pinged chan struct{}   // closed when the ping of the start is through; nil: there was none
	hurry  context.CancelFunc
}

// newObservers returns the observers that cfg asks for, nil for none.
func newObservers(cfg *Config, u *ui, env func(vars []string) []string) *observers {
	if !watches(cfg) {
		return nil
	}
	ctx, stop := context.WithCancelCause(context.Background())
	return &observers{cfg: cfg, ui: u, env: env, ctx: ctx, stop: stop, told: map[string]bool{}}
}

// watches tells whether anybody is to be told about runs.
func watches(cfg *Config) bool {
	return len(cfg.Hooks) > 0 || cfg.Ping != "" || cfg.MetricsFile != "" || cfg.Pushgateway != ""
}

// watch has do work beside the run. What it could not do is told, in one line that begins with what, unless the error says
// it all.
func (o *observers) watch(what string, do func(ctx context.Context) error) {
	o.all.Go(func() {
		ctx, cancel := context.WithTimeout(o.ctx, o.cfg.HookTimeout)
		defer cancel()
		defer caught(func(bug error) { o.ui.warn("%s: %v", cmp.Or(what, "metrics"), bug) })
		switch err := do(ctx); {
		case err != nil && what == "":
			o.ui.warn("%v", err)
		case err != nil:
			o.ui.warn("%s: %v", what, err)
		}
	})
}

// event runs the hooks for what has happened while the run goes on.
func (o *observers) event(event string, rec backends.Record) {
	if o == nil {
		return
	}
	for _, run := range o.hooksFor(event, rec) {
		o.early.Add(1)
		o.watch("the hook for "+event, func(ctx context.Context) error {
			defer o.early.Done()
			return run(ctx)
		})
	}
}

// lastEvent runs the hooks for the end of the run, after those of earlier events: what started may have made what succeeded
// looks for. One that does not end gets half of the time for itself.
func (o *observers) lastEvent(event string, rec backends.Record) {
	before := make(chan struct{})
	go func() { o.early.Wait(); close(before) }()
	for _, run := range o.hooksFor(event, rec) {
		o.watch("the hook for "+event, func(ctx context.Context) error {
			select {
			case <-before:
			case <-time.After(o.cfg.HookTimeout / 2):
			}
			return run(ctx)
		})
	}
}

// hooksFor are the hooks for an event, ready to be run. Each event is told once: a lost lease that --on-lost continue goes
// on after is told at once, and not again at the end.
func (o *observers) hooksFor(event string, rec backends.Record) (all []func(context.Context) error) {
	o.mu.Lock()
	again := o.told[event]
	o.told[event] = true
	o.mu.Unlock()
	if again || len(o.cfg.Hooks[event]) == 0 {
		return nil
	}
	body, env := recordJSON(rec), o.env(hookVars(event, rec))
	for _, command := range o.cfg.Hooks[event] {
		all = append(all, func(ctx context.Context) error {
			supervise.Spread() // else a process would inherit the confinement of the start to one processor
			h := &hooks.Hook{Program: ownProgram(), Command: command, Env: env, Stdin: body, Stderr: o.ui.file}
			return h.Run(ctx)
		})
	}
	return all
}

// happened tells whether the event was told.
func (o *observers) happened(event string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.told[event]
}

// hookVars are what a hook is told beside what COMMAND is.
func hookVars(event string, rec backends.Record) []string {
	return []string{"LOCKRUN_EVENT=" + event, "LOCKRUN_OUTCOME=" + string(rec.Outcome), "LOCKRUN_REASON=" + oneLine(rec.Reason)}
}

// recordJSON is the run record as hooks and pings get it.
func recordJSON(rec backends.Record) []byte {
	b, err := json.Marshal(rec)
	if err != nil {
		return []byte("{}") // a record can always be written
	}
	return b
}

// started tells that COMMAND was started.
func (o *observers) started(rec backends.Record) {
	if o == nil {
		return
	}
	o.event(eventStarted, rec)
	if o.cfg.Ping == "" {
		return
	}
	through := make(chan struct{})
	hurried, hurry := context.WithCancel(o.ctx)
	o.mu.Lock()
	o.pinged, o.hurry = through, hurry
	o.mu.Unlock()
	o.watch("the ping of the start", func(ctx context.Context) error {
		defer close(through)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(hurried, cancel)()
		return o.ping(ctx, "/start", rec)
	})
}

// ping tells Healthchecks' protocol.
func (o *observers) ping(ctx context.Context, suffix string, rec backends.Record) error {
	r := hooks.Request{Method: "POST", URL: hooks.Under(o.cfg.Ping, suffix), Type: "application/json", Body: recordJSON(rec)}
	return r.Send(ctx)
}

// ended has the end told to everybody. The end must not overtake the start, which would then look like the latest news; a
// start that leads nowhere gets half of the time.
func (o *observers) ended(rec backends.Record, run *metrics.Run, suffix string) {
	o.lastEvent(eventOf(rec.Outcome), rec)
	if o.cfg.MetricsFile != "" || o.cfg.Pushgateway != "" {
		o.watch("", func(ctx context.Context) error { return o.keep(ctx, rec, run) })
	}
	if o.cfg.Ping == "" {
		return
	}
	o.watch("the ping of the end", func(ctx context.Context) error {
		if o.pinged != nil {
			select {
			case <-o.pinged:
			case <-time.After(o.cfg.HookTimeout / 2):
				o.hurry()
				<-o.pinged
			}
		}
		return o.ping(ctx, suffix, rec)
	})
}

// wait waits for all observers, for --hook-timeout at most, and for a second once TERM or INT asks lockrun to end.
func (o *observers) wait(signals *supervise.Signals) {
	defer o.stop(nil)
	through := make(chan struct{})
	go func() { o.all.Wait(); close(through) }()
	over := time.AfterFunc(o.cfg.HookTimeout, func() { o.stop(nil) })
	defer over.Stop()
	select {
	case <-through:
		return
	case <-time.After(quick):
	}
	// What does not end when it is told to is left behind: a moment, and not more.
	tooLate := time.NewTimer(o.cfg.HookTimeout + obstinate)
	defer tooLate.Stop()
	for {
		select {
		case <-through:
			return
		case <-tooLate.C:
			o.ui.warn("some observer did not end in time and is left behind")
			return
		case s := <-signals.C():
			if ends(s) {
				time.AfterFunc(time.Second, func() { o.stop(hooks.ErrToldToEnd) })
				tooLate.Reset(time.Second + obstinate)
			}
		}
	}
}

// obstinate is how long observers may take to end once their time is over.
const obstinate = 3 * time.Second

// eventOf is the event that an outcome is. A COMMAND that cannot be executed has failed, for whoever wants to know.
func eventOf(o backends.Outcome) string {
	switch o {
	case backends.NotStarted:
		return eventFailed
	default:
		return string(o)
	}
}

// pingSuffix is how Healthchecks is told the end of a run.
// What counts is what happened, not what --exit-code calls it: code is only for a COMMAND whose own is not known.
func (r *runner) pingSuffix(rec *backends.Record, code int) string {
	switch rec.Outcome {
	case backends.Succeeded:
		return ""
	case backends.Skipped, backends.Done:
		return "/log"
	case backends.Lost:
		return "/fail"
	case backends.Unavailable:
		if r.own == 0 && r.cfg.OnUnavail == "skip" {
			return "/log"
		}
		return "/fail"
	case backends.TimedOut:
		code = codeTimeout
	case backends.NotStarted:
		code = r.own
	default:
		if rec.ExitCode != nil {
			code = *rec.ExitCode
		}
	}
	return "/" + strconv.Itoa(code)
}

// observe tells of an event of a run that goes on.
func (r *runner) observe(event, reason string) {
	if r.obs == nil {
		return
	}
	rec := r.recordNow()
	rec.Reason, rec.EndedAt = reason, time.Time{}
	r.obs.event(event, rec)
}

// observeStart tells that COMMAND was started. What has not ended has no outcome.
func (r *runner) observeStart() {
	if r.obs == nil {
		return
	}
	rec := r.recordNow()
	rec.Outcome, rec.Reason, rec.EndedAt = "", "", time.Time{}
	r.whileRunning.Store(&rec)
	r.obs.started(rec)
}

// observeLoss tells at once of a lost lease that COMMAND goes on without. It is called from the heartbeat.
func (r *runner) observeLoss(cause error) {
	if rec := r.whileRunning.Load(); rec != nil {
		lost := *rec
		lost.Outcome, lost.Reason = backends.Lost, cause.Error()
		r.obs.event(eventLost, lost)
	}
}

// conclude tells how the run ended, and waits for whoever is told, within bounds.
func (r *runner) conclude(code int) {
	if r.obs == nil {
		return
	}
	rec := r.recordNow()
	run := runOf(&rec)
	run.Acquire, run.Fallback = r.asked, r.obs.happened(eventFallback)
	if r.unreleased {
		run.ReleaseFailures = 1
	}
	if r.keep != nil {
		run.RenewFailures = r.keep.failures()
	}
	if r.lease != nil {
		run.Takeover = r.lease.Grant().Takeover
	}
	r.obs.ended(rec, run, r.pingSuffix(&rec, code))
	r.obs.wait(r.signals)
}

// hookEnv is the environment of hooks: that of COMMAND, and what the hook is told.
func (r *runner) hookEnv(vars []string) []string {
	return childEnv(r.cfg, r.io.Env, append(r.childVars(), vars...))
}
