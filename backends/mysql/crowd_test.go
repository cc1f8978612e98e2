package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/mysql"
	"github.com/lockrun/lockrun/internal/rounds"
	"github.com/lockrun/lockrun/internal/testserver"
)

// CNC-01: whatever the server's isolation level, of 50 hosts that want a new key at one instant one gets it, and the
// others are told who has it. The same again with a key whose last holder died.
func TestOneOfFiftyAtEachIsolationLevel(t *testing.T) {
	oneOfFifty(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}), rounds.Of(8, 100))
}

func oneOfFifty(t *testing.T, m *testserver.MariaDB, often int) {
	defer m.Exec("SET GLOBAL TRANSACTION ISOLATION LEVEL REPEATABLE READ")
	for _, level := range []string{"READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"} {
		t.Run(level, func(t *testing.T) {
			m.Exec("SET GLOBAL TRANSACTION ISOLATION LEVEL " + level)
			s := newStore(t, m)
			hosts := newHosts(t, 50, func(int) string { return s.url })
			for _, b := range hosts[:25] { // the others ask for READ COMMITTED, as they always do
				mysql.Isolate(b, level)
			}
			for i := range often {
				key := fmt.Sprint("k", i)
				oneWins(t, hosts, key)
				s.expire(key)
				oneWins(t, hosts, key)
			}
		})
	}
}

func newHosts(t *testing.T, n int, url func(i int) string) []backends.Backend {
	hosts := make([]backends.Backend, n)
	for i := range hosts {
		hosts[i] = open(t, url(i), backends.Options{})
		t.Cleanup(func() { hosts[i].Close() })
	}
	return hosts
}

// oneWins lets all hosts ask at one instant.
func oneWins(t *testing.T, hosts []backends.Backend, key string) {
	t.Helper()
	var won, refused atomic.Int32
	start := make(chan struct{})
	var all sync.WaitGroup
	for i, b := range hosts {
		r := request(key)
		r.Holder = fmt.Sprint("host", i)
		all.Go(func() {
			<-start
			_, err := b.Acquire(within(t, 30*time.Second), r)
			var held *backends.HeldError
			switch {
			case err == nil:
				won.Add(1)
			case errors.As(err, &held) && held.Holder != "" && held.Token > 0:
				refused.Add(1)
			default:
				t.Errorf("%s: %v", r.Holder, err)
			}
		})
	}
	close(start)
	all.Wait()
	if won.Load() != 1 || int(refused.Load()) != len(hosts)-1 {
		t.Errorf("%s: %d won and %d were refused, of %d", key, won.Load(), refused.Load(), len(hosts))
	}
}

// LSE-03: short runs, each ended at a random moment, leave nothing that lives on without an owner.
func TestRunsEndedAtAnyMomentLeaveTheKeyFree(t *testing.T) {
	s := newStore(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
	var all sync.WaitGroup
	for i := range 4 {
		key := fmt.Sprint("k", i)
		all.Go(func() {
			b := s.open(t, backends.Options{})
			defer b.Close()
			for range 125 {
				if !endedAtAnyMoment(t, s, b, key) {
					return
				}
			}
		})
	}
	all.Wait()
}

// endedAtAnyMoment acquires and renews until it is told to end, and gives back whatever it may have, as lockrun does.
func endedAtAnyMoment(t *testing.T, s *store, b backends.Backend, key string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), rand.N(12*time.Millisecond))
	defer cancel()
	r := request(key)
	l, err := b.Acquire(ctx, r)
	for err == nil {
		err = l.Renew(ctx, time.Minute)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s: %v", key, err)
		return false
	}
	if l != nil {
		err = l.Release(within(t, 20*time.Second), backends.End{Outcome: backends.Failed})
	} else {
		err = b.Abandon(within(t, 20*time.Second), r)
	}
	if err != nil {
		t.Errorf("%s: %v", key, err)
		return false
	}
	if d := s.dump(key); d != "" {
		t.Errorf("%s is free, and the store has %s", key, d)
		return false
	}
	return true
}

