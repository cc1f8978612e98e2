package zookeeper

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// crowd are hosts that wait for one key.
type crowd struct {
	url     string
	woken   chan backends.Lease
	told    atomic.Int64 // notifications of nodes that changed, to whomever
	waiting sync.WaitGroup
}

// join starts n hosts that wait for key until they have it, and returns when all of them stand in the queue.
func join(t *testing.T, s *store, key string, n int) *crowd {
	t.Helper()
	c := &crowd{url: s.url, woken: make(chan backends.Lease, n)}
	for range n {
		b := opened(t, s.url, backends.Options{}).(*backend)
		b.c.watched = func(e zk.Event) { c.told.Add(1) }
		ctx, r := within(t, 2*time.Minute), request(key)
		c.waiting.Go(func() {
			for {
				if err := b.Wait(ctx, r); err != nil {
					return
				}
				if l, err := b.Acquire(ctx, r); err == nil {
					c.woken <- l
					return
				}
			}
		})
	}
	reader := opened(t, s.url, backends.Options{})
	eventually(t, "the waiters being counted", func() bool { return *stateOf(t, reader, key).Waiters == n })
	return c
}

// A hundred wait, and each release is told to one of them: no herd. The order is that of arrival.
func TestOneReleaseWakesOneOfAHundred(t *testing.T) {
	const many, rounds = 100, 10
	z := oneServer(t)
	s := newStore(t, z.URL(chroot()))
	l := acquire(t, opened(t, s.url, backends.Options{}), request("k"))
	c := join(t, s, "k", many)
	before := c.told.Load()
	var took []time.Duration
	for range rounds {
		start := time.Now()
		release(t, l)
		l = <-c.woken
		took = append(took, time.Since(start))
	}
	// Who is first is told that the key's node has changed, and that a lease under it has gone; who is next then sees the
	// first leave the queue.
	told := c.told.Load() - before
	slices.Sort(took)
	t.Logf("%d notifications for %d handovers among %d; a handover took %v in the middle, %v at worst", told, rounds, many, took[rounds/2], took[rounds-1])
	if told > 5*rounds {
		t.Errorf("%d notifications for %d handovers", told, rounds)
	}
	if took[rounds/2] > 500*time.Millisecond {
		t.Errorf("a handover took %v", took[rounds/2])
	}
}

// Who was woken and did not come back makes room for the next one.
func TestAWaiterThatDoesNotComeBack(t *testing.T) {
	z := oneServer(t)
	s := newStore(t, z.URL(chroot()))
	first, second := opened(t, s.url, backends.Options{}).(*backend), opened(t, s.url, backends.Options{}).(*backend)
	l := acquire(t, second, request("k"))
	woken := make(chan error, 1)
	go func() { woken <- first.Wait(within(t, enough), request("k")) }()
	eventually(t, "one waits", func() bool { return *stateOf(t, second, "k").Waiters == 1 })
	go func() { woken <- second.Wait(within(t, enough), request("k")) }()
	eventually(t, "two wait", func() bool { return *stateOf(t, second, "k").Waiters == 2 })
	release(t, l)
	for range 2 {
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "nobody waits", func() bool { return *stateOf(t, second, "k").Waiters == 0 })
}

// A waiter whose session was ended by the servers waits on in a new one.
func TestAWaiterWhoseSessionEnds(t *testing.T) {
	z := oneServer(t)
	s := newStore(t, z.URL(chroot()))
	holder, waiter := opened(t, s.url, backends.Options{}), s.open(backends.Options{}).(*backend)
	defer waiter.Close()
	l := acquire(t, holder, request("k"))
	woken := make(chan error, 1)
	go func() { woken <- waiter.Wait(within(t, enough), request("k")) }()
	eventually(t, "one waits", func() bool { return *stateOf(t, holder, "k").Waiters == 1 })
	id := waiter.sessions[0].conn.SessionID()
	s.gate.Lock()
	endSession(t, s.c.hosts[0], id)
	s.gate.Unlock()
	eventually(t, "it waits in another session", func() bool {
		return *stateOf(t, holder, "k").Waiters == 1 && waiter.sessions[0].conn.SessionID() != id
	})
	release(t, l)
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
}

// Connections that break while somebody waits cost neither the place nor the notification.
func TestAWaiterWhoseConnectionsBreak(t *testing.T) {
	z := oneServer(t)
	p := testserver.StartProxy(t, z.Addr())
	s := newStore(t, z.URL(chroot()))
	holder := opened(t, s.url, backends.Options{})
	waiter := opened(t, strings.Replace(s.url, z.Addr(), p.Addr(), 1), backends.Options{}).(*backend)
	l := acquire(t, holder, request("k"))
	woken := make(chan error, 1)
	go func() { woken <- waiter.Wait(within(t, enough), request("k")) }()
	eventually(t, "one waits", func() bool { return *stateOf(t, holder, "k").Waiters == 1 })
	for range 3 {
		n := p.Accepted()
		p.Reset()
		eventually(t, "both are there again", func() bool { return p.Accepted() >= n+2 })
		if n := *stateOf(t, holder, "k").Waiters; n != 1 {
			t.Errorf("%d wait", n)
		}
	}
	release(t, l)
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
}
