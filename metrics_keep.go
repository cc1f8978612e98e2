package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/sqlite"
	"github.com/lockrun/lockrun/internal/hooks"
	"github.com/lockrun/lockrun/internal/metrics"
)

// keep adds the run to the sums of this host, and sends those of its key where a Pushgateway wants them.
//
// A Pushgateway forgets nothing and adds nothing: it has to be told totals. They are kept in the metrics file, or in one of
// lockrun's own where there is none. The history would be no substitute: it keeps so many runs, and a total made from it
// would stand still, or fall.
func (o *observers) keep(ctx context.Context, rec backends.Record, run *metrics.Run) error {
	f, err := o.sums()
	if err == nil {
		err = f.Add(ctx, func(s *metrics.Set) { s.Key(rec.Key).Add(run) })
	}
	switch {
	case errors.Is(err, metrics.ErrUnsure):
		return fmt.Errorf("it is not known whether the metrics were kept: %w", err)
	case err != nil:
		return fmt.Errorf("the metrics were not kept: %w", err)
	}
	if o.cfg.Pushgateway == "" {
		return nil
	}
	if err := o.push(ctx, f, rec); err != nil {
		return fmt.Errorf("the metrics were not sent, but are kept, so that the next push tells them too: %w", err)
	}
	return nil
}

// push sends the key's totals. A run that ends at the same time must not have its larger ones overtaken: Prometheus would
// take smaller ones for a restart, and count everything again.
func (o *observers) push(ctx context.Context, f metrics.File, rec backends.Record) error {
	return f.InTurn(ctx, func(s *metrics.Set) error {
		var text bytes.Buffer
		if _, err := s.Only(rec.Key).WriteTo(&text); err != nil {
			return err
		}
		r := hooks.Request{Method: "PUT", URL: hooks.Under(o.cfg.Pushgateway, metrics.GroupPath(rec.Key, rec.Host)),
			Type: "text/plain; version=0.0.4", Body: text.Bytes(), Explained: true}
		return r.Send(ctx)
	})
}

// sums is the file with the sums of this host.
func (o *observers) sums() (metrics.File, error) {
	if o.cfg.MetricsFile != "" {
		path, err := resultTarget(o.cfg.MetricsFile)
		return metrics.File{Path: path}, err
	}
	store, err := sqlite.DefaultPath(os.Getenv, os.Geteuid())
	if err != nil {
		return metrics.File{}, fmt.Errorf("there is no place for the sums that are sent (%w); give --metrics-file one", err)
	}
	dir, mode := filepath.Dir(store), os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o755
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return metrics.File{}, fmt.Errorf("there is no place for the sums that are sent: %w; give --metrics-file one", err)
	}
	return metrics.File{Path: filepath.Join(dir, "pushed.prom")}, nil
}
