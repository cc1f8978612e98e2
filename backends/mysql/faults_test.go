package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// CON-01: whatever is wrong with the way to the server ends in time, and says where and in which phase.
func TestServersThatDoNotAnswer(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{})
	s := newStore(t, m)
	silent := silentListener(t)
	talker := talkingListener(t)
	for name, c := range map[string]struct {
		url   string
		words []string
	}{
		"nobody listens":         {s.at("127.0.0.1:1"), []string{"127.0.0.1:1", "connecting", "refused"}},
		"a listener is silent":   {s.at(silent), []string{silent, "logging in", "no answer"}},
		"another protocol":       {s.at(talker), []string{talker, "logging in", "MySQL"}},
		"no such host":           {s.at("nowhere.invalid:3306"), []string{"nowhere.invalid", "connecting"}},
		"an address without way": {s.at("192.0.2.1:3306"), []string{"192.0.2.1:3306", "connecting"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, c.url, backends.Options{})
			defer b.Close()
			_, err := b.Acquire(within(t, 1500*time.Millisecond), request("k"))
			unknown(t, err, false, c.words...)
		})
	}
}

// CON-01, once a lease is held.
func TestABlackHoleInEachOperation(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{})
	s := newStore(t, m)
	p := testserver.StartProxy(t, m.Addr())
	b := open(t, s.at(p.Addr()), backends.Options{})
	defer b.Close()
	l := mustAcquire(t, b, request("hole"))
	p.BlackHole()
	defer p.Heal()
	for what, f := range operations(b, l, "hole") {
		began := time.Now()
		err := f(within(t, 100*time.Millisecond))
		unknown(t, err, false, "no answer in time")
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("%s took %v", what, d)
		}
	}
}

// CON-01 at the release: the answer is not known, and asking again later is answered.
func TestAFrozenServerThatGoesOn(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{})
	s := newStore(t, m)
	b := s.open(t, backends.Options{})
	defer b.Close()
	l := mustAcquire(t, b, request("frozen"))
	m.Freeze()
	err := l.Release(within(t, 200*time.Millisecond), backends.End{Outcome: backends.Succeeded})
	unknown(t, err, false, "no answer in time", m.Addr())
	_, err = b.Acquire(within(t, 200*time.Millisecond), request("other"))
	unknown(t, err, false, "no answer in time", "logging in")
	m.Thaw()
	mustRelease(t, l)
}

// A server that was frozen carries out what lies in its sockets when it goes on. It must not grant a lease to somebody who
// has given up meanwhile: nobody would release it.
func TestAFrozenServerGrantsNothingAfterwards(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{})
	s := newStore(t, m)
	slots := request("slots")
	slots.Slots = 2
	for _, r := range []backends.Request{request("known"), request("new"), slots} {
		b := s.open(t, backends.Options{})
		mustRelease(t, mustAcquire(t, b, request("known"))) // the connection is there before the server freezes
		m.Freeze()
		_, err := b.Acquire(within(t, 300*time.Millisecond), r)
		unknown(t, err, false, "no answer in time")
		m.Thaw()
		waitForCut(t, m)
		if d := s.dump(r.Key); d != "" {
			t.Errorf("granted to nobody: %s", d)
		}
		mustRelease(t, mustAcquire(t, b, r)) // who asks again gets it
		b.Close()
	}
}

// TERM has to end each operation at once; to a backend it comes as a context that is cancelled.
func TestACancelledContextEndsEveryOperationAtOnce(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{})
	s := newStore(t, m)
	p := testserver.StartProxy(t, m.Addr())
	b := open(t, s.at(p.Addr()), backends.Options{})
	defer b.Close()
	l := mustAcquire(t, b, request("k"))
	p.BlackHole()
	for what, f := range operations(b, l, "k") {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(50*time.Millisecond, cancel)
		began := time.Now()
		if err := f(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s = %v", what, err)
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("%s took %v", what, d)
		}
	}
}

func operations(b backends.Backend, l backends.Lease, key string) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Acquire": func(ctx context.Context) error { _, err := b.Acquire(ctx, request(key)); return err },
		"Renew":   func(ctx context.Context) error { return l.Renew(ctx, time.Minute) },
		"Release": func(ctx context.Context) error { return l.Release(ctx, backends.End{Outcome: backends.Failed}) },
		"Abandon": func(ctx context.Context) error { return b.Abandon(ctx, request(key)) },
		"Status":  func(ctx context.Context) error { _, err := b.Status(ctx); return err },
		"History": func(ctx context.Context) error { _, err := b.History(ctx, backends.Query{}); return err },
		"Break":   func(ctx context.Context) error { _, err := b.Break(ctx, key, 0, "me"); return err },
		"Now":     func(ctx context.Context) error { _, err := b.Now(ctx); return err },
	}
}

func silentListener(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// talkingListener greets like a mail server.
func talkingListener(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("220 mail.example ESMTP ready\r\n"))
			time.AfterFunc(time.Second, func() { c.Close() })
		}
	}()
	return l.Addr().String()
}

