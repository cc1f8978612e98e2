package sqlite

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/lockrun/lockrun/backends"
)

// backend is one process's way to the database. It has one connection, used by one operation at a time.
type backend struct {
	path string
	o    backends.Options
	d    driverFuncs
	now  clock

	turn   chan struct{} // holds one element while an operation uses what follows
	c      *conn         // nil: the database does not exist, or has not been opened
	id     fileID        // of the file that c is connected to
	frozen bool          // c reads the file as if it never changed
	pin    *os.File      // of that file, see pins
	watch  watcher
	meets  *hindrance // of the operation whose turn it is
	closed bool

	index *index // what Wait looks at; used in a turn
}

var (
	_ backends.Backend = (*backend)(nil)
	_ backends.Waiter  = (*backend)(nil)
	_ backends.Initer  = (*backend)(nil)
	_ backends.Doctor  = (*backend)(nil)
)

// Name says which file it is. A path may hold a newline, a message may not.
func (b *backend) Name() string {
	if strings.ContainsFunc(b.path, unicode.IsControl) {
		return "sqlite:" + strconv.Quote(b.path)
	}
	return "sqlite:" + b.path
}

func (b *backend) livePath() string { return b.path + "-live" }

// access is what an operation needs of the database.
type access int

const (
	reading  access = iota // where there is no database there is nothing in it
	changing               // the same, but what there is will be changed
	creating               // it is created where it does not exist
)

// do runs f with the connection once it is this caller's turn, and again while another process has the write lock. c is
// nil where there is no database and none is created.
//
// f runs in its own goroutine, since a system call that hangs (a disk that does not answer) heeds no context. Then do
// returns with the context while f goes on, and keeps the turn until it is through.
func do[T any](ctx context.Context, b *backend, op string, a access, f func(c *conn) (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	var none T
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.o.Timeout)
		defer cancel()
	}
	h := &hindrance{}
	h.is(waitsForTurn)
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return none, b.explain(op, b.gaveUp(ctx.Err(), h))
	}
	h.is(waitsForDisk)
	done := make(chan answer, 1)
	go func() {
		defer func() { b.meets = nil; <-b.turn }()
		b.meets = h
		v, err := attempt(ctx, b, a, f)
		done <- answer{v, err}
	}()
	select {
	case r := <-done:
		return r.v, b.explain(op, r.err)
	case <-ctx.Done():
		return none, b.explain(op, b.gaveUp(ctx.Err(), h))
	}
}

// settle is how long errors are put down to files that another process is just creating.
const settle = 300 * time.Millisecond

// attempt repeats f while the cause of its failure is passing.
func attempt[T any](ctx context.Context, b *backend, a access, f func(c *conn) (T, error)) (T, error) {
	var none T
	began := time.Now()
	for n := 0; ; n++ {
		err := ctx.Err()
		if err != nil {
			return none, b.gaveUp(err, b.meets)
		}
		var v T
		if err = b.connect(ctx, a); err == nil {
			v, err = f(b.c)
		}
		if b.thawed() {
			continue
		}
		if err == nil {
			return v, nil
		}
		if !passing(err) && !(settling(err) && time.Since(began) < settle) {
			return none, err
		}
		if passing(err) {
			b.meets.is(waitsForLock)
		}
		switch e := backOff(ctx, n); {
		case e != nil && passing(err):
			return none, b.gaveUp(e, b.meets)
		case e != nil:
			return none, err
		}
	}
}

// backOff waits before attempt n+1. A write takes about a tenth of a millisecond, so the first waits are of that order;
// SQLite's own busy handler steps up to 100 ms within a dozen tries, which leaves the lock idle most of the time when
// 200 processes start at one instant. The upper end keeps a crowd behind one long write from eating the processor.
func backOff(ctx context.Context, n int) error {
	limit := min(250*time.Microsecond<<min(n/2, 8), 20*time.Millisecond)
	t := time.NewTimer(limit/4 + rand.N(limit))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// read is do for a question; f sees one state of the database.
func read[T any](ctx context.Context, b *backend, op string, f func(c *conn, now instant) (T, error)) (T, error) {
	return do(ctx, b, op, reading, func(c *conn) (T, error) {
		if c == nil {
			return f(nil, b.now())
		}
		return within(c, "BEGIN", func() (T, error) { return f(c, b.now()) })
	})
}

// change is do for one atomic change; the time is read when the write lock is held, so that no older judgement follows a
// newer one. durable asks for the change to survive a power cut, at the cost of waiting for the disk. Leases do not need
// it: whoever holds one dies in the same cut, and tokens rise with the clock even when the last ones are forgotten.
func change[T any](ctx context.Context, b *backend, op string, a access, durable bool, f func(c *conn, now instant) (T, error)) (T, error) {
	return do(ctx, b, op, a, func(c *conn) (T, error) {
		if c == nil {
			return f(nil, b.now())
		}
		return commit(b, c, durable, f)
	})
}

func (b *backend) sync(c *conn, mode string) error {
	_, err := c.exec("PRAGMA synchronous=" + mode)
	return err
}

// commit is change inside a turn that is already held.
func commit[T any](b *backend, c *conn, durable bool, f func(c *conn, now instant) (T, error)) (T, error) {
	if durable {
		if err := b.sync(c, "FULL"); err != nil {
			var none T
			return none, err
		}
		defer b.sync(c, "NORMAL")
	}
	return within(c, "BEGIN IMMEDIATE", func() (T, error) { return f(c, b.now()) })
}

// within runs f in a transaction, which an error rolls back.
func within[T any](c *conn, begin string, f func() (T, error)) (T, error) {
	var none T
	if _, err := c.exec(begin); err != nil {
		return none, err
	}
	v, err := f()
	if err == nil {
		_, err = c.exec("COMMIT")
	}
	if err != nil {
		c.exec("ROLLBACK") // an error means that SQLite has rolled back already
		return none, err
	}
	return v, nil
}

// Now is the host's wall clock. It needs no database.
func (b *backend) Now(ctx context.Context) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, b.explain("read the clock", b.gaveUp(err, &hindrance{}))
	}
	return b.now().wall.Truncate(time.Microsecond), nil
}

// Close disconnects. Kernel locks of leases that were not released stay until the process ends: closing is not dying.
func (b *backend) Close() error {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	b.closed = true
	b.watch.close()
	return b.disconnect()
}

func (b *backend) disconnect() error {
	if b.c == nil {
		return nil
	}
	c := b.c
	b.c = nil
	if !b.o.ReadOnly {
		b.shrink(c)
	}
	return c.close()
}
