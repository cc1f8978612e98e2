package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// withBackend opens the store, lets do work with it within the backend timeout each, and turns an error into a line and
// an exit code. do returns the code for when there is none.
func (c *call) withBackend(do func(ctx context.Context, b backends.Backend) (int, error)) int {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.BackendTimeout)
	defer cancel()
	b, err := c.open(ctx, c.cfg)
	if err != nil {
		return c.failed(err)
	}
	defer func() { _ = b.Close() }() // everything that was asked for has been answered by then
	ctx, cancel = context.WithTimeout(context.Background(), c.cfg.BackendTimeout)
	defer cancel()
	code, err := do(ctx, b)
	if err != nil {
		return c.failed(err)
	}
	return c.cfg.exit(code)
}

// failed tells an error of the backend and gives its exit code.
func (c *call) failed(err error) int {
	if c.cfg.Key != "" {
		c.ui.err("%v (key %q)", err, c.cfg.Key)
	} else {
		c.ui.err("%v", err)
	}
	return c.cfg.exit(codeOf(err))
}

// page is buffered stdout. An error of writing is kept until close: an answer that could not be printed was not given.
type page struct {
	c   *call
	w   *bufio.Writer
	err error
}

func (c *call) page() *page { return &page{c: c, w: bufio.NewWriter(c.io.Out)} }

func (p *page) line(s string) {
	if _, err := p.w.WriteString(s + "\n"); err != nil && p.err == nil {
		p.err = err
	}
}

// json prints v as one line.
func (p *page) json(v any) {
	b, err := plainJSON(v)
	if err != nil {
		if p.err == nil {
			p.err = err
		}
		return
	}
	p.line(string(b))
}

// flush prints what is buffered.
func (p *page) flush() error {
	if err := p.w.Flush(); err != nil && p.err == nil {
		p.err = err
	}
	return p.err
}

// close prints what is buffered and gives code, or 1 where stdout could not take it.
func (p *page) close(code int) int {
	if p.flush() != nil {
		p.c.ui.err("cannot write to stdout: %v", pathCause(p.err))
		return codeNo
	}
	return code
}

// operator names the person who pauses or unlocks, for those who meet it later.
func (c *call) operator() string {
	if c.cfg.named {
		return c.cfg.Holder
	}
	env := newEnviron(c.io.Env)
	for _, name := range []string{env["SUDO_USER"], env["USER"]} {
		if name != "" && backends.CheckHolder(name+"@"+c.cfg.Holder) == nil {
			return name + "@" + c.cfg.Holder
		}
	}
	return c.cfg.Holder
}

// doUnlock breaks a lease.
func doUnlock(c *call) int {
	key := c.cfg.Keys[0]
	return c.withBackend(func(ctx context.Context, b backends.Backend) (int, error) {
		broken, err := b.Break(ctx, key, c.cfg.Token, "broken by "+c.operator())
		if isNotHeld(err) {
			c.ui.err("%s", notBroken(key, c.cfg.Token))
			return codeNo, nil
		}
		if err != nil {
			return 0, err
		}
		for _, s := range broken {
			c.ui.notice("unlocked: the lease of %q by %s with token %d is broken; its job is stopped at its next heartbeat", key, s.Holder, s.Token)
		}
		return codeOK, nil
	})
}

func notBroken(key string, token int64) string {
	if token == 0 {
		return fmt.Sprintf("nothing to unlock: %q is not held", key)
	}
	return fmt.Sprintf("nothing to unlock: no lease of %q has token %d; lockrun status tells which one has", key, token)
}

// doPause keeps a key from being acquired.
func doPause(c *call) int {
	p := backends.Pause{By: c.operator(), Reason: c.cfg.Reason, For: c.cfg.For}
	return c.withBackend(func(ctx context.Context, b backends.Backend) (int, error) {
		if err := b.Pause(ctx, c.cfg.Keys[0], p); err != nil {
			return 0, err
		}
		until := "until it is resumed"
		switch {
		case p.For >= time.Millisecond:
			until = "for " + shortDuration(p.For)
		case p.For > 0: // what is rounded to nothing would be told as none
			until = "for " + p.For.String()
		}
		c.ui.notice("paused: runs of %q are skipped %s", c.cfg.Keys[0], until)
		return codeOK, nil
	})
}

// doResume ends a pause.
func doResume(c *call) int {
	return c.withBackend(func(ctx context.Context, b backends.Backend) (int, error) {
		err := b.Resume(ctx, c.cfg.Keys[0])
		if isNotHeld(err) {
			c.ui.err("nothing to resume: %q is not paused", c.cfg.Keys[0])
			return codeNo, nil
		}
		if err == nil {
			c.ui.notice("resumed: %q can be acquired again", c.cfg.Keys[0])
		}
		return codeOK, err
	})
}

// doInit creates what the backend needs, or shows it.
func doInit(c *call) int {
	return c.withBackend(func(ctx context.Context, b backends.Backend) (int, error) {
		in, ok := b.(backends.Initer)
		if !ok {
			if c.cfg.Print {
				return printed(c.ui, c.io.Out, b.Name()+" needs nothing to be created\n"), nil
			}
			c.ui.notice("%s needs nothing to be created", b.Name())
			return codeOK, nil
		}
		if c.cfg.Print {
			return printed(c.ui, c.io.Out, ended(in.InitPlan())), nil
		}
		if err := in.Init(ctx); err != nil {
			return 0, err
		}
		c.ui.notice("%s is ready", b.Name())
		return codeOK, nil
	})
}

// ended ends a text with one newline.
func ended(s string) string {
	if s == "" || s[len(s)-1] != '\n' {
		s += "\n"
	}
	return s
}

// isNotHeld tells the positive answer that there was nothing to do.
func isNotHeld(err error) bool { return errors.Is(err, backends.ErrNotHeld) }
