package redis

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

func TestEachOperationIsOneExchange(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisConfig{Password: secret})
	warm := opened(t, server.URL(), backends.Options{})
	w := acquire(t, warm, request("k"))
	if err := w.Renew(context.Background(), time.Minute); err != nil {
		t.Fatal(err)
	}
	release(t, w) // the scripts are in the server by now
	monitor := server.Monitor()
	proxy := testserver.StartProxy(t, server.Addr())
	b := opened(t, "redis://"+proxy.Addr()+"/3", backends.Options{Password: secret})

	count := func(want int, what string, f func()) {
		t.Helper()
		before := proxy.Requests()
		f()
		if n := proxy.Requests() - before; n != want {
			t.Errorf("%s took %d exchanges, want %d", what, n, want)
		}
	}
	var l backends.Lease
	count(2, "the greeting and the first acquire", func() { l = acquire(t, b, request("k")) })
	count(1, "a renewal", func() {
		if err := l.Renew(context.Background(), time.Minute); err != nil {
			t.Error(err)
		}
	})
	count(1, "a refusal that is recorded", func() {
		r := request("k")
		r.Last = true
		refused(t, b, r)
	})
	count(1, "the release", func() { release(t, l) })
	count(1, "an acquire later on", func() { l = acquire(t, b, request("k")) })

	for _, c := range monitor.Commands() {
		name := strings.ToLower(strings.Trim(strings.Fields(c)[0], `"`))
		if name != "evalsha" && name != "auth" && name != "select" && name != "client" {
			t.Errorf("the server was also asked %s", c)
		}
	}
}

// TestScriptsAreSentAgain: after SCRIPT FLUSH, a restart or a failover the server knows no script.
func TestScriptsAreSentAgain(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisConfig{})
	b := opened(t, server.URL(), backends.Options{})
	l := acquire(t, b, request("k"))
	server.Must("SCRIPT", "FLUSH")
	if err := l.Renew(context.Background(), time.Minute); err != nil {
		t.Error(err)
	}
	server.Must("SCRIPT", "FLUSH")
	release(t, l)
}

// TestLostReply is CON-02: the lease is recognised as our own, or given back; it is never taken for another's.
func TestLostReply(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisConfig{})
	proxy := testserver.StartProxy(t, server.Addr())
	for _, after := range []testserver.After{testserver.KeepOpen, testserver.CloseIt} {
		b := opened(t, "redis://"+proxy.Addr(), backends.Options{})
		release(t, acquire(t, b, request("warm")))
		r := request("k")
		lost := proxy.LoseReply("evalsha", after)
		_, err := b.Acquire(within(t, 300*time.Millisecond), r)
		if !lost() {
			t.Fatal("no reply was lost")
		}
		if err != nil {
			unknown(t, err, false)
		}
		first := stateOf(t, opened(t, server.URL(), backends.Options{}), "k")
		l := acquire(t, b, r)
		if g := l.Grant(); g.Token != first.Token || g.Attempt != first.Attempt {
			t.Errorf("granted %+v again, the lease had token %d", g, first.Token)
		}
		lost = proxy.LoseReply("evalsha", after)
		err = l.Release(within(t, 300*time.Millisecond), backends.End{Outcome: backends.Failed})
		if err != nil {
			unknown(t, err, false)
			err = l.Release(context.Background(), backends.End{Outcome: backends.Failed})
		}
		if err != nil || !lost() {
			t.Errorf("the release ended with %v", err)
		}
		lost = proxy.LoseReply("evalsha", after)
		r = request("k")
		if _, err = b.Acquire(within(t, 300*time.Millisecond), r); err != nil || after == testserver.KeepOpen {
			if err := b.Abandon(context.Background(), r); err != nil || !lost() {
				t.Errorf("Abandon: %v", err)
			}
		} else if err := b.Abandon(context.Background(), r); err != nil {
			t.Errorf("Abandon: %v", err)
		}
		if s := stateOf(t, b, "k"); s.State != backends.Free {
			t.Errorf("after an abandoned acquire the key is %s", s.State)
		}
	}
}

