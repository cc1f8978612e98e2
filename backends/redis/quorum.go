package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// quorum keeps a lease on the majority of independent servers, after the Redlock recipe, with owners compared, tokens that
// rise, and leases restored on servers that forgot them. Each server runs the same scripts as a single one does and
// decides for itself; what counts is what more than half of them say.
//
// # Why tokens rise
//
// A server hands out tokens above all that it has seen. Of those that a majority granted the greatest is taken, T, and is
// written back to a majority as the least that may not be handed out again, before anybody learns of T. Any later
// majority shares a server with that one, this server grants more than T, and the greatest of its tokens is more still.
// So tokens rise over any two majorities whichever servers they consist of, as long as no server forgets; one that came
// back empty grants no less than its clock's microseconds, and only a clock that runs behind could go below T then.
//
// # Why a slot is asked for by its number
//
// Three holders could each find two of three servers that have one of two slots left. So where a key has several slots,
// a majority has to grant the same one: each slot is a lock of its own.
type quorum struct {
	c     *config
	nodes []*node
	need  int // more than half
	// rounds numbers what this process asks for. It begins at the time, for an owner that outlives a process.
	rounds atomic.Int64
	bg     background
}

var (
	_ backends.Backend = (*quorum)(nil)
	_ backends.Waiter  = (*quorum)(nil)
	_ backends.Doctor  = (*quorum)(nil)
)

func newQuorum(c *config) *quorum {
	q := &quorum{c: c, need: len(c.addrs)/2 + 1}
	for _, addr := range c.addrs {
		q.nodes = append(q.nodes, &node{c: c, name: c.name, route: fixed{c.server(addr)}})
	}
	q.rounds.Store(time.Now().UnixMicro())
	return q
}

func (q *quorum) Name() string { return q.c.name }

func (q *quorum) Close() error {
	q.bg.wait(courtesy)
	for _, n := range q.nodes {
		n.route.close()
	}
	return nil
}

// spare is how many servers may fail.
func (q *quorum) spare() int { return len(q.nodes) - q.need }

// reply is what one server said.
type reply[T any] struct {
	node *node
	v    T
	err  error
}

func good[T any](all []reply[T]) (list []reply[T]) {
	for _, r := range all {
		if r.err == nil {
			list = append(list, r)
		}
	}
	return list
}

// poll asks all servers at once and returns when all have answered, a moment after decided says so, or a longer moment
// after more than half have answered: one dead server costs less than its timeout. Servers that have not answered by then
// get a moment more, and late is told of what they say. When ctx ends, everything does.
func poll[T any](ctx context.Context, q *quorum, ask func(context.Context, *node) (T, error),
	decided func([]reply[T]) bool, late func(context.Context, reply[T]),
) []reply[T] {
	if ctx.Err() != nil {
		return refusedAll[T](ctx, q)
	}
	work, cancel := detach(ctx)
	unlink := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) { // a deadline is work's own, and is told as such
			cancel()
		}
	})
	ch := make(chan reply[T], len(q.nodes))
	for _, n := range q.nodes {
		go func() {
			v, err := ask(work, n)
			ch <- reply[T]{n, v, err}
		}()
	}
	all := collect(q, ch, decided)
	unlink()
	missing := len(q.nodes) - len(all)
	if missing == 0 {
		cancel()
		return all
	}
	time.AfterFunc(courtesy, cancel)
	q.bg.do(ctx, 2*courtesy, func(ctx context.Context) {
		for range missing {
			if r := <-ch; late != nil {
				late(ctx, r)
			}
		}
		cancel()
	})
	return all
}

// detach is a context with ctx' deadline that goes on when ctx is cancelled.
func detach(ctx context.Context) (context.Context, context.CancelFunc) {
	if t, ok := ctx.Deadline(); ok {
		return context.WithDeadline(context.WithoutCancel(ctx), t)
	}
	return context.WithCancel(context.WithoutCancel(ctx))
}

// collect takes answers until they are enough.
func collect[T any](q *quorum, ch <-chan reply[T], decided func([]reply[T]) bool) (all []reply[T]) {
	start := time.Now()
	var enough, done <-chan time.Time
	for len(all) < len(q.nodes) {
		select {
		case r := <-ch:
			all = append(all, r)
			took := time.Since(start)
			if enough == nil && len(good(all)) >= q.need {
				enough = time.After(2*took + 50*time.Millisecond)
			}
			if done == nil && decided(all) {
				// Servers that are well keep in step if they are given the moment that they need.
				done = time.After(min(max(took, 5*time.Millisecond), 50*time.Millisecond))
			}
		case <-enough:
			return all
		case <-done:
			return all
		}
	}
	return all
}

