package main

import (
	"context"

	"github.com/lockrun/lockrun/backends"
)

// doMetrics prints the metrics of every key in the store, or serves them.
func doMetrics(c *call) int {
	if c.cfg.Listen != "" {
		return serveMetrics(c)
	}
	b, err := within(context.Background(), c.cfg.BackendTimeout, func(ctx context.Context) (backends.Backend, error) {
		return c.open(ctx, c.cfg)
	})
	if err != nil {
		return c.failed(err)
	}
	defer func() { _ = b.Close() }() // everything that was asked for has been answered by then
	t := newTally(c.cfg.BackendTimeout)
	if err := t.update(context.Background(), b); err != nil {
		return c.failed(err)
	}
	if _, err := t.set.WriteTo(c.io.Out); err != nil {
		c.ui.err("cannot write to stdout: %v", pathCause(err))
		return c.cfg.exit(codeNo)
	}
	return codeOK
}
