package redis

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// waiters starts n hosts that wait for key, and returns when all of them have registered.
func waiters(t *testing.T, url, key string, n int) <-chan time.Time {
	t.Helper()
	woken := make(chan time.Time, n)
	for range n {
		b := opened(t, url, backends.Options{})
		go func() {
			r := request(key)
			if err := b.(backends.Waiter).Wait(within(t, time.Minute), r); err == nil {
				now := time.Now()
				_ = b.Abandon(context.Background(), r) // it leaves, so that the next ones can be counted
				woken <- now
			}
		}()
	}
	b := opened(t, url, backends.Options{})
	eventually(t, "the waiters being counted", func() bool { s := stateOf(t, b, key); return s.Waiters != nil && *s.Waiters == n })
	return woken
}

// TestHandover: a release wakes a waiter at once on every topology. The median is measured by Benchmark; here the bound is
// one that a busy machine keeps, and that no polling would.
func TestHandover(t *testing.T) {
	for _, top := range topologies {
		t.Run(top.name, func(t *testing.T) {
			url := top.start(t)
			b := opened(t, url, backends.Options{})
			var took []time.Duration
			for range 9 {
				l := acquire(t, b, request("k"))
				woken := waiters(t, url, "k", 1)
				start := time.Now()
				release(t, l)
				took = append(took, (<-woken).Sub(start))
			}
			slices.Sort(took)
			t.Logf("from release to wake: median %v, worst %v", took[len(took)/2], took[len(took)-1])
			if took[len(took)/2] > 250*time.Millisecond {
				t.Errorf("a waiter was woken after %v", took[len(took)/2])
			}
		})
	}
}

// TestOneReleaseWakesOne: many waiters are no herd, and none of them polls.
func TestOneReleaseWakesOne(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisConfig{})
	b := opened(t, server.URL(), backends.Options{})
	l := acquire(t, b, request("k"))
	woken := waiters(t, server.URL(), "k", 10)
	for range 3 {
		release(t, l)
		<-woken
		l = acquire(t, b, request("k"))
		if n := len(woken); n > 0 {
			t.Fatalf("one release woke %d more", n)
		}
	}
	monitor := server.Monitor()
	time.Sleep(lookAgain) // the one test of what happens while nothing happens
	asked := 0
	for _, c := range monitor.Commands() {
		if strings.HasPrefix(strings.ToLower(c), `"evalsha"`) {
			asked++
		}
	}
	if asked > 2*7 {
		t.Errorf("7 waiters asked %d times in %v", asked, lookAgain)
	}
}

// TestWaitEndsWithTheLease: a holder that died wakes nobody; its waiters come when its lease has run out.
func TestWaitEndsWithTheLease(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisConfig{})
	b := opened(t, server.URL(), backends.Options{})
	r := request("k")
	r.TTL = 400 * time.Millisecond
	acquire(t, b, r)
	start := time.Now()
	if err := b.(backends.Waiter).Wait(within(t, time.Minute), request("k")); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 300*time.Millisecond || took > 2*time.Second {
		t.Errorf("the wait took %v", took)
	}
	acquire(t, b, request("k"))
}

// TestLeavingWaiters: a waiter that gives up is not counted any more.
func TestLeavingWaiters(t *testing.T) {
	for _, start := range []func() string{
		func() string { return testserver.StartRedis(t, testserver.RedisConfig{}).URL() },
		func() string { return testserver.StartQuorum(t, 3, testserver.RedisConfig{}).URL() },
	} {
		url := start()
		b := opened(t, url, backends.Options{})
		acquire(t, b, request("k"))
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { _ = b.(backends.Waiter).Wait(ctx, request("k")) })
		eventually(t, "one waiter", func() bool { return *stateOf(t, b, "k").Waiters == 1 })
		cancel()
		wg.Wait()
		eventually(t, "no waiter", func() bool { return *stateOf(t, b, "k").Waiters == 0 })
	}
}