// refusedAll stands for the answers where there was no time to ask.
func refusedAll[T any](ctx context.Context, q *quorum) (all []reply[T]) {
	err := q.c.explain("ask", q.c.name, &phaseError{"ask", "the servers", ctx.Err()})
	for _, n := range q.nodes {
		all = append(all, reply[T]{node: n, err: err})
	}
	return all
}

// majority is poll for operations that a server carries out or not.
func (q *quorum) majority(ctx context.Context, op string, ask func(context.Context, *node) error) error {
	n, err := q.count(ctx, op, func(ctx context.Context, n *node) (bool, error) { return true, ask(ctx, n) })
	if err == nil && n < q.need {
		err = q.none(op, nil)
	}
	return err
}

// count asks a question and returns how many say yes, if that is more than half, or too few can still say so. Otherwise
// nobody knows.
func (q *quorum) count(ctx context.Context, op string, ask func(context.Context, *node) (bool, error)) (int, error) {
	ctx, cancel := q.c.bound(ctx)
	defer cancel()
	tally := func(all []reply[bool]) (yes, no, failed int) {
		for _, r := range all {
			switch {
			case r.err != nil:
				failed++
			case r.v:
				yes++
			default:
				no++
			}
		}
		return yes, no, failed
	}
	all := poll(ctx, q, ask, func(all []reply[bool]) bool {
		yes, no, failed := tally(all)
		return yes >= q.need || no > q.spare() || failed > q.spare()
	}, nil)
	yes, no, _ := tally(all)
	if yes >= q.need || no > q.spare() {
		return yes, nil
	}
	return yes, q.none(op, errorsOf(all))
}

func errorsOf[T any](all []reply[T]) (errs []error) {
	for _, r := range all {
		if r.err != nil {
			errs = append(errs, r.err)
		}
	}
	return errs
}

// none says that there was no majority, with what the servers that failed said. It is permanent where so many of them
// said something permanent that the others are not enough.
func (q *quorum) none(op string, errs []error) error {
	permanent := 0
	var words []string
	remedy := "let a majority of the servers run and be reached"
	for _, err := range errs {
		if backends.IsPermanent(err) {
			permanent++
		}
		if e := (*backends.Error)(nil); errors.As(err, &e) {
			words = append(words, e.Err.Error())
			if e.Remedy != "" {
				remedy = e.Remedy
			}
		}
	}
	slices.Sort(words)
	text := fmt.Sprintf("no majority of %d servers agreed", len(q.nodes))
	if len(words) > 0 {
		text += ": " + strings.Join(words, ", and ")
	}
	return &backends.Error{Op: op, Backend: q.c.name, Err: backends.InWords(text, errors.Join(errs...)), Remedy: remedy, Permanent: permanent > q.spare()}
}

func (q *quorum) Pause(ctx context.Context, key string, p backends.Pause) error {
	if err := backends.CheckKey(key); err != nil {
		return err
	}
	return q.majority(ctx, "pause", func(ctx context.Context, n *node) error { return n.pause(ctx, key, p) })
}

func (q *quorum) Resume(ctx context.Context, key string) error {
	yes, err := q.count(ctx, "resume", func(ctx context.Context, n *node) (bool, error) { return n.resume(ctx, key) })
	if err == nil && yes < q.need {
		err = backends.ErrNotHeld
	}
	return err
}

func (q *quorum) Record(ctx context.Context, r backends.Record) error {
	if err := backends.CheckKey(r.Key); err != nil {
		return err
	}
	id := backends.NewOwner()[:16] // tells the servers' copies of a record without a token from another record
	return q.majority(ctx, "record", func(ctx context.Context, n *node) error { return n.record(ctx, r, id) })
}

func (q *quorum) Abandon(ctx context.Context, r backends.Request) error {
	return q.majority(ctx, "give back", func(ctx context.Context, n *node) error { return n.abandon(ctx, r, anyRound) })
}

// Now is the clock in the middle of those that answered.
func (q *quorum) Now(ctx context.Context) (time.Time, error) {
	all, err := read(ctx, q, "read the clock", (*node).now)
	if err != nil {
		return time.Time{}, err
	}
	slices.SortFunc(all, time.Time.Compare)
	return all[len(all)/2], nil
}

// read asks a question that more than half of the servers have to answer.
func read[T any](ctx context.Context, q *quorum, op string, ask func(*node, context.Context) (T, error)) ([]T, error) {
	ctx, cancel := q.c.bound(ctx)
	defer cancel()
	all := poll(ctx, q, func(ctx context.Context, n *node) (T, error) { return ask(n, ctx) },
		func(all []reply[T]) bool { return len(errorsOf(all)) > q.spare() }, nil)
	var list []T
	for _, r := range good(all) {
		list = append(list, r.v)
	}
	if len(list) < q.need {
		return nil, q.none(op, errorsOf(all))
	}
	return list, nil
}
