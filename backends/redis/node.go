package redis

import (
	"context"
	"errors"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// node is one store, whatever the servers behind it: a server, a master and its replicas, or a cluster. A quorum is made
// of several. Its operations are those of the scripts; what they mean for a lease is decided above.
type node struct {
	c     *config
	name  string
	route route
}

// manner says what may be done with an operation to get it through.
type manner int

const (
	// repeatable may be sent twice, as it compares the owner or only reads. One that reports what it found may not: it
	// would find that it is done already.
	repeatable manner = 1 << iota
	// movable may follow its key to another node while the slot is being moved. Reads of many keys may not: of those that
	// have not moved yet the other node would say that they do not exist.
	movable
)

// attempts bounds how often one operation follows the servers' own words to another server.
const attempts = 4

// call runs f on the server that has the bucket. It asks again, within ctx, where the server has positively done nothing
// (it is a replica by now, the slot has moved, the connection was dead before anything was sent), and once more over a
// new connection where an idle one turned out to be dead, if f is repeatable.
func (n *node) call(ctx context.Context, op string, bucket int, m manner, f command) error {
	ctx, cancel := n.c.bound(ctx)
	defer cancel()
	for try := 1; ; try++ {
		s, err := n.route.pick(ctx, bucket)
		o := outcome{}
		if err == nil {
			o, err = s.do(ctx, f)
		}
		if err == nil {
			return nil
		}
		if to := movedTo(err); to != "" && m&movable != 0 && says(err, "ASK ") {
			if o, err = n.asking(ctx, to, f); err == nil {
				return nil
			}
		}
		safe := !o.sent || outdated(err) || o.stale && m&repeatable != 0
		hopeful := n.route.failed(s, err) || o.stale
		if ctx.Err() != nil || !safe || !hopeful || try == attempts {
			return n.c.explain(op, n.name, at(s, err))
		}
		if !o.stale && !pause(ctx, time.Duration(try)*15*time.Millisecond) {
			return n.c.explain(op, n.name, at(s, err))
		}
	}
}

// at names the server that gave an answer.
func at(s *server, err error) error {
	if s == nil || !isReply(err) {
		return err
	}
	return &phaseError{"ask", s.addr, err}
}

// asking marks a context under which each command has to be announced by ASKING, which holds for one command.
type asking struct{}

// asking follows an ASK: the slot is being moved, and the key may be there already.
func (n *node) asking(ctx context.Context, addr string, f command) (outcome, error) {
	r, ok := n.route.(*cluster)
	if !ok {
		return outcome{}, errors.New("a server outside of a cluster answered ASK")
	}
	return r.servers.get(addr).do(context.WithValue(ctx, asking{}, true), f)
}

// bound gives a context without a deadline the one of the backend timeout.
func (c *config) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.timeout)
}

// waitFor is how long replicas may take: what is left of the exchange, with room for the answer.
func waitFor(ctx context.Context) time.Duration {
	left := time.Second
	if t, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(t)/2) // Redis looks at the time only ten times a second
	}
	return max(left, time.Millisecond)
}

// script runs one of the scripts for key.
func (n *node) script(ctx context.Context, op, key string, s *script, replicas int, keys []string, args ...any) ([]any, error) {
	var v []any
	m := repeatable | movable
	if s == scripts.breakLease || s == scripts.resume {
		m = movable
	}
	err := n.call(ctx, op, bucketOf(key), m, func(ctx context.Context, c *goredis.Client) error {
		var err error
		v, err = s.run(ctx, c, replicas, keys, args...)
		return err
	})
	return v, err
}