// CON-02: the answer to COMMIT is lost. The lease is recognised by its owner, or given back; it is never another's.
func TestTheAnswerToCommitIsLost(t *testing.T) {
	theAnswerToCommitIsLost(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
}

func theAnswerToCommitIsLost(t *testing.T, m *testserver.MariaDB) {
	s := newStore(t, m)
	p := testserver.StartProxy(t, m.Addr())
	b := open(t, s.at(p.Addr()), backends.Options{})
	defer b.Close()
	mustRelease(t, mustAcquire(t, b, request("k"))) // the key is known from here on

	for _, after := range []testserver.After{testserver.CloseIt, testserver.KeepOpen} {
		var l backends.Lease
		r := request("k")
		losing(t, p.LoseReply("INSERT INTO `"+s.table+"` (job_name", after), func(ctx context.Context) (err error) {
			l, err = b.Acquire(ctx, r)
			return err
		})
		if l == nil { // nobody can know
			l = mustAcquire(t, b, r)
		}
		if g := l.Grant(); g.Attempt != 1 || g.Takeover {
			t.Errorf("recognised as %+v", g)
		}
		losing(t, p.LoseReply("UPDATE `"+s.table+"` l SET l.renew_time", after), func(ctx context.Context) error {
			return l.Renew(ctx, time.Minute)
		})
		losing(t, p.LoseReply("INSERT INTO `"+s.table+"_history`", after), func(ctx context.Context) error {
			return l.Release(ctx, backends.End{Outcome: backends.Succeeded})
		})
		mustRelease(t, l) // again
	}
	givenBack(t, s, b, p)
}

// losing carries out f until its answer is lost: on a busy machine its time may be over before it has asked. f either
// copes with the loss, or says that the answer is not known.
func losing(t *testing.T, lost func() bool, f func(context.Context) error) {
	t.Helper()
	eventually(t, "losing a reply", func() bool {
		if err := f(within(t, 500*time.Millisecond)); err != nil {
			unknown(t, err, false, "no answer")
		}
		return lost()
	})
}

// givenBack gives up after the answer was lost, and looks into the store.
func givenBack(t *testing.T, s *store, b backends.Backend, p *testserver.Proxy) {
	r := request("k")
	losing(t, p.LoseReply("INSERT INTO `"+s.table+"` (job_name", testserver.KeepOpen), func(ctx context.Context) error {
		_, err := b.Acquire(ctx, r)
		return err
	})
	if err := b.Abandon(within(t, 10*time.Second), r); err != nil {
		t.Fatal(err)
	}
	if d := s.dump("k"); d != "" {
		t.Errorf("given back, and the store has %s", d)
	}
	if n := s.m.Query("SELECT COUNT(*) FROM " + s.table + "_history"); n != "3" {
		t.Errorf("%s records, want 3", n)
	}
}

// A client that vanishes while its text is carried out leaves all of it or nothing. What is there afterwards fits together.
func TestAConnectionCutInTheMiddleLeavesNothingHalfDone(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{})
	s := newStore(t, m)
	p := testserver.StartProxy(t, m.Addr())
	b := open(t, s.at(p.Addr()), backends.Options{})
	defer b.Close()
	mustRelease(t, mustAcquire(t, b, request("k")))
	for i := range 40 {
		p.LoseReply("INSERT INTO `"+s.table+"` (job_name", testserver.CloseIt)
		l := mustAcquire(t, b, request("k"))
		token := fmt.Sprint(l.Grant().Token)
		if counted := m.Query("SELECT token FROM " + s.table + "_keys"); counted != token || token != fmt.Sprint(i+2) {
			t.Fatalf("round %d: token %s is granted, %s is counted", i, token, counted)
		}
		p.LoseReply("INSERT INTO `"+s.table+"_history`", testserver.CloseIt)
		mustRelease(t, l)
		if n := m.Query("SELECT COUNT(*) FROM " + s.table + "_history"); n != token || s.dump("k") != "" {
			t.Fatalf("round %d: %s records, and the lease is %q", i, n, s.dump("k"))
		}
		if n := m.Query("SELECT MAX(run_seq) - MAX(seq) FROM " + s.table + "_keys JOIN " + s.table + "_history USING (job_name)"); n != "0" {
			t.Fatalf("round %d: the records' numbers are off by %s", i, n)
		}
	}
}

// CON-07: what cuts idle connections is no fault, and nobody hears of it.
func TestConnectionsThatAreCutWhileIdle(t *testing.T) {
	connectionsCutWhileIdle(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{Args: []string{"--wait-timeout=1"}}))
}

func connectionsCutWhileIdle(t *testing.T, m *testserver.MariaDB) {
	s := newStore(t, m)
	p := testserver.StartProxy(t, m.Addr())
	p.DropIdle(500 * time.Millisecond)
	for name, url := range map[string]string{"by the server": s.url, "by a proxy": s.at(p.Addr())} {
		b := open(t, url, backends.Options{})
		defer b.Close()
		l := mustAcquire(t, b, request(name))
		for range 2 {
			waitForCut(t, m)
			if err := l.Renew(within(t, 20*time.Second), time.Minute); err != nil {
				t.Errorf("cut %s: Renew: %v", name, err)
			}
		}
		waitForCut(t, m)
		mustRelease(t, l)
	}
}

// waitForCut waits until the server has no connection by TCP.
func waitForCut(t *testing.T, m *testserver.MariaDB) {
	t.Helper()
	eventually(t, "the connection is cut", func() bool {
		return m.Query("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE HOST LIKE '127.0.0.1:%'") == "0"
	})
}

// A reset under way is not known, and repeating is safe.
func TestAServerThatRestarts(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{})
	s := newStore(t, m)
	b := s.open(t, backends.Options{})
	defer b.Close()
	l := mustAcquire(t, b, request("k"))
	m.Kill()
	unknown(t, l.Renew(within(t, 500*time.Millisecond), time.Minute), false, m.Addr(), "refused")
	m.Restart()
	if err := l.Renew(within(t, 20*time.Second), time.Minute); err != nil {
		t.Errorf("Renew after the restart: %v", err)
	}
	mustRelease(t, l)
	if g := mustAcquire(t, b, request("k")).Grant(); g.Token != l.Grant().Token+1 {
		t.Errorf("token %d after %d", g.Token, l.Grant().Token)
	}
}
