package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/multi"
	"github.com/lockrun/lockrun/backends/paired"
	"github.com/lockrun/lockrun/backends/recorded"
	"github.com/lockrun/lockrun/backends/sqlite"
)

// openBackend opens what cfg names: one store, or several, or one beside that for the record.
func openBackend(ctx context.Context, cfg *Config) (backends.Backend, error) {
	b, err := openLeases(ctx, cfg)
	if cfg.Record != nil && err == nil {
		b, err = withRecord(ctx, cfg, b)
	}
	switch {
	case cfg.Fallback == nil:
	case asksBoth(cfg):
		return withFallback(ctx, cfg, b, err)
	case err == nil && (cfg.Verb == "run" || cfg.Verb == "unlock"):
		b = besideFallback(cfg, b)
	}
	return b, err
}

// besideFallback has the lease of the fallback taken beside b's, so that runs under either meet. Not where that store keeps the
// record as well: it would know the owner already, and take the one request for a repetition of the other.
func besideFallback(cfg *Config, b backends.Backend) backends.Backend {
	if cfg.Record != nil && sameStore(*cfg.Fallback, *cfg.Record) {
		return b
	}
	open := func(ctx context.Context) (backends.Backend, error) { return openStore(ctx, cfg, *cfg.Fallback) }
	return paired.Decorate(b, open, paired.Options{Timeout: cfg.BackendTimeout, Warn: cfg.tell})
}

// openLeases opens the stores whose leases have to be held.
func openLeases(ctx context.Context, cfg *Config) (backends.Backend, error) {
	if len(cfg.Backends) == 1 {
		return openStore(ctx, cfg, cfg.Backends[0])
	}
	var all []backends.Backend
	for _, st := range cfg.Backends {
		b, err := openStore(ctx, cfg, st)
		if err == nil {
			all = append(all, b)
			err = onlyOnce(all)
		}
		if err != nil {
			closeAll(all)
			return nil, err
		}
	}
	return multi.New(all, cfg.BackendTimeout), nil
}

// onlyOnce refuses the last of all if it is a store that stands among the others under another URL.
func onlyOnce(all []backends.Backend) error {
	last := len(all) - 1
	for _, b := range all[:last] {
		if b.Name() == all[last].Name() {
			return &backends.UsageError{What: "--backend " + b.Name(), Why: "it is named twice, and a run cannot hold its lease beside itself",
				Remedy: "leave one of them out"}
		}
	}
	return nil
}

func closeAll(all []backends.Backend) {
	for _, b := range all {
		_ = b.Close()
	}
}

// withRecord has the record of b's runs kept by the store of --record, unless that is where it is anyway. A store that
// cannot be opened now may be opened later: whether the run has to do without is for the decorator to say. Only half of the
// time is spent on it.
func withRecord(ctx context.Context, cfg *Config, b backends.Backend) (backends.Backend, error) {
	if sameStore(*cfg.Record, cfg.Backends[0]) {
		return b, nil
	}
	half, cancel := context.WithTimeout(ctx, cfg.BackendTimeout/2)
	defer cancel()
	store, err := openStore(half, cfg, *cfg.Record)
	var wrong *backends.UsageError
	switch {
	case errors.As(err, &wrong):
		_ = b.Close()
		return nil, err
	case err == nil && store.Name() == backends.Historian(b).Name():
		_ = store.Close()
		return b, nil
	}
	if err != nil {
		store = nil
	}
	return decorate(cfg, b, store), nil
}

// decorate has the record of b's runs kept by the store of --record, which is open already unless store is nil.
func decorate(cfg *Config, b, store backends.Backend) backends.Backend {
	o := recorded.Options{Record: store, Timeout: cfg.BackendTimeout, Warn: cfg.tell}
	open := func(ctx context.Context) (backends.Backend, error) { return openStore(ctx, cfg, *cfg.Record) }
	return recorded.Decorate(b, open, o)
}

// openStore opens one store. What is wrong with its URL is told with the place where that was written.
func openStore(ctx context.Context, cfg *Config, st Store) (backends.Backend, error) {
	b, err := openURL(ctx, cfg, st)
	var wrong *backends.UsageError
	if st.From != "" && errors.As(err, &wrong) {
		return nil, fmt.Errorf("%s: %w", st.From, err)
	}
	return b, err
}

func openURL(ctx context.Context, cfg *Config, st Store) (backends.Backend, error) {
	u, err := st.parse()
	if err != nil {
		return nil, err
	}
	open, ok := drivers[u.Scheme]
	if !ok {
		return nil, &backends.UsageError{
			What: "backend " + u.String(), Why: "this lockrun knows no scheme " + u.Scheme,
			Remedy: "it knows " + strings.Join(sortedKeys(drivers), ", "),
		}
	}
	o := driverOptions(cfg)
	o.Password = st.Password
	return open(ctx, u, o)
}

// parse is the store's URL, that of the embedded default where there is none.
func (st Store) parse() (*backends.URL, error) {
	if st.URL != "" {
		return backends.ParseURL(st.URL)
	}
	path, err := sqlite.DefaultPath(os.Getenv, os.Geteuid())
	return &backends.URL{Scheme: "sqlite", Path: path}, err
}
