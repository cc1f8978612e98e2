package sqlite

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/rounds"
)

// acquireSoon asks until the key is granted.
func acquireSoon(t testing.TB, b backends.Backend, key string) backends.Lease {
	t.Helper()
	var l backends.Lease
	eventually(t, "acquiring "+key, func() bool {
		var err error
		l, err = b.Acquire(t.Context(), request(key))
		if err != nil && !isHeld(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	return l
}

func TestADeadHolderIsNoticedAtOnce(t *testing.T) {
	eachDriver(t, func(t *testing.T, s *store) {
		p := s.start("hold", "k", "1h")
		token, _ := strconv.ParseInt(strings.Fields(p.want("held"))[1], 10, 64)
		b := s.open(backends.Options{})
		if _, err := b.Acquire(t.Context(), request("k")); !isHeld(err) {
			t.Fatalf("Acquire while the holder lives = %v", err)
		}
		p.kill()
		l, err := b.Acquire(t.Context(), request("k"))
		if err != nil {
			t.Fatalf("Acquire after the holder's death: %v", err)
		}
		if !l.Grant().Takeover || l.Grant().Token <= token {
			t.Errorf("granted %+v after token %d", l.Grant(), token)
		}
		h, err := b.History(t.Context(), backends.Query{})
		if err != nil || len(h) != 1 || h[0].Outcome != backends.Crashed || h[0].Token != token || time.Since(h[0].EndedAt) > patience {
			t.Errorf("history %+v, %v", h, err)
		}
	})
}

func TestAGuardKeepsTheLeaseOfADeadHolder(t *testing.T) {
	s := newStore(t, linked)
	p := s.start("hold", "k", "1h", "guard")
	p.want("held")
	p.cmd.Process.Kill()
	p.cmd.Process.Wait()
	b := s.open(backends.Options{})
	for range 20 {
		if _, err := b.Acquire(t.Context(), request("k")); !isHeld(err) {
			t.Fatalf("Acquire while the guard lives = %v", err)
		}
	}
	p.in.Close() // the guard's input
	acquireSoon(t, b, "k")
}

func TestADetachedLeaseIsLeftToItsTTL(t *testing.T) {
	s := newStore(t, linked)
	p := s.start("hold", "k", "1h", "detached")
	p.want("held")
	p.kill()
	b := s.open(backends.Options{})
	if _, err := b.Acquire(t.Context(), request("k")); !isHeld(err) {
		t.Errorf("Acquire of a detached lease = %v, want *HeldError", err)
	}
}

func TestALiveLockDoesNotProlongALease(t *testing.T) {
	s := newStore(t, linked)
	p := s.start("hold", "k", "200ms")
	p.want("held")
	p.cmd.Process.Signal(syscall.SIGSTOP)
	b := s.open(backends.Options{})
	if l := acquireSoon(t, b, "k"); !l.Grant().Takeover {
		t.Errorf("granted %+v", l.Grant())
	}
}

// Whoever deletes or replaces the file of locks must not make living holders look dead.
func TestAReplacedFileOfLocksProvesNothing(t *testing.T) {
	s := newStore(t, linked)
	p := s.start("hold", "k", "1h")
	p.want("held")
	b := s.open(backends.Options{})
	if err := os.Remove(s.path + "-live"); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"deleted", "replaced"} {
		if _, err := b.Acquire(t.Context(), request("k")); !isHeld(err) {
			t.Errorf("%s: Acquire = %v, want *HeldError", when, err)
		}
		l, err := b.Acquire(t.Context(), request("other")) // makes a new one
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context(), backends.End{Outcome: backends.Failed}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(s.path + "-live"); err != nil {
		t.Error(err)
	}
}

// CNC-06
func TestNamespacesWithEqualHostAndProcessNumbers(t *testing.T) {
	s := newStore(t, linked)
	inNamespace := func(verb string, args ...string) *proc {
		cmd := exec.Command("unshare", append([]string{"--fork", "--pid", "--mount", "--uts", "--mount-proc", "--kill-child",
			selfPath(t), s.d.name, s.path, "k"}, args...)...)
		cmd.Env = append(os.Environ(), helperVar+"="+verb)
		return startCmd(t, cmd)
	}
	first := inNamespace("hold", "1h")
	line := first.line()
	if line == "" {
		t.Skip("this user may not create namespaces")
	}
	if f := strings.Fields(line); f[0] != "held" || f[2] != "1" {
		t.Fatalf("the first one says %q, want to hold as process 1", line)
	}
	second := inNamespace("once")
	if got := letGo(t, []*proc{second}); got["skipped"] != 1 {
		t.Errorf("the second one says %v", got)
	}
	first.kill()
	acquireSoon(t, s.open(backends.Options{}), "k")
}

// CNC-02
func TestACrowdBehindALongWrite(t *testing.T) {
	s := newStore(t, linked)
	s.open(backends.Options{})
	var all []*proc
	n, over := 30, filepath.Join(t.TempDir(), "over")
	if testing.Short() {
		n = 8
	}
	for i := range n {
		all = append(all, s.start("once", "shared", over), s.start("once", fmt.Sprint("own", i)))
	}
	asking := s.start("ask", "")
	asking.want("ready")
	c, err := dial(s.d, s.path, "mode=rw")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if _, err := c.exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	rollback := time.AfterFunc(2*time.Second, func() { c.exec("ROLLBACK") })
	defer rollback.Stop()
	lines := release(t, all)
	got := map[string]int{}
	for range 2*n - 1 { // all but the one that holds the shared key
		got[next(t, lines)]++
	}
	if err := os.WriteFile(over, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got[next(t, lines)]++
	if got["ran"] != n+1 || got["skipped"] != n-1 {
		t.Errorf("%v; want %d that ran and %d skipped", got, n+1, n-1)
	}
	asking.in.Close()
	asking.want("ran")
}

// CNC-03
func TestFirstStartsAtOneInstant(t *testing.T) {
	eachDriver(t, func(t *testing.T, s *store) {
		const starts = 30
		few := 4
		if testing.Short() || s.d.name == pure.name {
			few = 1
		}
		for round := range rounds.Of(few, 100) {
			t.Run(fmt.Sprint("round ", round), func(t *testing.T) {
				s := newStore(t, s.d)
				var all []*proc
				for i := range starts {
					all = append(all, s.start("once", fmt.Sprint("k", i)))
				}
				if got := letGo(t, all); got["ran"] != starts {
					t.Fatal(got)
				}
				if n := s.sql("SELECT count(*) FROM history"); n[0] != fmt.Sprintf("[%d]", starts) {
					t.Errorf("%v records, want %d", n, starts)
				}
			})
		}
	})
}

// A number in a file, to which processes with both libraries add under the lease.
func TestBothDriversShareAStore(t *testing.T) {
	if len(drivers()) == 1 {
		t.Skip("this build has one driver")
	}
	s := newStore(t, linked)
	file := filepath.Join(t.TempDir(), "sum")
	if err := os.WriteFile(file, []byte("0 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var all []*proc
	for i := range 4 {
		s.d = drivers()[i%2]
		all = append(all, s.start("count", "k", file, "10"))
	}
	if got := letGo(t, all); got["ran"] != 4 {
		t.Fatal(got)
	}
	text, _ := os.ReadFile(file)
	if !strings.HasPrefix(string(text), "40 ") {
		t.Errorf("the sum is %q, want 40", text)
	}
	for _, d := range drivers() {
		s.d = d
		h, err := s.open(backends.Options{}).History(t.Context(), backends.Query{Key: "k"})
		if err != nil || len(h) != 40 {
			t.Errorf("%s: %d records, %v", d.name, len(h), err)
		}
	}
}

// The promise is 50 ms; what is tested leaves room for a busy machine, and the median is logged.
func TestAWaiterIsTold(t *testing.T) {
	eachDriver(t, func(t *testing.T, s *store) {
		a, b := s.open(backends.Options{}), s.open(backends.Options{})
		var took []time.Duration
		for range 10 {
			l, err := a.Acquire(t.Context(), request("k"))
			if err != nil {
				t.Fatal(err)
			}
			woken := make(chan error, 1)
			go func() { woken <- b.(backends.Waiter).Wait(t.Context(), request("k")) }()
			eventually(t, "a waiter", func() bool {
				st, err := a.Status(t.Context(), "k")
				return err == nil && st[0].Waiters != nil && *st[0].Waiters == 1
			})
			if err := l.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := <-woken; err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		t.Logf("woken after %v in the median, %v at most", took[5], took[9])
		if took[5] > time.Second {
			t.Errorf("the median waiter was told %v after the release", took[5])
		}
	})
}

func TestAWaiterIsToldOfADeath(t *testing.T) {
	s := newStore(t, linked)
	p := s.start("hold", "k", "1h")
	p.want("held")
	b := s.open(backends.Options{})
	woken := make(chan error, 1)
	go func() { woken <- b.(backends.Waiter).Wait(t.Context(), request("k")) }()
	p.kill()
	select {
	case err := <-woken:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Errorf("not told within %v", patience)
	}
}

// The write-ahead log is kept between runs, and kept short: by runs that close, and by one that goes on renewing.
func TestTheLogStaysShort(t *testing.T) {
	eachDriver(t, func(t *testing.T, s *store) {
		size := func() int64 {
			t.Helper()
			fi, err := os.Stat(s.path + "-wal")
			if err != nil {
				t.Fatal(err)
			}
			return fi.Size()
		}
		for range 40 {
			b := s.open(backends.Options{})
			l, err := b.Acquire(t.Context(), request("k"))
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil {
				t.Fatal(err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if n := size(); n > walLong*walPage {
				t.Fatalf("a run leaves a log of %d pages", n/walPage)
			}
		}
		l, err := s.open(backends.Options{}).Acquire(t.Context(), request("k"))
		if err != nil {
			t.Fatal(err)
		}
		for range 300 {
			if err := l.Renew(t.Context(), time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if n := size(); n > walReserve {
			t.Errorf("300 renewals leave a log of %d pages", n/walPage)
		}
	})
}

// Processes that are killed at any moment leave a store that is whole, and a key that is free.
func TestKilledAtRandom(t *testing.T) {
	s := newStore(t, linked)
	file := filepath.Join(t.TempDir(), "sum")
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	for i := range rounds {
		if err := os.WriteFile(file, []byte("0 0\n"), 0o600); err != nil { // a kill may have cut it off
			t.Fatal(err)
		}
		a, b := s.start("count", "k", file, "1000"), s.start("hold", fmt.Sprint("k", i), "1h")
		a.want("ready")
		a.in.Close()
		b.want("held")
		time.Sleep(time.Duration(i%20) * time.Millisecond) // anywhere between the first open and the nth release
		a.kill()
		b.kill()
	}
	if ok := s.sql("PRAGMA integrity_check"); ok[0] != "[ok]" {
		t.Errorf("integrity check: %v", ok)
	}
	b := s.open(backends.Options{})
	all, err := b.Status(t.Context())
	if err != nil || len(all) < rounds {
		t.Fatalf("%d keys, %v", len(all), err)
	}
	for _, st := range all {
		if st.State != backends.Free {
			t.Errorf("%+v", st)
		}
	}
	if _, err := b.Acquire(t.Context(), request("k")); err != nil {
		t.Error(err)
	}
}
