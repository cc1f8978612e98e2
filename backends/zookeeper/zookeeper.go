// Package zookeeper keeps leases in ZooKeeper.
//
// A lease is an ephemeral node with the owner in its name: it lives as long as its holder's session, which the servers end
// when they have not heard of the holder for its length. So expiry is judged by the leader's clock and by nothing else.
// Everything else that is known of a key stands in the key's own node, a small JSON text, and in a few nodes below it; each
// operation reads the key and then changes it in one transaction that names the version it has read. What one has not
// seen, one does not change.
//
// # Tokens
//
// A token is one more than the last, and at least the transaction id (zxid) of the key's last change. Transaction ids rise
// for ever in an ensemble, so tokens rise even where somebody has deleted the key's node, or the whole chroot, and the
// counter with it. They stay below 2^53 for the first two million elections.
//
// # Beats
//
// Renew writes the lease's node. A server that is cut off from the others still answers pings and reads for syncLimit
// ticks, though the leader may have ended the session meanwhile; only what goes through the quorum proves that the lease is
// there. The client's own pings may keep a session alive for longer than the holder relies on it, never for less.
//
// The session is longer than the lease by what a follower may be late: it tells the leader of the sessions it hears of
// only every half tick.
//
// # Waiting
//
// Those who wait queue up in ephemeral sequential nodes and watch the one before them; only the first watches the key. So
// a release wakes one of a hundred.
package zookeeper

import (
	"context"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// backend is one host's way to the store.
type backend struct {
	c     *config
	clock clock

	mu       sync.Mutex
	closed   bool
	sessions []*session
	watcher  *session            // see watchSession
	leases   map[string]*session // by owner: what was granted here and has not been given back
	places   map[string]*place   // by owner: in the queues of keys
}

var (
	_ backends.Backend  = (*backend)(nil)
	_ backends.Waiter   = (*backend)(nil)
	_ backends.Initer   = (*backend)(nil)
	_ backends.Doctor   = (*backend)(nil)
	_ backends.Limiter  = (*backend)(nil)
	_ backends.OpenFunc = Open
)

// Open prepares the way to the servers that u names and does not use the network: what cannot be reached shows in the first
// operation. It returns *backends.UsageError for a URL that has to be corrected.
func Open(_ context.Context, u *backends.URL, o backends.Options) (backends.Backend, error) {
	c, err := configure(u, o)
	if err != nil {
		return nil, err
	}
	return newBackend(c), nil
}

func newBackend(c *config) *backend {
	return &backend{c: c, leases: map[string]*session{}, places: map[string]*place{}}
}

// Name is the servers and the chroot.
func (b *backend) Name() string { return b.c.name }

// Now is the servers' clock: the leader's, as it stamps what is written.
func (b *backend) Now(ctx context.Context) (time.Time, error) {
	const op = "read the clock"
	s, err := b.session(ctx)
	if err == nil {
		err = b.confirm(ctx, s)
	}
	if err != nil {
		return time.Time{}, b.fail(ctx, op, err)
	}
	now, _ := b.clock.read()
	return now, nil
}

// lag is by how much a session has to be longer than the lease that relies on it. A follower hands on what it has heard
// every half tick, and a session is at least two ticks long by the servers' defaults; a second is half of the usual tick.
func lag(session time.Duration) time.Duration { return min(session/4, time.Second) }

// sessionFor is the length of a session for a lease of ttl.
func sessionFor(ttl time.Duration) time.Duration {
	d := ttl + min(ttl/3, time.Second)
	return min((d + time.Millisecond - 1).Truncate(time.Millisecond), longestSession)
}

// longestSession is what fits into the protocol's milliseconds with room for the client's arithmetic.
const longestSession = 24 * time.Hour

// grantable is how much of ttl a session that was granted for d can keep.
func grantable(ttl, d time.Duration) time.Duration { return min(ttl, d-lag(d)) }

// leaseSession is a session that is as long as a lease of ttl needs. Leases of one length share one.
func (b *backend) leaseSession(ttl time.Duration) (*session, error) {
	return b.sessionOf(sessionFor(ttl), false, nil)
}

// session is any session: one that is there, or a new one long enough for an operation whose connection breaks.
func (b *backend) session(context.Context) (*session, error) {
	return b.sessionOf(b.usualSession(), true, nil)
}

func (b *backend) usualSession() time.Duration { return max(2*b.c.timeout, 10*time.Second) }

// sessionOf finds a session of the length asked for, or any where there is none, or makes one that begins with first.
func (b *backend) sessionOf(asked time.Duration, any bool, first *glance) (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errClosed
	}
	for _, s := range b.sessions {
		if s.asked == asked {
			return s, nil
		}
	}
	if any && len(b.sessions) > 0 {
		return b.sessions[0], nil
	}
	s, err := newSession(b.c, asked, first)
	if err == nil {
		b.sessions = append(b.sessions, s)
	}
	return s, err
}

// keepLease notes that a lease lives in a session, and dropLease that it does not any more.
func (b *backend) keepLease(owner string, s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leases[owner] = s
}

func (b *backend) dropLease(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.leases, owner)
}

// Close ends the sessions. One that still has a lease is left to its time-out instead, since ending it would give the
// lease back.
func (b *backend) Close() error {
	b.mu.Lock()
	sessions := b.sessions
	leave := map[*session]bool{}
	for _, s := range b.leases {
		leave[s] = true
	}
	for _, p := range b.places {
		p.expiry.Stop()
	}
	if b.watcher != nil {
		sessions = append(sessions, b.watcher)
	}
	b.sessions, b.watcher, b.closed = nil, nil, true
	b.mu.Unlock()
	var all sync.WaitGroup
	for _, s := range sessions {
		all.Go(func() { s.close(leave[s]) })
	}
	all.Wait()
	return nil
}
