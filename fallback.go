package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// openFallback opens the store whose lease is taken where the backend cannot answer. A record store that does answer goes on
// guarding run ids, so that hosts whose fallbacks know nothing of each other do not all run the same tick; otherwise the
// fallback guards them, as far as it reaches.
func openFallback(ctx context.Context, cfg *Config) (backends.Backend, error) {
	b, err := openStore(ctx, cfg, *cfg.Fallback)
	down := func(st Store) bool { return sameStore(st, *cfg.Record) }
	if err != nil || cfg.Record == nil || down(*cfg.Fallback) || slices.ContainsFunc(cfg.Backends, down) {
		return b, err
	}
	half, cancel := context.WithTimeout(ctx, cfg.BackendTimeout/2)
	defer cancel()
	store, err := openStore(half, cfg, *cfg.Record)
	if err == nil {
		if _, err = store.Now(half); err != nil {
			_ = store.Close()
		}
	}
	if err != nil {
		return b, nil // why the backend did not answer has been told, and that is this or worse
	}
	return decorate(cfg, b, store), nil
}

// fallBack takes the fallback's lease instead of that of a backend which could not answer because of why. The run goes on as
// under any lease, but without a token: it would rise with none that the backend hands out.
func (r *runner) fallBack(why error) (granted, syscall.Signal, error) {
	main := r.b
	r.close()
	r.fellBack = why
	backend := r.open
	r.open = openFallback
	g, sig, err := r.acquire()
	r.open = backend
	switch {
	case sig != 0:
	case err == nil && main != nil && main.Name() == r.b.Name():
		r.giveBack(g)
		return granted{}, 0, &backends.UsageError{What: "--fallback " + r.b.Name(), Why: "it is the backend itself", Remedy: "name another store"}
	case codeOf(err) == codeUnavailable:
		err = fmt.Errorf("%w; nor did the fallback answer: %w", why, err)
	case err == nil:
		r.lease = g.lease // what is told of the fallback tells of its lease
		r.ui.warn("%v; the lease of the fallback (%s) was taken instead, which gives no fencing token and keeps runs apart only where they have the same fallback",
			why, r.cfg.Fallback.shown())
	}
	return g, sig, err
}

// patience is how long the lease may be waited for; what was waited for another store's counts.
func (r *runner) patience() time.Duration {
	if r.cfg.Wait == WaitForever {
		return WaitForever
	}
	return max(r.cfg.Wait-r.waited, 0)
}

// withFallback adds to the reason of a run's end whose lease it had.
func (r *runner) withFallback(reason string) string {
	if r.fellBack == nil || r.b == nil {
		return reason
	}
	s := fmt.Sprintf("under the lease of the fallback %s, because: %v", r.b.Name(), r.fellBack)
	if reason != "" {
		s = reason + "; " + s
	}
	return s
}

// tellBackend lets the history of a backend that is there again know how a run ended that it did not answer. It may cost a
// second, as any record that no release tells, and changes nothing where it fails.
func (r *runner) tellBackend() {
	if r.fellBack == nil || backends.Historian(r.b) != r.b { // else the record is where it always is
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(r.cfg.BackendTimeout, time.Second))
	defer cancel()
	b, err := r.open(ctx, r.cfg)
	if err != nil {
		r.ui.info("the backend does not answer yet: %v", err)
		return
	}
	defer func() { _ = b.Close() }()
	rec := r.recordNow()
	rec.Backend, rec.Attempt, rec.Slot = "", 0, nil       // those are the fallback's
	rec.StartedAt, rec.EndedAt = time.Time{}, time.Time{} // by the backend's own clock
	if err := b.Record(ctx, rec); err != nil {
		r.ui.info("the backend was not told of the run: %v", err)
	}
}

// asksBoth tells the verbs that show the fallback beside the backend.
func asksBoth(cfg *Config) bool { return cfg.Verb == "status" || cfg.Verb == "history" }

// both shows what the backend knows, and what the fallback does beside it.
type both struct {
	backends.Backend // nil where it could not be opened, which why tells
	why              error
	fallback         backends.Backend
	tell             func(string)
}

// withFallback opens the fallback of a backend that is to be asked, and that could be opened unless err is set. A fallback
// that cannot be opened is left out.
func withFallback(ctx context.Context, cfg *Config, b backends.Backend, err error) (backends.Backend, error) {
	var wrong *backends.UsageError
	if errors.As(err, &wrong) {
		return nil, err
	}
	fallback, unopened := openStore(ctx, cfg, *cfg.Fallback)
	if unopened != nil {
		return b, err
	}
	return &both{Backend: b, why: err, fallback: fallback, tell: cfg.tell}, nil
}

