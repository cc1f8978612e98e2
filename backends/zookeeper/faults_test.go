package zookeeper

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// listener takes connections; what it says is nothing but hello.
func listener(t *testing.T, hello string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for hello != "" {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte(hello))
			time.AfterFunc(time.Second, func() { c.Close() })
		}
	}()
	return l.Addr().String()
}

// CON-01: whatever is wrong with the way to the servers ends in time, and says where and in which phase.
func TestServersThatDoNotAnswer(t *testing.T) {
	silent, talker := listener(t, ""), listener(t, "220 mail.example ESMTP ready, and glad to be of service\r\n")
	for name, c := range map[string]struct {
		host  string
		words []string
	}{
		"nobody listens":         {"127.0.0.1:1", []string{"dialing 127.0.0.1:1", "refused"}},
		"a listener is silent":   {silent, []string{"asking " + silent + " for a session", "no answer"}},
		"another protocol":       {talker, []string{talker}},
		"no such host":           {"nowhere.invalid", []string{"dialing nowhere.invalid:2181"}},
		"an address without way": {"192.0.2.1:2181", []string{"192.0.2.1:2181"}},
		"several, none of them":  {"127.0.0.1:1,127.0.0.1:2", []string{"refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := opened(t, "zookeeper://"+c.host+"/x", backends.Options{Timeout: time.Second})
			began := time.Now()
			_, err := b.Acquire(within(t, time.Second), request("k"))
			unknown(t, err, name == "no such host" && backends.IsPermanent(err), c.words...)
			if d := time.Since(began); d > 10*time.Second {
				t.Errorf("it took %v", d)
			}
		})
	}
}

// CON-05: what the store says no to is told with what to do about it, and is no skip.
func TestWhatTheStoreRefuses(t *testing.T) {
	z := oneServer(t)
	b := opened(t, z.URL("/nobody/made/this"), backends.Options{})
	for what, f := range operations(b, nil, "k") {
		if err := f(within(t, enough)); what == "Abandon" || what == "Break" || what == "Resume" {
			unknown(t, err, true, "lockrun init") // they find nothing, and have to make sure
		} else {
			unknown(t, err, true, "not been set up", "lockrun init")
		}
	}
	closed := strings.Replace(z.URL("/closed"), "://", "://me:right@", 1)
	mine := opened(t, closed, backends.Options{}).(*backend)
	if err := mine.Init(within(t, enough)); err != nil {
		t.Fatal(err)
	}
	l := acquire(t, mine, request("k"))
	for url, words := range map[string]string{
		strings.Replace(closed, "right", "wrong", 1):        "check user and password",
		strings.Replace(closed, "me:right@", "", 1):         "name the user",
		strings.Replace(closed, "me:right@", "him:her@", 1): "check user and password",
	} {
		other := opened(t, url, backends.Options{})
		for _, f := range operations(other, nil, "k") {
			unknown(t, f(within(t, enough)), true, "not authenticated", words)
		}
	}
	renew(t, l)
	release(t, l)
}

func operations(b backends.Backend, l backends.Lease, key string) map[string]func(context.Context) error {
	all := map[string]func(context.Context) error{
		"Acquire": func(ctx context.Context) error { _, err := b.Acquire(ctx, request(key)); return err },
		"Abandon": func(ctx context.Context) error { return b.Abandon(ctx, request(key)) },
		"Status":  func(ctx context.Context) error { _, err := b.Status(ctx); return err },
		"History": func(ctx context.Context) error { _, err := b.History(ctx, backends.Query{}); return err },
		"Break":   func(ctx context.Context) error { _, err := b.Break(ctx, key, 0, "me"); return err },
		"Resume":  func(ctx context.Context) error { return b.Resume(ctx, key) },
		"Pause":   func(ctx context.Context) error { return b.Pause(ctx, key, backends.Pause{By: "me"}) },
		"Now":     func(ctx context.Context) error { _, err := b.Now(ctx); return err },
	}
	if l != nil {
		all["Renew"] = func(ctx context.Context) error { return l.Renew(ctx, time.Minute) }
		all["Release"] = func(ctx context.Context) error { return l.Release(ctx, backends.End{Outcome: backends.Failed}) }
	}
	return all
}