// Galera: the hosts ask different nodes. COMMIT is where all but one of them lose.
func TestOneWinsOnGalera(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts three servers")
	}
	g := testserver.StartGalera(t, testserver.MariaDBConfig{})
	s := newStore(t, g.Nodes[0])
	url := func(i int) string { return addParam(g.Nodes[i%3].URL(), "table="+s.table) }
	for _, n := range g.Nodes[1:] {
		eventually(t, "the tables are on each node", func() bool {
			return n.Query("SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_NAME = ?", s.table+"_schema") == "1" &&
				n.Query("SELECT COUNT(*) FROM "+s.table+"_schema") == "1" // its row comes after it
		})
	}
	hosts := newHosts(t, 30, url)
	for i := range 5 {
		oneWins(t, hosts, fmt.Sprint("k", i))
	}
	handOver(t, hosts)
	l := mustAcquire(t, hosts[0], request("waited for"))
	done := waitFor(t, hosts[1], request("waited for"))
	eventually(t, "a host on another node waits", func() bool {
		all, err := hosts[0].Status(within(t, 20*time.Second), "waited for")
		return err == nil && *all[0].Waiters == 1
	})
	mustRelease(t, l)
	if err := <-done; err != nil {
		t.Errorf("Wait = %v", err)
	}
	if checks := doctor(t, hosts[1]); checks["galera"].Cause == "" || !checks["galera"].OK {
		t.Errorf("doctor says %+v of the cluster", checks)
	}
	withoutQuorum(t, g, hosts[0])
}

// withoutQuorum leaves the first node alone: it knows nothing for certain any more, and says so.
func withoutQuorum(t *testing.T, g *testserver.Galera, b backends.Backend) {
	l := mustAcquire(t, b, request("alone"))
	for _, n := range g.Nodes[1:] {
		n.Kill()
	}
	var err error
	eventually(t, "the node notices", func() bool {
		err = l.Renew(within(t, 5*time.Second), time.Minute)
		return err != nil && strings.Contains(err.Error(), "1047")
	})
	unknown(t, err, false, "quorum")
	_, err = b.Acquire(within(t, 5*time.Second), request("other"))
	unknown(t, err, false, "quorum")
	if c := doctor(t, b)["galera"]; c.OK {
		t.Errorf("doctor says %+v of a node without quorum", c)
	}
}

// handOver passes one key from node to node. No update under the lease is lost, and no token is granted twice: MariaDB
// can call a COMMIT good that it has rolled back, see conn.query.
func handOver(t *testing.T, hosts []backends.Backend) {
	const each = 80
	var sum, last int64
	var guard sync.Mutex
	var all sync.WaitGroup
	for i, b := range hosts[:6] {
		all.Go(func() {
			for range each {
				l := acquireSoon(t, b, request("shared"))
				guard.Lock()
				read, before := sum, last
				guard.Unlock()
				runtime.Gosched()
				guard.Lock()
				sum, last = read+1, l.Grant().Token
				guard.Unlock()
				if l.Grant().Token <= before {
					t.Errorf("host %d: token %d after %d", i, l.Grant().Token, before)
				}
				mustRelease(t, l)
			}
		})
	}
	all.Wait()
	if sum != 6*each {
		t.Errorf("%d updates, want %d", sum, 6*each)
	}
}

// A key that is paused while one of its slots is held refuses whoever wants the other: waiting must not turn into asking
// again and again.
func TestWaitingForAPausedKeyIsIdle(t *testing.T) {
	s := newStore(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
	b := s.open(t, backends.Options{})
	defer b.Close()
	r, held := request("k"), request("k")
	r.Slots, held.Slots = 2, 2
	mustAcquire(t, b, held)
	if err := b.Pause(within(t, 20*time.Second), "k", backends.Pause{By: "ops"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := b.(backends.Waiter).Wait(ctx, r); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait = %v while the key is paused", err)
	}
}
