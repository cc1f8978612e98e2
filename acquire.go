package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/supervise"
)

// doAcquire takes a lease for a shell script and prints its token. With --while-pid a background process takes it
// instead, because on the embedded store a lease is its process's: see minder.
func doAcquire(c *call) int {
	if c.cfg.WhilePID != 0 {
		return startMinder(c)
	}
	r, err := newRunner(c.cfg, c.io, c.ui, c.open)
	if err != nil {
		c.ui.err("%v", err)
		return c.cfg.exit(codeInternal)
	}
	r.req.Detached, r.req.Loose = true, true
	g, sig, err := r.acquire()
	defer r.close()
	switch {
	case sig != 0:
		return 128 + int(sig)
	case err != nil:
		return c.notAcquired(err)
	}
	r.tellTaken(g)
	code := c.printToken(g.lease.Grant().Token)
	if code != codeOK {
		r.giveBack(g) // nobody knows the token, so nobody could release it
	}
	return code
}

// printToken prints the token by write(2). os.File would raise SIGPIPE where nobody reads stdout, which ends the process
// with the lease taken and its token unknown. A stdout that was closed takes nothing either, although Go has opened
// /dev/null in its place.
func (c *call) printToken(token int64) int {
	err := errClosedStdout
	if fd := fdOf(c.io.Out); fd >= 0 && !(fd == 1 && supervise.WasClosed(fd)) {
		err = writeRaw(fd, strconv.FormatInt(token, 10)+"\n")
	}
	if err != nil {
		c.ui.err("the token cannot be written to stdout, so the lease is given back: %v", err)
		return codeNo
	}
	return codeOK
}

var errClosedStdout = errors.New("it is closed")

// notAcquired tells why there is no lease, and gives the exit code. A refusal is told as run tells it.
func (c *call) notAcquired(err error) int {
	code := codeOf(err)
	switch code {
	case codeSkipped:
		c.ui.notice("skipped: %v", err)
	case codeDone:
		c.ui.notice("done: %v", err)
	default:
		c.ui.err("%v (key %q)", err, c.cfg.Key)
	}
	return c.cfg.exit(code)
}

// doRenew makes a lease last from now on.
func doRenew(c *call) int {
	return c.withLease(func(ctx context.Context, b backends.Backend, l backends.Lease) error {
		ttl := c.cfg.TTL
		if ttl == 0 {
			ttl = l.Grant().TTL
		}
		err := l.Renew(ctx, ttl)
		if length := l.Grant().TTL; err == nil && backends.AnyFixed(l) && length != ttl {
			c.ui.warn("the lease of %q lasts for %s from now on, and not for the %s of --ttl: %s settled its length when it was granted", c.cfg.Key, shortDuration(length), shortDuration(ttl), b.Name())
			ttl = length
		}
		if err == nil {
			c.ui.info("renewed token %d of %q on %s for %s", c.cfg.Token, c.cfg.Key, b.Name(), shortDuration(ttl))
		}
		return err
	})
}

// doRelease gives a lease back. A script that got this far has done what it took the lease for; one that has not ends
// without releasing, and its minder, or the next holder, records a crash.
func doRelease(c *call) int {
	return c.withLease(func(ctx context.Context, b backends.Backend, l backends.Lease) error {
		at, err := b.Now(ctx)
		if err != nil {
			return err
		}
		took := max(at.Sub(l.Grant().AcquiredAt), 0)
		err = l.Release(ctx, backends.End{Outcome: backends.Succeeded, Duration: took})
		if err == nil {
			c.ui.info("released token %d of %q on %s after %s", c.cfg.Token, c.cfg.Key, b.Name(), shortDuration(took))
		}
		return err
	})
}

// withLease lets do work with the lease of --key and --token.
func (c *call) withLease(do func(context.Context, backends.Backend, backends.Lease) error) int {
	return c.withBackend(func(ctx context.Context, b backends.Backend) (int, error) {
		l, err := b.Attach(ctx, c.cfg.Key, c.cfg.Token)
		if err == nil {
			err = do(ctx, b, l)
		}
		var held *backends.HeldError
		switch {
		case errors.Is(err, backends.ErrLost):
			c.ui.err("token %d of %q holds no lease: it was released, broken or ran out; stop what relies on it", c.cfg.Token, c.cfg.Key)
			return codeLost, nil
		case errors.As(err, &held):
			c.ui.err("token %d is not for lockrun %s: %v; lockrun unlock KEY --token %d breaks it, and stops the run", c.cfg.Token, c.cfg.Verb, held, held.Token)
			return codeSkipped, nil
		}
		return codeOK, err
	})
}

