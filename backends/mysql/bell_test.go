package mysql_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// waitFor waits for key on a host, and tells when it need not any more.
func waitFor(t *testing.T, b backends.Backend, r backends.Request) <-chan error {
	done := make(chan error, 1)
	ctx := within(t, time.Minute)
	go func() { done <- b.(backends.Waiter).Wait(ctx, r) }()
	return done
}

// listening is how many sessions listen to a bell.
func listening(m *testserver.MariaDB) string {
	return m.Query("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User lock'")
}

// A release wakes who waits long before the second is over for which it listens: nothing is asked between, but for the
// goodbye. A session that was left over by an earlier holder of the key, whose host may be dead, does not stand in the way.
func TestAReleaseRingsTheBell(t *testing.T) {
	aReleaseRingsTheBell(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
}

func aReleaseRingsTheBell(t *testing.T, m *testserver.MariaDB) {
	s := newStore(t, m)
	dead, holder := s.open(t, backends.Options{}), s.open(t, backends.Options{})
	defer dead.Close()
	defer holder.Close()
	mustAcquire(t, dead, request("k"))
	s.expire("k")
	addr, asked := counter(t, m.Addr())
	waiter := open(t, s.at(addr), backends.Options{})
	defer waiter.Close()
	for range 20 { // on a busy machine a second of listening may be over too soon
		l := mustAcquire(t, holder, request("k"))
		done := waitFor(t, waiter, request("k"))
		eventually(t, "the waiter listens", func() bool { return listening(m) == "1" })
		before, began := asked.Load(), time.Now()
		mustRelease(t, l)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if asked.Load() == before+1 && time.Since(began) < 500*time.Millisecond {
			return
		}
	}
	t.Error("no release woke the waiter")
}

// A bell that goes off because its session was cut ends no wait. Who heard it goes on by looking, and not without a pause;
// the release is noticed without it.
func TestABellThatIsLost(t *testing.T) {
	aBellThatIsLost(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
}

func aBellThatIsLost(t *testing.T, m *testserver.MariaDB) {
	s := newStore(t, m)
	addr, asked := counter(t, m.Addr())
	holder, waiter := s.open(t, backends.Options{}), open(t, s.at(addr), backends.Options{})
	defer holder.Close()
	defer waiter.Close()
	l := mustAcquire(t, holder, request("k"))
	done := waitFor(t, waiter, request("k"))
	eventually(t, "the waiter listens", func() bool { return listening(m) == "1" })
	m.Exec("KILL " + m.Query("SELECT ID FROM information_schema.PROCESSLIST WHERE HOST LIKE '127.0.0.1:%' AND COMMAND = 'Sleep'"))
	eventually(t, "the waiter hears it", func() bool { return listening(m) == "0" })
	before, began := asked.Load(), time.Now()
	eventually(t, "the waiter goes on by looking", func() bool { return asked.Load() >= before+10 })
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("it looked ten times in %v", took)
	}
	select {
	case err := <-done:
		t.Fatalf("Wait = %v while the key is held", err)
	default:
	}
	mustRelease(t, l)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A limit for statements that is shorter than a second of listening ends no wait.
func TestListeningThatIsCutShort(t *testing.T) {
	listeningThatIsCutShort(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{Args: []string{"--max-statement-time=0.3"}}))
}

func listeningThatIsCutShort(t *testing.T, m *testserver.MariaDB) {
	s := newStore(t, m)
	holder, waiter := s.open(t, backends.Options{}), s.open(t, backends.Options{})
	defer holder.Close()
	defer waiter.Close()
	l := mustAcquire(t, holder, request("k"))
	done := waitFor(t, waiter, request("k"))
	eventually(t, "the waiter listens", func() bool { return listening(m) == "1" })
	eventually(t, "the waiter goes on by looking", func() bool { return listening(m) == "0" })
	mustRelease(t, l)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Those who wait take turns, each woken by the one before.
func TestWaitersTakeTurns(t *testing.T) {
	waitersTakeTurns(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
}

func waitersTakeTurns(t *testing.T, m *testserver.MariaDB) {
	s := newStore(t, m)
	holder := s.open(t, backends.Options{})
	defer holder.Close()
	l := mustAcquire(t, holder, request("k"))
	const hosts = 8
	var all sync.WaitGroup
	for range hosts {
		b := s.open(t, backends.Options{})
		defer b.Close()
		all.Go(func() {
			r, ctx := request("k"), within(t, time.Minute)
			for {
				mine, err := b.Acquire(ctx, r)
				var held *backends.HeldError
				switch {
				case err == nil:
					mustRelease(t, mine)
					return
				case !errors.As(err, &held):
					t.Errorf("Acquire = %v", err)
					return
				}
				if err := b.(backends.Waiter).Wait(ctx, r); err != nil {
					t.Errorf("Wait = %v", err)
					return
				}
			}
		})
	}
	eventually(t, "all listen", func() bool { return listening(m) == "8" })
	mustRelease(t, l)
	all.Wait()
	if token := m.Query("SELECT token FROM " + s.table + "_keys"); token != "9" {
		t.Errorf("the last token is %s after %d leases", token, hosts+1)
	}
}

// Who listens can be stopped at once, and leaves no trace.
func TestListeningEndsAtOnce(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{})
	s := newStore(t, m)
	holder, waiter := s.open(t, backends.Options{}), s.open(t, backends.Options{})
	defer holder.Close()
	defer waiter.Close()
	mustAcquire(t, holder, request("k"))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- waiter.(backends.Waiter).Wait(ctx, request("k")) }()
	eventually(t, "the waiter listens", func() bool { return listening(m) == "1" })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Wait = %v", err)
	}
	eventually(t, "nobody waits", func() bool { return m.Query("SELECT COUNT(*) FROM "+s.table+"_waiters") == "0" })
}
