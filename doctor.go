package main

import (
	"context"
	"errors"
	"runtime"
	"strings"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/boottime"
	"github.com/lockrun/lockrun/internal/supervise"
)

// doDoctor examines the backend and this host. It succeeds where no check failed; advice is no failure.
func doDoctor(c *call) int {
	checks, err := c.backendChecks()
	if err != nil {
		return c.failed(err)
	}
	checks = append(checks, hostChecks()...)
	p := c.page()
	code := codeOK
	for _, k := range checks {
		if !k.OK {
			code = codeNo
		}
		if c.cfg.JSON {
			p.json(k)
		} else {
			p.line(checkLine(k))
		}
	}
	return c.cfg.exit(p.close(code))
}

// backendChecks are the store's own. A store that cannot be opened is a finding, not the end of the examination; a URL
// that means no store is an error of whoever wrote it.
func (c *call) backendChecks() ([]backends.Check, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.BackendTimeout)
	defer cancel()
	b, err := c.open(ctx, c.cfg)
	var wrong *backends.UsageError
	switch {
	case errors.As(err, &wrong):
		return nil, err
	case err != nil:
		return []backends.Check{failedCheck(c.shownBackend(), "open", err)}, nil
	}
	defer func() { _ = b.Close() }()
	checks := []backends.Check{{Backend: b.Name(), Check: "open", OK: true, Cause: "it answers"}}
	if _, err := b.Now(ctx); err != nil {
		checks[0] = failedCheck(b.Name(), "open", err)
	}
	if d, ok := b.(backends.Doctor); ok {
		checks = append(checks, d.Doctor(ctx)...)
	}
	return checks, nil
}

// shownBackend is the configured backend, without secrets, for when it cannot tell its name.
func (c *call) shownBackend() string {
	if c.cfg.Backends[0].URL == "" {
		return "sqlite"
	}
	return c.cfg.Backends[0].shown()
}

func failedCheck(backend, name string, err error) backends.Check {
	k := backends.Check{Backend: backend, Check: name, Cause: err.Error()}
	var e *backends.Error
	if errors.As(err, &e) {
		k.Cause, k.Remedy = e.Op+": "+e.Err.Error(), e.Remedy
	}
	return k
}

// hostChecks tell what this system can and cannot protect a job from.
func hostChecks() []backends.Check {
	clock := backends.Check{Backend: "host", Check: "clock", OK: true, Cause: "deadlines are counted on a clock that goes on during suspend"}
	switch runtime.GOOS {
	case "linux", "darwin":
	default:
		clock.Cause = "deadlines are counted on a clock that may stand still during suspend"
		clock.Remedy = "do not suspend this host while a job holds a lease"
	}
	if boottime.Offset() != 0 {
		clock.Cause += "; this process is in a time namespace of its own, which is taken into account"
	}
	checks := []backends.Check{clock}
	missing := supervise.Unprotected()
	for _, m := range missing {
		checks = append(checks, backends.Check{Backend: "host", Check: "supervision", OK: true, Cause: m, Remedy: "run on a Linux with pidfd and child subreapers for full protection"})
	}
	if len(missing) == 0 {
		checks = append(checks, backends.Check{Backend: "host", Check: "supervision", OK: true, Cause: "every protection that lockrun knows is in place"})
	}
	return checks
}

// checkLine is one finding for a person.
func checkLine(k backends.Check) string {
	mark := "ok    "
	switch {
	case !k.OK:
		mark = "FAILED"
	case k.Remedy != "":
		mark = "advice"
	}
	s := mark + "  " + k.Backend + " " + k.Check
	for _, part := range []string{k.Cause, k.Remedy} {
		if part != "" {
			s += ": " + part
		}
	}
	return oneLine(strings.TrimSpace(s))
}
