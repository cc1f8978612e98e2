package mysql_test

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// counter hands a connection on and counts what the client sends: one read is one request, since the client waits for
// the answer to each.
func counter(t *testing.T, upstream string) (string, *atomic.Int64) {
	var n atomic.Int64
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", upstream)
			if err != nil {
				client.Close()
				continue
			}
			go func() { io.Copy(client, server); client.Close() }()
			go func() {
				defer server.Close()
				for b := make([]byte, 1<<16); ; {
					got, err := client.Read(b)
					if err != nil {
						return
					}
					n.Add(1)
					if _, err := server.Write(b[:got]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), &n
}

func TestOneExchangeAnOperation(t *testing.T) {
	oneExchangeAnOperation(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
}

func oneExchangeAnOperation(t *testing.T, m *testserver.MariaDB) {
	s := newStore(t, m)
	addr, n := counter(t, m.Addr())
	b := open(t, s.at(addr), backends.Options{})
	defer b.Close()
	rival := s.open(t, backends.Options{})
	defer rival.Close()
	var l backends.Lease
	withRun, last := request("k"), request("k")
	withRun.RunID, last.Last = "r1", true
	for _, step := range []struct {
		what string
		want int64
		do   func()
	}{
		{"logging in, setting up and looking at the tables", 2, func() { b.Now(within(t, 20*time.Second)) }},
		{"the first run of a key", 2, func() { l = mustAcquire(t, b, request("k")) }},
		{"a renewal", 1, func() { l.Renew(within(t, 20*time.Second), time.Minute) }},
		{"a release", 1, func() { mustRelease(t, l) }},
		{"every other run", 1, func() { l = mustAcquire(t, b, request("k")) }},
		{"its release", 1, func() { mustRelease(t, l) }},
		{"a run with an id", 1, func() { l = mustAcquire(t, b, withRun) }},
		{"a refusal", 1, func() { refused(t, b, request("k")) }},
		{"a refusal that is recorded", 2, func() { refused(t, b, last) }},
		{"its release, with a done-mark", 1, func() { mustRelease(t, l) }},
		{"status", 1, func() { b.Status(within(t, 20*time.Second)) }},
		{"history", 1, func() { b.History(within(t, 20*time.Second), backends.Query{}) }},
	} {
		before := n.Load()
		step.do()
		got := n.Load() - before
		if step.what == "logging in, setting up and looking at the tables" {
			got-- // the question itself
		}
		if got != step.want {
			t.Errorf("%s: %d exchanges, want %d", step.what, got, step.want)
		}
	}
}

// noisy fails the test when the driver logs: its logger writes to stderr.
type noisy struct{ t *testing.T }

func (n noisy) Print(v ...any) { n.t.Errorf("the driver says %v", v) }

// LOG-01: what the driver has to say of connections that break, nobody hears.
func TestTheDriverIsSilent(t *testing.T) {
	driver.SetLogger(noisy{t})
	defer driver.SetLogger(&driver.NopLogger{})
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{})
	s := newStore(t, m)
	p := testserver.StartProxy(t, m.Addr())
	b := open(t, s.at(p.Addr()), backends.Options{})
	defer b.Close()
	l := mustAcquire(t, b, request("k"))
	p.Reset()
	l.Renew(within(t, 20*time.Second), time.Minute)
	p.LoseReply("", testserver.CloseIt)
	l.Renew(within(t, 20*time.Second), time.Minute)
	p.BlackHole()
	l.Renew(within(t, 50*time.Millisecond), time.Minute)
	p.Heal()
	p.Refuse()
	l.Renew(within(t, 50*time.Millisecond), time.Minute)
	p.Accept()
	mustRelease(t, l)
}

// What is too old goes, of every key, also of one that nobody uses any more.
func TestOldRecordsOfForgottenKeysGo(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{})
	s := newStore(t, m)
	b := s.open(t, backends.Options{})
	defer b.Close()
	r := request("forgotten")
	r.RunID = "r1"
	mustRelease(t, mustAcquire(t, b, r))
	m.Exec("UPDATE " + s.table + "_history SET end_time = end_time - INTERVAL 91 DAY")
	m.Exec("UPDATE " + s.table + "_runs SET used_time = used_time - INTERVAL 401 DAY")
	other := request("other")
	other.RunID = "r2"
	mustRelease(t, mustAcquire(t, b, other))
	for _, table := range []string{"_history", "_runs"} {
		if n := m.Query("SELECT COUNT(*) FROM " + s.table + table + " WHERE job_name = 'forgotten'"); n != "0" {
			t.Errorf("%s rows of %s are left", n, table)
		}
	}
	if g := mustAcquire(t, b, request("forgotten")).Grant(); g.Token != 2 {
		t.Errorf("token %d, want 2: the counter is kept for ever", g.Token)
	}
}

// A crash is told once, by whoever takes the key next, or by history itself, even by a host that cannot write.
func TestCrashesAreTold(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{})
	s := newStore(t, m)
	b := s.open(t, backends.Options{Keep: backends.Keep{Runs: 3}})
	defer b.Close()
	for i := range 6 {
		mustAcquire(t, b, request("k"))
		s.expire("k")
		records, err := b.History(within(t, 20*time.Second), backends.Query{Key: "k"})
		if want := min(i+1, 4); err != nil || len(records) != want { // those that are kept, and the one that nobody has written yet
			t.Errorf("after %d crashes history has %d records, want %d (%v)", i+1, len(records), want, err)
		}
		for _, r := range records {
			if r.Outcome != backends.Crashed || r.Holder != "alpha" {
				t.Errorf("%+v", r)
			}
		}
	}
}