// checkEvery is how soon a minder notices that its lease was released or broken: it asks, rather than wait for its next
// heartbeat, so that it does not outlive the lease by a third of a long TTL.
const checkEvery = time.Second

// minder keeps the lease of a shell script in the background: it takes it, renews it, and gives it back when the script
// ends. It has a session of its own and nothing of the script's but, until the lease is granted, stderr.
//
// Signals do not end it, and where it is killed the lease is left to its TTL (Request.Detached): the holder is the script,
// which goes on relying on the lease whatever becomes of this process.
//
// It is this program once more. What it needs to know comes through a pipe, so that no password is seen by ps; the same
// pipe tells it that the lease is wanted: where it closes before that, lockrun acquire was killed or could not print the
// token, and the lease is given back.
type minder struct {
	r      *runner
	script pidWatch
	orders *os.File      // from lockrun acquire
	rest   *bufio.Reader // what follows the orders in it
	answer *os.File      // to lockrun acquire
}

// minderName is what ps shows, and how the program knows its part.
const minderName = "lockrun-minder"

func isMinder(args []string) bool { return len(args) > 0 && args[0] == minderName }

// mind takes the lease and keeps it to its end.
func (m *minder) mind() int {
	wanted, unwanted := context.WithCancel(context.Background())
	kept := make(chan struct{})
	go m.awaitOrder(kept, unwanted)
	answered := make(chan answer, 1)
	go func() { answered <- m.r.openAndAcquire(context.Background(), wanted) }()
	var a answer
	select {
	case a = <-answered:
	case <-wanted.Done():
		select {
		case a = <-answered:
		case <-time.After(interruptBound):
			return codeOK
		}
	}
	r := m.r
	r.learn(a)
	defer r.close()
	if a.err != nil && wanted.Err() != nil {
		return codeOK // lockrun acquire has ended, and there is nothing to give back
	}
	if a.err != nil {
		return m.tell((&call{cfg: r.cfg, ui: r.ui}).notAcquired(a.err), 0)
	}
	r.lease = a.g.lease
	r.tellTaken(a.g)
	m.tell(codeOK, r.lease.Grant().Token)
	select {
	case <-kept:
	case <-wanted.Done():
		r.giveBack(a.g)
		return codeOK
	}
	silence()
	m.release(m.keep(a.g), a.g.sentAt)
	return codeOK
}

// keep renews until the script ends or the lease is gone; it returns why the lease is to be released,
// "" where there is nothing left to release.
func (m *minder) keep(g granted) (why string) {
	k := newKeeper(g.lease, newTiming(g.lease.Grant(), m.r.cfg), g.sentAt, bootNow)
	lost := make(chan struct{})
	k.whenLost(func() { close(lost) })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer k.start()()
	ended := make(chan struct{})
	go func() { m.script.wait(); close(ended) }()
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	for {
		select {
		case <-ended:
			k.stop()
			return fmt.Sprintf("process %d ended without releasing the lease", m.script.PID)
		case <-lost:
			if isInternal(k.why()) {
				m.r.b = nil // see broken
			}
			return ""
		case <-m.r.signals.C():
			// A terminal that closes and an operator's kill are meant for the script. Where it lives on, so does its lease;
			// where it ends, that is seen above.
		case <-check.C:
			if m.gone(ctx) {
				k.stop()
				return ""
			}
		}
	}
}

// gone tells whether the lease was released or broken by somebody else.
func (m *minder) gone(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, m.r.cfg.BackendTimeout)
	defer cancel()
	_, err := m.r.b.Attach(ctx, m.r.req.Key, m.r.lease.Grant().Token)
	return errors.Is(err, backends.ErrLost)
}

// release gives the lease back as a crash: the script's own release would have come before.
func (m *minder) release(why string, since time.Duration) {
	if why == "" {
		return
	}
	// Where it fails the lease runs out by itself.
	_ = m.r.release(backends.End{Outcome: backends.Crashed, Reason: why, Duration: bootNow() - since})
}