// CON-01: TLS against plain, and the reverse, and certificates that do not fit.
func TestTLS(t *testing.T) {
	certs := testserver.NewCerts(t)
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperConfig{TLS: certs, Mutual: true})
	s := newStore(t, z.URL(chroot()))
	b := opened(t, s.url, backends.Options{})
	release(t, acquire(t, b, request("k")))
	named := opened(t, s.url+"&server_name="+testserver.ServerName, backends.Options{})
	release(t, acquire(t, named, request("k")))
	plain := oneServer(t)
	secure := "zookeeper://" + z.Addr() + "/x?tls=true&ca="
	for name, c := range map[string]struct {
		url   string
		words string
	}{
		"plain against TLS": {"zookeeper://" + z.Addr() + "/x", "tls=true"},
		"TLS against plain": {strings.Replace(s.url, z.Addr(), plain.Addr(), 1), "secureClientPort"},
		"another authority": {secure + testserver.NewCerts(t).CAFile, "check ca"},
		"another name":      {s.url + "&server_name=other.example", "server_name"},
		"no certificate":    {secure + certs.CAFile, "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := opened(t, c.url, backends.Options{Timeout: 2 * time.Second}).Acquire(within(t, 2*time.Second), request("k"))
			unknown(t, err, backends.IsPermanent(err), c.words)
		})
	}
}

// CON-01, once a lease is held; and TERM, which comes as a context that is cancelled.
func TestABlackHoleInEachOperation(t *testing.T) {
	z := oneServer(t)
	p := testserver.StartProxy(t, z.Addr())
	s := newStore(t, z.URL(chroot()))
	b := opened(t, strings.Replace(s.url, z.Addr(), p.Addr(), 1), backends.Options{Timeout: time.Second})
	l := acquire(t, b, request("hole"))
	p.BlackHole()
	for what, f := range operations(b, l, "hole") {
		began := time.Now()
		unknown(t, f(within(t, 100*time.Millisecond)), false, "no answer")
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(50*time.Millisecond, cancel)
		if err := f(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s = %v", what, err)
		}
		if d := time.Since(began); d > 10*time.Second {
			t.Errorf("%s took %v", what, d)
		}
	}
	p.Heal()
	renew(t, l)
	release(t, l)
}

// CNC-05: the answer to the first create is lost while the connection, and with it the session, stays. The lease is
// recognised within the same Acquire, and nothing is left.
func TestALostAnswerIsRecognised(t *testing.T) {
	z := oneServer(t)
	p := testserver.StartProxy(t, z.Addr())
	s := newStore(t, z.URL(chroot()))
	b := opened(t, strings.Replace(s.url, z.Addr(), p.Addr(), 1), backends.Options{})
	release(t, acquire(t, b, request("k")))
	for i, after := range []testserver.After{testserver.KeepOpen, testserver.CloseIt} {
		r := request("k")
		lost := p.LoseReply(leasePrefix+r.Owner, after)
		began := time.Now()
		l := acquire(t, b, r)
		if took := time.Since(began); !lost() || took > 15*time.Second {
			t.Errorf("it took %v, and the answer was lost: %v", took, lost())
		}
		if g := l.Grant(); g.Attempt != 1 || g.Takeover {
			t.Errorf("recognised as %+v", g)
		}
		if n := s.leases("k"); len(n) != 1 {
			t.Errorf("the leases are %v", n)
		}
		lost = p.LoseReply(leasePrefix+r.Owner, after)
		renew(t, l)
		if !lost() {
			t.Errorf("the answer to the renewal was not lost")
		}
		lost = p.LoseReply(leasePrefix+r.Owner, after)
		release(t, l)
		if n := s.leases("k"); !lost() || len(n) != 0 {
			t.Errorf("the answer was lost: %v; the leases are %v", lost(), n)
		}
		release(t, l) // again
		if h := historyOf(t, b, "k"); len(h) != i+2 {
			t.Errorf("history %+v", h)
		}
	}
}