// TestLostRefusal: a refusal whose reply was lost is asked for again, and is one refusal in the history.
func TestLostRefusal(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisConfig{})
	proxy := testserver.StartProxy(t, server.Addr())
	b := opened(t, "redis://"+proxy.Addr(), backends.Options{})
	acquire(t, b, request("k"))
	for n, after := range []testserver.After{testserver.KeepOpen, testserver.CloseIt} { // the client may dial and ask again by itself
		r := request("k")
		r.Last = true
		lost := proxy.LoseReply("evalsha", after)
		_, err := b.Acquire(within(t, 300*time.Millisecond), r)
		if !lost() {
			t.Fatal("no reply was lost")
		}
		if after == testserver.KeepOpen {
			unknown(t, err, false)
		}
		refused(t, b, r)
		if h, err := b.History(context.Background(), backends.Query{Key: "k"}); err != nil || len(h) != n+1 {
			t.Errorf("%d runs were refused, and the history has %+v, %v", n+1, h, err)
		}
	}
}

// TestUnrecordedRefusal: a refusal stands where it cannot be written down, because of a missing right or a foreign value.
func TestUnrecordedRefusal(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisConfig{})
	owner := opened(t, server.URL(), backends.Options{})
	acquire(t, owner, request("k"))
	server.Must("ACL", "SETUSER", "poor", "on", ">"+secret, "~*", "+@all", "-lpush")
	poor := opened(t, "redis://poor@"+server.Addr(), backends.Options{Password: secret})
	skips := owner.(*backend).c.names("k").skips
	for _, b := range []backends.Backend{poor, owner} {
		r := request("k")
		r.Last = true
		if held := refused(t, b, r); held.Holder != "alpha" {
			t.Errorf("held by %q", held.Holder)
		}
		server.Must("SET", skips, "foreign")
	}
	if got := server.Must("GET", skips); got != "foreign" {
		t.Errorf("the foreign value has become %v", got)
	}
}

func stateOf(t testing.TB, b backends.Backend, key string) backends.State {
	t.Helper()
	all, err := b.Status(context.Background(), key)
	if err != nil || len(all) != 1 {
		t.Fatalf("Status %q = %+v, %v", key, all, err)
	}
	return all[0]
}

// TestIdleConnections is CON-07: something between us and the server drops connections that idle.
func TestIdleConnections(t *testing.T) {
	certs := testserver.NewCerts(t)
	for _, config := range []testserver.RedisConfig{{}, {TLS: certs}} {
		server := testserver.StartRedis(t, config)
		proxy := testserver.StartProxy(t, server.Addr())
		url := strings.Replace(server.URL(), server.Addr(), proxy.Addr(), 1)
		b := opened(t, url, backends.Options{})
		l := acquire(t, b, request("k"))
		proxy.DropIdle(time.Second) // longer than a handshake takes on a busy machine
		before := proxy.Accepted()
		eventually(t, "the idle connection being dropped", func() bool {
			if err := l.Renew(context.Background(), time.Minute); err != nil {
				t.Fatalf("Renew: %v", err)
			}
			time.Sleep(1100 * time.Millisecond)
			return proxy.Accepted() > before
		})
		release(t, l)
	}
}

// TestReplicaSaysNothing: only a master may say that a lease is lost.
func TestReplicaSaysNothing(t *testing.T) {
	s := testserver.StartSentinels(t, testserver.SentinelConfig{Replicas: 1})
	b := opened(t, s.Servers[1].URL(), backends.Options{})
	_, err := b.Acquire(within(t, 2*time.Second), request("k"))
	unknown(t, err, false, "READONLY", "replica", s.Servers[1].Addr())
	l := &lease{b: b.(*backend), key: "k", owner: backends.NewOwner(), grant: backends.Grant{Token: 1}}
	unknown(t, l.Renew(within(t, 2*time.Second), time.Minute), false, "READONLY")
	unknown(t, l.Release(within(t, 2*time.Second), backends.End{Outcome: backends.Failed}), false, "READONLY")
	acquire(t, opened(t, s.Servers[0].URL(), backends.Options{}), request("k"))
	eventually(t, "replication", func() bool { return stateOf(t, b, "k").State == backends.Held })
}
