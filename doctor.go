package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// doDoctor examines all stores that are configured, this host, and the settings of one job where a key says which. It
// succeeds where no check failed; advice is no failure.
func doDoctor(c *call) int {
	checks, stores, err := c.examineStores()
	if err != nil {
		return c.failed(err)
	}
	checks = append(checks, hostChecks(c.io.Env)...)
	checks = append(checks, c.jobChecks(stores)...)
	code := codeOK
	if slices.ContainsFunc(checks, func(k backends.Check) bool { return !k.OK }) {
		code = codeNo
	}
	p := c.page()
	if c.cfg.JSON {
		for _, k := range checks {
			p.json(k)
		}
	} else {
		tellChecks(p, checks, c.screen())
	}
	return c.cfg.exit(p.close(code))
}

// examinedStore is a store as the doctor found it.
type examinedStore struct {
	store   Store
	name    string
	most    time.Duration     // the longest lease it grants; 0 where it has no limit, or does not tell
	took    []time.Duration   // reads of the job's state; none where it does not answer
	past    []backends.Record // of the job's key, newest first
	pastErr error
}

// patient is a store to be examined, and what it is there for.
type patient struct {
	role  string // "", or what is kept there beside leases
	store Store
}

// patients are all stores of the configuration, each once.
func (c *call) patients() []patient {
	var all []patient
	add := func(role string, s Store) {
		i := slices.IndexFunc(all, func(p patient) bool { return p.store == s })
		if i < 0 {
			all = append(all, patient{role, s})
		}
	}
	for _, s := range c.cfg.Backends {
		add("", s)
	}
	if c.cfg.Record != nil {
		add("record", *c.cfg.Record)
	}
	if c.cfg.Fallback != nil {
		add("fallback", *c.cfg.Fallback)
	}
	return all
}

// examineStores examines one store after the other, so that what is measured is not what they cost each other. A store that
// cannot be opened is a finding, not the end of the examination; a URL that means no store is an error of whoever wrote it.
func (c *call) examineStores() (checks []backends.Check, stores []examinedStore, err error) {
	for _, p := range c.patients() {
		cfg := *c.cfg
		cfg.Backends, cfg.Record, cfg.Fallback = []Store{p.store}, nil, nil
		found, s, err := c.examineStore(&cfg)
		if err != nil {
			return nil, nil, err
		}
		for i := range found {
			if p.role != "" {
				found[i].Check = p.role + " " + found[i].Check
			}
		}
		checks, stores = append(checks, found...), append(stores, s)
	}
	return checks, stores, nil
}

func (c *call) examineStore(cfg *Config) ([]backends.Check, examinedStore, error) {
	b, err := within(context.Background(), cfg.BackendTimeout, func(ctx context.Context) (backends.Backend, error) { return c.open(ctx, cfg) })
	var wrong *backends.UsageError
	switch {
	case errors.As(err, &wrong):
		return nil, examinedStore{}, err
	case err != nil:
		name := shownStore(cfg.Backends[0])
		return []backends.Check{failedCheck(name, "open", err)}, examinedStore{store: cfg.Backends[0], name: name}, nil
	}
	defer func() { _ = b.Close() }()
	s := examinedStore{store: cfg.Backends[0], name: b.Name()}
	checks := []backends.Check{{Backend: b.Name(), Check: "open", OK: true, Cause: "it answers"}}
	offset, doubt, err := s.measure(b, cfg.Key, cfg.BackendTimeout)
	if err != nil {
		checks[0] = failedCheck(b.Name(), "open", err)
	}
	if d, ok := b.(backends.Doctor); ok {
		ctx, cancel := context.WithTimeout(context.Background(), cfg.BackendTimeout)
		checks = append(checks, d.Doctor(ctx)...)
		cancel()
	}
	clockSeen := slices.ContainsFunc(checks, func(k backends.Check) bool { return strings.Contains(k.Check, "clock") })
	if err == nil && !clockSeen && !strings.HasPrefix(b.Name(), "sqlite:") { // that one's clock is the host's
		checks = append(checks, clockCheck(b.Name(), offset, doubt))
	}
	if l, ok := b.(backends.Limiter); ok && err == nil && cfg.Key != "" {
		s.most, _ = within(context.Background(), cfg.BackendTimeout, l.LongestTTL) // why it cannot be told, its own doctor says
	}
	if err == nil && cfg.Key != "" {
		s.past, s.pastErr = within(context.Background(), cfg.BackendTimeout, func(ctx context.Context) ([]backends.Record, error) {
			return b.History(ctx, backends.Query{Key: cfg.Key, Limit: jobRuns})
		})
	}
	return checks, s, nil
}

// measure asks the store for its time and for the state of the job's key, a few times. Both only read, so that asking needs
// no right to write; a renewal is a write, and takes as long or longer. offset is how far the store's clock is ahead of
// this host's, by the quickest exchange, and doubt how far that may be off.
func (s *examinedStore) measure(b backends.Backend, key string, bound time.Duration) (offset, doubt time.Duration, err error) {
	for i := range 5 {
		wall := time.Now()
		var now time.Time
		took, err := timed(bound, func(ctx context.Context) (err error) { now, err = b.Now(ctx); return err })
		if err != nil {
			return 0, 0, err
		}
		if i == 0 || took/2 < doubt {
			offset, doubt = now.Sub(wall.Add(took/2)), took/2
		}
		if key == "" {
			continue
		}
		took, err = timed(bound, func(ctx context.Context) error { _, err := b.Status(ctx, key); return err })
		if err != nil {
			return 0, 0, err
		}
		s.took = append(s.took, took)
	}
	return offset, doubt, nil
}

// timed tells how long f took.
func timed(bound time.Duration, f func(context.Context) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	began := bootNow()
	err := f(ctx)
	return bootNow() - began, err
}

// clockCheck tells how far the store's clock is from this host's.
func clockCheck(name string, offset, doubt time.Duration) backends.Check {
	where := "ahead of"
	if offset < 0 {
		where = "behind"
	}
	k := backends.Check{Backend: name, Check: "clock", OK: true,
		Cause: "its clock is " + shortDuration(offset.Abs()) + " " + where + " this host's (give or take " + shortDuration(doubt) + ")"}
	if offset.Abs() > doubt+time.Second {
		k.Remedy = "no lease depends on this host's clock, but --schedule and all times in listings are the store's: let NTP set both"
	}
	return k
}

// shownStore is a configured store, without secrets, for when it cannot tell its name.
func shownStore(s Store) string {
	if s.URL == "" {
		return "sqlite"
	}
	return backends.Redact(s.URL)
}

func failedCheck(backend, name string, err error) backends.Check {
	k := backends.Check{Backend: backend, Check: name, Cause: err.Error()}
	var e *backends.Error
	if errors.As(err, &e) {
		k.Cause, k.Remedy = e.Op+": "+e.Err.Error(), e.Remedy
	}
	return k
}
