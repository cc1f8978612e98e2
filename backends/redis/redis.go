// Package redis keeps leases in Redis 6.2 or later, or Valkey: a single server, a master that Sentinels watch, a cluster,
// or the majority of independent servers.
//
// # How a key is stored
//
// One hash holds everything that an acquire looks at: the token counter, the pause, and a field for each slot with owner,
// token, times and who. It lies beside a sorted set of run records by token, a list of refusals, sorted sets of done-marks
// and of attempts, the waiters, and a list that waiters block on; see names. Each operation is one Lua script, so that the
// test and the change are one step, and the server's TIME inside the script is the only clock that judges expiry.
//
// The lease does not expire through PEXPIRE, although that is what locks in Redis usually do:
//   - a lease that ran out is needed afterwards, for the record that its holder crashed, for what is left of a minimum
//     hold, and for the counter of tokens and attempts beside it;
//   - under the eviction policies volatile-*, only keys with an expiry are evicted. A lease without one stays, and the
//     run records, which do have one, go first;
//   - PEXPIRE is an instant of the same wall clock of the server as TIME is, so it would survive a clock step no better.
//
// What is evicted all the same (allkeys-*) is gone in whole hashes: without the hash the lease is lost, its holder learns
// it at the next beat, and the next token still rises, as it is never below the server's microseconds. Records, refusals
// and waiters expire by themselves once nobody writes any more. Hash and done-marks stay, as the contract says.
package redis

import (
	"context"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockrun/lockrun/backends"
)

// silence keeps go-redis from writing to stderr by itself: what matters of it comes back as an error.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

var silenceOnce = sync.OnceFunc(func() { goredis.SetLogger(silence{}) })

// backend is a single server, a master that Sentinels watch, or a cluster.
type backend struct {
	node *node
	c    *config
	bg   background
}

var (
	_ backends.Backend = (*backend)(nil)
	_ backends.Waiter  = (*backend)(nil)
	_ backends.Doctor  = (*backend)(nil)
)

var _ backends.OpenFunc = Open

// Open prepares a backend for redis://, rediss://, redis+sentinel://, redis+cluster:// and redis+quorum://. It connects to
// nothing: the first operation does, under its own context. It returns a *backends.UsageError for a URL that has to be
// corrected. Nothing has to be created in Redis, so options.ReadOnly makes no difference.
func Open(_ context.Context, u *backends.URL, o backends.Options) (backends.Backend, error) {
	c, err := configure(u, o)
	if err != nil {
		return nil, err
	}
	silenceOnce()
	if c.scheme == "redis+quorum" {
		return newQuorum(c), nil
	}
	return &backend{c: c, node: &node{c: c, name: c.name, route: c.route()}}, nil
}

func (c *config) route() route {
	switch c.scheme {
	case "redis+sentinel":
		return newSentinel(c)
	case "redis+cluster":
		return newCluster(c)
	}
	return fixed{c.server(c.addrs[0])}
}

func (b *backend) Name() string { return b.c.name }

func (b *backend) Close() error {
	b.bg.wait(courtesy)
	b.node.route.close()
	return nil
}

// courtesy bounds what is done after the answer: undoing, telling the slower servers, unregistering waiters. None of it
// is needed for safety.
const courtesy = 250 * time.Millisecond

// background is work that nobody waits for, except Close, and that only for a moment. Work may begin while Close waits,
// which a sync.WaitGroup does not allow.
type background struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n falls to 0; nil while nobody waits for that
}

func (b *background) do(ctx context.Context, bound time.Duration, f func(context.Context)) {
	b.mu.Lock()
	b.n++
	b.mu.Unlock()
	go func() {
		defer b.done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
		defer cancel()
		f(ctx)
	}()
}

func (b *background) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n--; b.n == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

func (b *background) wait(bound time.Duration) {
	b.mu.Lock()
	if b.n == 0 {
		b.mu.Unlock()
		return
	}
	if b.idle == nil {
		b.idle = make(chan struct{})
	}
	idle := b.idle
	b.mu.Unlock()
	t := time.NewTimer(bound)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	}
}

func (b *backend) Now(ctx context.Context) (time.Time, error) { return b.node.now(ctx) }

func (b *backend) Pause(ctx context.Context, key string, p backends.Pause) error {
	return b.node.pause(ctx, key, p)
}

func (b *backend) Resume(ctx context.Context, key string) error {
	was, err := b.node.resume(ctx, key)
	if err == nil && !was {
		err = backends.ErrNotHeld
	}
	return err
}

func (b *backend) Record(ctx context.Context, r backends.Record) error {
	return b.node.record(ctx, r, "")
}