// What was done is not told as nothing to do, and whoever came afterwards is left alone.
func TestOperatorsLostReply(t *testing.T) {
	z := oneServer(t)
	p := testserver.StartProxy(t, z.Addr())
	s := newStore(t, z.URL(chroot()))
	direct := opened(t, s.url, backends.Options{})
	b := opened(t, strings.Replace(s.url, z.Addr(), p.Addr(), 1), backends.Options{})
	next := func(lost func() bool) chan backends.Lease { // takes the key after the answer was lost, long before it is missed
		c := make(chan backends.Lease, 1)
		go func() {
			defer close(c)
			for !lost() {
				time.Sleep(time.Millisecond)
			}
			if l, err := direct.Acquire(within(t, enough), request("k")); err == nil {
				c <- l
			}
		}()
		return c
	}
	for _, byToken := range []bool{true, false} {
		r := request("k")
		first := acquire(t, direct, r).Grant().Token
		token := first
		if !byToken {
			token = 0
		}
		taken := next(p.LoseReply(leasePrefix+r.Owner, testserver.KeepOpen))
		if broken, err := b.Break(within(t, enough), "k", token, "broken by ann"); err != nil || len(broken) != 1 || broken[0].Token != first {
			t.Errorf("Break of token %d: %+v, %v", first, broken, err)
		}
		l := <-taken
		if l == nil {
			t.Fatal("nobody took the key")
		}
		renew(t, l)
		release(t, l)
		if _, err := b.Break(within(t, enough), "k", token, "broken by ann"); !errors.Is(err, backends.ErrNotHeld) {
			t.Errorf("Break of what is not held: %v", err)
		}
	}
	if err := b.Pause(within(t, enough), "k", backends.Pause{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	taken := next(p.LoseReply(`"write":`, testserver.KeepOpen))
	if err := b.Resume(within(t, enough), "k"); err != nil {
		t.Errorf("Resume: %v", err)
	}
	if l := <-taken; l == nil {
		t.Error("nobody took the key")
	}
	if err := b.Resume(within(t, enough), "k"); !errors.Is(err, backends.ErrNotHeld) {
		t.Errorf("Resume of what is not paused: %v", err)
	}
}

// The login goes along with the request for a session, on each connection. Where the answers are lost it is sent again.
func TestALostLogin(t *testing.T) {
	z := oneServer(t)
	p := testserver.StartProxy(t, z.Addr())
	s := newStore(t, strings.Replace(z.URL(chroot()), "://", "://me:secret@", 1))
	for _, after := range []testserver.After{testserver.KeepOpen, testserver.CloseIt} {
		b := opened(t, strings.Replace(s.url, z.Addr(), p.Addr(), 1), backends.Options{})
		lost := p.LoseReply("digest", after)
		err := backends.UntilAnswered(within(t, enough), func() error {
			l, err := b.Acquire(within(t, enough), request("k"))
			if err == nil {
				release(t, l)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if !lost() {
			t.Errorf("the answer was not lost")
		}
		n := p.Accepted()
		p.Reset() // and it is sent on each connection
		eventually(t, "the connection is made again", func() bool { return p.Accepted() > n })
		release(t, acquire(t, b, request("k")))
	}
}

// Servers that know no digest authentication refuse whatever user there is. That is told at once, and not only when the time
// is over.
func TestALoginThatIsRefused(t *testing.T) {
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperConfig{Env: []string{"JAVA_TOOL_OPTIONS=-Dzookeeper.DigestAuthenticationProvider.enabled=false"}})
	b := opened(t, strings.Replace(z.URL("/x"), "://", "://me:secret@", 1), backends.Options{})
	ctx := within(t, enough)
	_, err := b.Acquire(ctx, request("k"))
	unknown(t, err, true, "logging in at "+z.Addr(), "digest authentication")
	if ctx.Err() != nil {
		t.Error("it took until the time was over")
	}
}

// CON-02: a request that is given up after its answer was lost is taken back.
func TestALostAnswerThatIsGivenUp(t *testing.T) {
	z := oneServer(t)
	p := testserver.StartProxy(t, z.Addr())
	s := newStore(t, z.URL(chroot()))
	b := opened(t, strings.Replace(s.url, z.Addr(), p.Addr(), 1), backends.Options{})
	release(t, acquire(t, b, request("k")))
	r := request("k")
	lost := p.LoseReply(leasePrefix+r.Owner, testserver.KeepOpen)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for !lost() {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := b.Acquire(ctx, r); !errors.Is(err, context.Canceled) {
		t.Fatalf("Acquire = %v", err)
	}
	if len(s.leases("k")) != 1 {
		t.Fatal("it was not carried out, so this test shows nothing")
	}
	if err := b.Abandon(within(t, enough), r); err != nil {
		t.Fatal(err)
	}
	if n, h := s.leases("k"), historyOf(t, b, "k"); len(n) != 0 || len(h) != 1 {
		t.Errorf("leases %v, history %+v", n, h)
	}
}

// CON-07: what cuts idle connections is no fault.
func TestConnectionsThatAreCutWhileIdle(t *testing.T) {
	z := oneServer(t)
	p := testserver.StartProxy(t, z.Addr())
	p.DropIdle(100 * time.Millisecond)
	s := newStore(t, z.URL(chroot()))
	b := opened(t, strings.Replace(s.url, z.Addr(), p.Addr(), 1), backends.Options{})
	l := acquire(t, b, request("k"))
	for range 3 {
		n := p.Accepted()
		eventually(t, "the connection is cut and made again", func() bool { return p.Accepted() > n })
		renew(t, l)
	}
	release(t, l)
}

// A server that restarts has the sessions in its log: the lease goes on.
func TestAServerThatRestarts(t *testing.T) {
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperConfig{})
	s := newStore(t, z.URL(chroot()))
	b := opened(t, s.url, backends.Options{})
	l := acquire(t, b, request("k"))
	z.Kill()
	unknown(t, l.Renew(within(t, time.Second), time.Minute), false, "renew on zookeeper://") // refused, or in the middle of finding that out
	z.Restart()
	renew(t, l)
	release(t, l)
	if g := acquire(t, b, request("k")).Grant(); g.Token <= l.Grant().Token {
		t.Errorf("token %d after %d", g.Token, l.Grant().Token)
	}
}