// Name is the backend's, where there is one.
func (b *both) Name() string {
	if b.Backend == nil {
		return b.fallback.Name()
	}
	return b.Backend.Name()
}

// Historian is nobody else: the history is made of two.
func (b *both) Historian() backends.Backend { return b }

// main is the backend, or an error where it could not be opened.
func (b *both) main() (backends.Backend, error) { return b.Backend, b.why }

// Now is the backend's clock, and the fallback's where there is no backend.
func (b *both) Now(ctx context.Context) (time.Time, error) {
	if b.Backend == nil {
		return b.fallback.Now(ctx)
	}
	return b.Backend.Now(ctx)
}

// Status adds what the fallback holds, with a reason that says so. Where the backend does not answer that is all that can be
// told, if it is an answer to what was asked: that a key is free nobody knows then.
func (b *both) Status(ctx context.Context, keys ...string) ([]backends.State, error) {
	main, err := b.main()
	var states []backends.State
	if err == nil {
		states, err = main.Status(ctx, keys...)
	}
	ctx, cancel := rest(ctx)
	defer cancel()
	others, unanswered := b.fallback.Status(ctx, keys...)
	if unanswered != nil { // nobody may have used it yet
		return states, err
	}
	asked := map[string]bool{}
	for _, s := range others {
		if s.State != backends.Held || backends.OfSameRun(states, s) != nil { // or it is beside the backend's
			continue
		}
		asked[s.Key] = true
		reason := "in the fallback " + b.fallback.Name()
		if s.Reason != "" {
			reason = s.Reason + "; " + reason
		}
		s.Reason = reason
		states = slices.DeleteFunc(states, func(o backends.State) bool { return o.Key == s.Key && o.State == backends.Free })
		states = append(states, s)
	}
	if err != nil {
		if len(asked) == 0 || slices.ContainsFunc(keys, func(k string) bool { return !asked[k] }) {
			return nil, err
		}
		b.tell(err.Error() + "; this is what the fallback holds")
	}
	slices.SortStableFunc(states, func(a, b backends.State) int {
		if len(keys) > 0 {
			return slices.Index(keys, a.Key) - slices.Index(keys, b.Key)
		}
		return strings.Compare(a.Key, b.Key)
	})
	return states, nil
}

// History mixes the fallback's records in, by their end.
func (b *both) History(ctx context.Context, q backends.Query) ([]backends.Record, error) {
	main, err := b.main()
	var records []backends.Record
	if err == nil {
		records, err = main.History(ctx, q)
	}
	ctx, cancel := rest(ctx)
	defer cancel()
	others, unanswered := b.fallback.History(ctx, q)
	switch {
	case unanswered != nil, err != nil && len(others) == 0:
		return records, err
	case err != nil:
		b.tell(err.Error() + "; this is the history of the fallback")
	}
	for _, o := range others {
		if !slices.ContainsFunc(records, func(r backends.Record) bool { return sameRun(r, o) }) {
			records = append(records, o)
		}
	}
	slices.SortStableFunc(records, func(a, b backends.Record) int { return b.EndedAt.Compare(a.EndedAt) })
	return q.Select(records), nil
}

// sameRun tells whether the fallback's record o is of the run that the backend's r is of: the fallback's lease was taken
// beside the backend's, or the backend, or a record store, was told of a run under the fallback. Tokens need not agree.
func sameRun(r, o backends.Record) bool {
	const apart = 5 * time.Second // between the clocks of two stores; in containers, pids come again soon
	if r.Key != o.Key || r.Host != o.Host || r.PID != o.PID || r.RunID != o.RunID && r.RunID != "" && o.RunID != "" {
		return false
	}
	return r.Token == o.Token && r.Token != 0 || r.StartedAt.Sub(o.StartedAt).Abs() < apart || r.EndedAt.Sub(o.EndedAt).Abs() < apart
}

// rest is a context for the fallback, which is asked second and may find that the backend has used up the time.
func rest(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < time.Second {
		return context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	}
	return ctx, func() {}
}

// Close closes both.
func (b *both) Close() error {
	err := b.fallback.Close()
	if b.Backend == nil {
		return err
	}
	return errors.Join(b.Backend.Close(), err)
}
