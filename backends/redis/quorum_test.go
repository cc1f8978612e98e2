package redis

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/rounds"
	"github.com/lockrun/lockrun/internal/testserver"
)

func itoa(n int) string { return strconv.Itoa(n) }

// TestQuorumBlackHole is FOV-03 (a): one server of three that swallows everything costs less than its timeout.
func TestQuorumBlackHole(t *testing.T) {
	q := testserver.StartQuorum(t, 3, testserver.RedisConfig{})
	q.Servers[1].Freeze()
	soon(t, 1500*time.Millisecond, "a run", func() {
		b := open(t, q.URL(), backends.Options{})
		l := acquire(t, b, request("k"))
		if err := l.Renew(context.Background(), time.Minute); err != nil {
			t.Errorf("Renew: %v", err)
		}
		refused(t, b, request("k"))
		release(t, l)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	b := opened(t, q.URL(), backends.Options{})
	if h, err := b.History(context.Background(), backends.Query{Key: "k"}); err != nil || len(h) != 1 || h[0].Outcome != backends.Succeeded {
		t.Errorf("History = %+v, %v", h, err)
	}
}

// TestQuorumRestartedEmpty is FOV-03 (b): servers that lose everything one after the other are written again while the
// others have the lease.
func TestQuorumRestartedEmpty(t *testing.T) {
	q := testserver.StartQuorum(t, 3, testserver.RedisConfig{})
	b := opened(t, q.URL(), backends.Options{})
	l := acquire(t, b, request("k"))
	for i := range 3 {
		q.Servers[i].RestartEmpty()
		if err := l.Renew(context.Background(), time.Minute); err != nil {
			t.Fatalf("Renew after server %d came back empty: %v", i, err)
		}
		if n := q.Servers[i].Must("EXISTS", b.(*quorum).c.names("k").lease); n != int64(1) {
			t.Fatalf("server %d was not written again", i)
		}
		if held := refused(t, opened(t, q.URL(), backends.Options{}), request("k")); held.Token != l.Grant().Token {
			t.Errorf("held with token %d, want %d", held.Token, l.Grant().Token)
		}
	}
	q.Servers[0].RestartEmpty()
	q.Servers[1].RestartEmpty()
	if err := l.Renew(context.Background(), time.Minute); !errors.Is(err, backends.ErrLost) {
		t.Errorf("Renew with one server of three left = %v, want ErrLost", err)
	}
	if next := acquire(t, b, withoutRecord(q, b, "k")).Grant().Token; next <= l.Grant().Token {
		t.Errorf("token %d after %d", next, l.Grant().Token)
	}
}

// TestQuorumRestoresNoSecondRun: a server that forgot a run may have another of the same id in another slot by now. To
// write the first one beside it would make two majorities out of three servers.
func TestQuorumRestoresNoSecondRun(t *testing.T) {
	q := testserver.StartQuorum(t, 3, testserver.RedisConfig{})
	b := opened(t, q.URL(), backends.Options{})
	named := func(id string) backends.Request {
		r := request("k")
		r.Slots, r.RunID = 3, id
		return r
	}
	l := acquire(t, b, named("r1"))
	q.Servers[2].RestartEmpty()
	alone := opened(t, q.Servers[2].URL(), backends.Options{})
	first := acquire(t, alone, named(""))
	second := acquire(t, alone, named("r1"))
	release(t, first)
	if l.Grant().Slot != 0 || second.Grant().Slot != 1 {
		t.Fatalf("slots %d and %d", l.Grant().Slot, second.Grant().Slot)
	}
	lease := b.(*quorum).c.names("k").lease
	if err := l.Renew(context.Background(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if n := q.Servers[2].Must("HEXISTS", lease, "s0"); n != int64(0) {
		t.Error("the server has both")
	}
	release(t, second)
	if err := l.Renew(context.Background(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if n := q.Servers[2].Must("HEXISTS", lease, "s0"); n != int64(1) {
		t.Error("the run was not written again once the other had ended")
	}
}

// withoutRecord takes the last copy of a lost lease away, which would only make the next one wait for its TTL.
func withoutRecord(q *testserver.Quorum, b backends.Backend, key string) backends.Request {
	q.Servers[2].Must("HDEL", b.(*quorum).c.names(key).lease, "s0")
	return request(key)
}

// TestQuorumFrozen is FOV-03 (c): without a majority nobody knows, neither the holder nor a contender, and a lease that
// a minority granted is given back at once.
func TestQuorumFrozen(t *testing.T) {
	q := testserver.StartQuorum(t, 3, testserver.RedisConfig{})
	b := opened(t, q.URL(), backends.Options{})
	l := acquire(t, b, request("k"))
	q.Servers[0].Freeze()
	q.Servers[1].Freeze()
	soon(t, 1500*time.Millisecond, "a renewal", func() {
		unknown(t, l.Renew(within(t, 500*time.Millisecond), time.Minute), false, "no majority of 3 servers", q.Servers[0].Addr(), q.Servers[1].Addr())
	})
	soon(t, 1500*time.Millisecond, "an acquire", func() {
		_, err := opened(t, q.URL(), backends.Options{}).Acquire(within(t, 500*time.Millisecond), request("other"))
		unknown(t, err, false, "no majority of 3 servers")
	})
	q.Servers[0].Thaw()
	q.Servers[1].Thaw()

	q.Servers[0].Kill()
	q.Servers[1].Kill()
	r := request("third")
	_, err := b.Acquire(within(t, 2*time.Second), r)
	unknown(t, err, false, "no majority of 3 servers", "connect to", "is the server running")
	if n := q.Servers[2].Must("HEXISTS", b.(*quorum).c.names("third").lease, "s0"); n != int64(0) {
		t.Error("the minority's grant was not given back")
	}
}

// TestQuorumSplit: three rivals have one server each. Nobody has the lease, so nobody may be told that it is held.
func TestQuorumSplit(t *testing.T) {
	q := testserver.StartQuorum(t, 3, testserver.RedisConfig{})
	b := opened(t, q.URL(), backends.Options{Timeout: 500 * time.Millisecond})
	for _, s := range q.Servers {
		r := request("k")
		r.Holder = "rival on " + s.Addr()
		acquire(t, opened(t, s.URL(), backends.Options{}), r)
	}
	soon(t, 2*time.Second, "the acquire", func() {
		_, err := b.Acquire(context.Background(), request("k"))
		unknown(t, err, false, "nobody got a majority")
	})
	if s := stateOf(t, b, "k"); s.State != backends.Free {
		t.Errorf("the key is %+v", s)
	}
}

// TestQuorumTokens: they rise whichever majority grants them, and each holder's is the one that everybody reads.
func TestQuorumTokens(t *testing.T) {
	q := testserver.StartQuorum(t, 3, testserver.RedisConfig{})
	b := opened(t, q.URL(), backends.Options{})
	// A server whose clock once ran ahead hands out tokens far above the others'.
	ahead := int64(1) << 51
	q.Servers[2].Must("HSET", b.(*quorum).c.names("k").lease, "lockrun", "1", "token", strconv.FormatInt(ahead, 10))
	last := int64(0)
	for round := range 9 {
		away := q.Servers[round%3]
		away.Freeze()
		l := acquire(t, b, request("k"))
		if got := l.Grant().Token; got <= last {
			t.Fatalf("round %d: token %d after %d", round, got, last)
		}
		last = l.Grant().Token
		if s := stateOf(t, b, "k"); s.Token != last {
			t.Errorf("round %d: status tells token %d, granted was %d", round, s.Token, last)
		}
		release(t, l)
		away.Thaw()
	}
	if last <= ahead {
		t.Errorf("token %d is not above that of the server ahead", last)
	}
}

// TestQuorumSlots: three holders, each on another two of three servers, leave a free slot on every server. It is none.
func TestQuorumSlots(t *testing.T) {
	q := testserver.StartQuorum(t, 3, testserver.RedisConfig{})
	b := opened(t, q.URL(), backends.Options{Timeout: time.Second})
	for slot := range 3 {
		r := request("k")
		r.Slots = 3
		if got := acquire(t, b, r).Grant().Slot; got != slot {
			t.Fatalf("granted slot %d, want %d", got, slot)
		}
	}
	for i, s := range q.Servers {
		s.Must("HDEL", b.(*quorum).c.names("k").lease, "s"+itoa(i))
	}
	for range 5 {
		r := request("k")
		r.Slots = 3
		refused(t, b, r)
	}
	if all, err := b.Status(context.Background(), "k"); err != nil || len(all) != 3 {
		t.Errorf("Status = %+v, %v", all, err)
	}
}

// TestQuorumCrowd is CNC-01: exactly one of many gets the majority, round after round, and the others are told who.
func TestQuorumCrowd(t *testing.T) {
	q := testserver.StartQuorum(t, 3, testserver.RedisConfig{})
	crowd(t, q.URL(), rounds.Of(20, 50), rounds.Of(10, 100))
}

// TestCrowd is CNC-01 on one server.
func TestCrowd(t *testing.T) {
	crowd(t, testserver.StartRedis(t, testserver.RedisConfig{}).URL(), 50, rounds.Of(30, 100))
}

func crowd(t *testing.T, url string, n, times int) {
	t.Helper()
	hosts := make([]backends.Backend, n)
	for i := range hosts {
		hosts[i] = opened(t, url, backends.Options{Timeout: 20 * time.Second})
	}
	for round := range times {
		key := "k" + itoa(round)
		won := make(chan backends.Lease, n)
		var start, end sync.WaitGroup
		start.Add(1)
		for _, b := range hosts {
			end.Go(func() {
				start.Wait()
				l, err := b.Acquire(context.Background(), request(key))
				var held *backends.HeldError
				switch {
				case err == nil:
					won <- l
				case !errors.As(err, &held) || held.Holder != "alpha" || held.Token == 0:
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		start.Done()
		end.Wait()
		if len(won) != 1 {
			t.Fatalf("round %d: %d won", round, len(won))
		}
		release(t, <-won)
	}
}

// TestQuorumForgetsNoRun: a server that was away for a run learns of it, and one that lost its history is made up for.
func TestQuorumForgetsNoRun(t *testing.T) {
	q := testserver.StartQuorum(t, 3, testserver.RedisConfig{})
	b := opened(t, q.URL(), backends.Options{})
	r := request("k")
	r.RunID = "r1"
	release(t, acquire(t, b, r))
	for i := range 3 {
		q.Servers[i].RestartEmpty()
		r := request("k")
		r.RunID, r.Last = "r1", true
		var done *backends.DoneError
		if _, err := b.Acquire(context.Background(), r); i < 2 && !errors.As(err, &done) {
			t.Errorf("with %d of 3 servers emptied: %v, want *DoneError", i+1, err)
		}
		if i == 1 {
			break
		}
	}
	h, err := b.History(context.Background(), backends.Query{})
	if err != nil || len(h) == 0 || h[len(h)-1].Outcome != backends.Succeeded {
		t.Errorf("History = %+v, %v", h, err)
	}
}

// TestQuorumLateServer: a server that grants after the others have decided is told what became of it.
func TestQuorumLateServer(t *testing.T) {
	q := testserver.StartQuorum(t, 3, testserver.RedisConfig{})
	slow := testserver.StartProxy(t, q.Servers[2].Addr())
	b := opened(t, "redis+quorum://"+q.Servers[0].Addr()+","+q.Servers[1].Addr()+","+slow.Addr(), backends.Options{})
	release(t, acquire(t, b, request("warm")))
	slow.Delay(40 * time.Millisecond)
	l := acquire(t, b, request("k"))
	n := b.(*quorum).nodes[2]
	eventually(t, "the late server having the same token", func() bool {
		d, err := n.dumps(context.Background(), "test", []string{"k"})
		return err == nil && len(d[0].rows) == 1 && d[0].rows[0].token == l.Grant().Token && d[0].rows[0].state == "L"
	})
	refused(t, b, request("k"))
	release(t, l)
	eventually(t, "the late server being free", func() bool {
		var left bool
		err := n.call(context.Background(), "test", bucketOf("k"), repeatable, func(ctx context.Context, c *goredis.Client) (err error) {
			left, err = c.HExists(ctx, n.c.names("k").lease, "s0").Result()
			return err
		})
		return err == nil && !left
	})
}

// TestQuorumExclusion: whatever happens to one server of three at a time, no two have the lease together, no update under
// it is lost, and tokens rise.
func TestQuorumExclusion(t *testing.T) {
	q := testserver.StartQuorum(t, 3, testserver.RedisConfig{Persist: true})
	const contenders, grants = 5, 60
	var sum, last int64 // deliberately unprotected by anything but the lease
	var done, inside atomic.Int64
	var wg sync.WaitGroup
	for range contenders {
		b := opened(t, q.URL(), backends.Options{Timeout: 2 * time.Second})
		wg.Go(func() {
			for done.Load() < grants && !t.Failed() {
				r := request("k")
				l, err := b.Acquire(context.Background(), r)
				if err != nil {
					if !refusal(err) {
						_ = b.Abandon(context.Background(), r)
					}
					pause(context.Background(), 5*time.Millisecond)
					continue
				}
				if inside.Add(1) != 1 || l.Grant().Token <= last {
					t.Errorf("%d inside, token %d after %d", inside.Load(), l.Grant().Token, last)
				}
				was := sum
				pause(context.Background(), 2*time.Millisecond)
				sum, last = was+1, l.Grant().Token
				done.Add(1)
				inside.Add(-1)
				for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
					if err := l.Release(context.Background(), backends.End{Outcome: backends.Succeeded}); err == nil {
						break
					} else if errors.Is(err, backends.ErrLost) {
						t.Errorf("a lease of a minute was lost: %v", err)
					}
				}
			}
		})
	}
	for i := 0; done.Load() < grants && !t.Failed(); i++ {
		s := q.Servers[i%3]
		if i%2 == 0 {
			s.Freeze()
			pause(context.Background(), 60*time.Millisecond)
			s.Thaw()
		} else {
			s.Restart()
		}
		pause(context.Background(), 40*time.Millisecond)
	}
	wg.Wait()
	if sum != done.Load() {
		t.Errorf("%d updates of %d are left", sum, done.Load())
	}
}
