package mysql_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// hostURL makes the test binary a host of its own: it takes a lease, renews it and reports each renewal, until killed.
const hostURL = "LOCKRUN_TEST_MYSQL_HOST"

func TestMain(m *testing.M) {
	if raw := os.Getenv(hostURL); raw != "" {
		if err := host(raw); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const hostTTL = 2 * time.Second

func host(raw string) error {
	u, err := backends.ParseURL(raw)
	if err != nil {
		return err
	}
	b, err := openURL(u)
	if err != nil {
		return err
	}
	ctx := context.Background()
	r := request("k")
	r.TTL = hostTTL
	l, err := b.Acquire(ctx, r)
	if err != nil {
		return err
	}
	for {
		if err := l.Renew(ctx, hostTTL); err != nil {
			return err
		}
		states, err := b.Status(ctx, "k")
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(states[0]); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// CLK-02: hosts in different zones, a server and sessions in others. Nobody converts anything.
func TestHostsInDifferentTimeZones(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{Args: []string{"--default-time-zone=+05:30"}, Env: []string{"TZ=Asia/Kolkata"}})
	s := newStore(t, m)
	a := exec.Command(os.Args[0])
	a.Env = append(os.Environ(), hostURL+"="+s.url, "TZ=Europe/Paris")
	a.Stderr = os.Stderr
	out, err := a.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	defer a.Process.Kill()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the other host has no lease")
	}

	t.Setenv("TZ", "America/Sao_Paulo")
	m.Exec("SET GLOBAL time_zone = '-08:00'") // of sessions that begin from now on
	b := s.open(t, backends.Options{})
	defer b.Close()
	held := refused(t, b, request("k"))
	if held.Left <= 0 || held.Left > hostTTL || time.Until(held.Until) > hostTTL || time.Since(held.Since).Abs() > time.Minute {
		t.Errorf("refused with %+v at %v", held, time.Now().UTC())
	}
	states, err := b.Status(within(t, 20*time.Second), "k")
	if err != nil {
		t.Fatal(err)
	}
	mine, _ := json.Marshal(states[0])
	sameInstants(t, lines.Bytes(), mine)

	for range 5 { // its renewals go on
		if !lines.Scan() {
			t.Fatal("the other host ended")
		}
		refused(t, b, request("k"))
	}
	last := lastLine(t, a, lines)
	l := acquireSoon(t, b, request("k"))
	if d := l.Grant().AcquiredAt.Sub(last); d < hostTTL || d > hostTTL+20*time.Second {
		t.Errorf("taken over %v after the last renewal, want about %v", d, hostTTL)
	}
}

// lastLine kills the host and returns its last renewal.
func lastLine(t *testing.T, a *exec.Cmd, lines *bufio.Scanner) time.Time {
	t.Helper()
	if err := a.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	line := append([]byte(nil), lines.Bytes()...)
	for lines.Scan() {
		line = append([]byte(nil), lines.Bytes()...)
	}
	a.Wait()
	var state struct {
		At time.Time `json:"renewed_at"`
	}
	if err := json.Unmarshal(line, &state); err != nil {
		t.Fatal(err)
	}
	return state.At
}

// sameInstants compares what does not change with renewals.
func sameInstants(t *testing.T, a, b []byte) {
	t.Helper()
	var x, y struct {
		At    string `json:"acquired_at"`
		Token int64  `json:"token"`
	}
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil || x != y || x.At == "" {
		t.Errorf("one host sees %s, the other %s (%v)", a, b, err)
	}
}

func refused(t testing.TB, b backends.Backend, r backends.Request) *backends.HeldError {
	t.Helper()
	l, err := b.Acquire(within(t, 20*time.Second), r)
	var held *backends.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("Acquire = %v, %v; want *HeldError", l, err)
	}
	return held
}

func acquireSoon(t testing.TB, b backends.Backend, r backends.Request) backends.Lease {
	t.Helper()
	var l backends.Lease
	eventually(t, "acquiring", func() bool {
		var err error
		l, err = b.Acquire(within(t, 20*time.Second), r)
		var held *backends.HeldError
		if err != nil && !errors.As(err, &held) {
			t.Fatal(err)
		}
		return err == nil
	})
	return l
}

// CLK-03: the hour that Berlin's clocks skip, and the one that they repeat.
func TestDaylightSaving(t *testing.T) {
	for name, clock := range map[string]time.Time{
		// 02:20 is a local time that does not exist on that day; a session that takes UTC for local time cannot store it.
		"spring gap":    time.Date(2024, 3, 31, 2, 20, 0, 0, time.UTC),
		"into the gap":  time.Date(2024, 3, 31, 0, 59, 58, 0, time.UTC),
		"autumn fold":   time.Date(2024, 10, 27, 0, 59, 58, 0, time.UTC),
		"inside a fold": time.Date(2024, 10, 27, 2, 20, 0, 0, time.UTC),
	} {
		t.Run(name, func(t *testing.T) {
			m := testserver.StartMariaDB(t, testserver.MariaDBConfig{Clock: clock, Env: []string{"TZ=Europe/Berlin"}})
			s := newStore(t, m)
			b := s.open(t, backends.Options{})
			defer b.Close()
			l := mustAcquire(t, b, request("k"))
			turn := clock.Truncate(time.Hour).Add(time.Hour) // where the fold or the gap begins, or an hour that does nothing
			eventually(t, "a few renewals, past the turn", func() bool {
				if err := l.Renew(within(t, 20*time.Second), time.Minute); err != nil {
					t.Fatalf("Renew: %v", err)
				}
				states, err := b.Status(within(t, 20*time.Second), "k")
				if err != nil {
					t.Fatal(err)
				}
				if in := *states[0].ExpiresIn; in > time.Minute || in < 30*time.Second {
					t.Fatalf("%v left of a minute", in)
				}
				now, err := b.Now(within(t, 20*time.Second))
				return err == nil && (now.After(turn) || turn.Sub(clock) > time.Minute)
			})
			if at := l.Grant().AcquiredAt; at.Before(clock) || at.After(clock.Add(30*time.Second)) {
				t.Errorf("acquired at %v by a clock that began at %v", at, clock)
			}
			mustRelease(t, l)
			records, err := b.History(within(t, 20*time.Second), backends.Query{Key: "k"})
			if err != nil || len(records) != 1 || records[0].EndedAt.Sub(records[0].StartedAt) > time.Minute || records[0].EndedAt.Before(clock) {
				t.Errorf("History = %+v, %v", records, err)
			}
		})
	}
}

// CLK-04: many short leases, renewed often; no renewal is taken for a loss, and no rival gets in.
func TestRenewalsThatChangeLittleAreNotLost(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{})
	s := newStore(t, m)
	done := make(chan struct{})
	for i := range 20 {
		ttl := 3 * time.Second
		if i%4 == 0 {
			ttl = 900 * time.Millisecond
		}
		go func() { keepAgainstRival(t, s, fmt.Sprint("k", i), ttl); done <- struct{}{} }()
	}
	for range 20 {
		<-done
	}
}

// keepAgainstRival renews every 100 ms for twice the TTL and more, while a rival asks every 20 ms. A machine that is too
// busy to renew in time loses the lease by right, so what counts is only what happens while the lease is good.
func keepAgainstRival(t *testing.T, s *store, key string, ttl time.Duration) {
	a, b := s.open(t, backends.Options{}), s.open(t, backends.Options{})
	defer a.Close()
	defer b.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r := request(key)
	r.TTL = ttl
	sent := time.Now()
	l, err := a.Acquire(ctx, r)
	if err != nil {
		t.Errorf("%s: %v", key, err)
		return
	}
	good := sent.Add(ttl)
	for begun := time.Now(); time.Since(begun) < 2*ttl+time.Second; time.Sleep(20 * time.Millisecond) {
		_, err := b.Acquire(ctx, request(key))
		var held *backends.HeldError
		if answered := time.Now(); !errors.As(err, &held) && answered.Before(good) {
			t.Errorf("%s: the rival got %v, %v before the end", key, err, good.Sub(answered))
			return
		}
		if time.Until(good) > ttl-100*time.Millisecond {
			continue
		}
		sent := time.Now()
		err = l.Renew(ctx, ttl)
		if answered := time.Now(); err != nil && answered.Before(good) {
			t.Errorf("%s: Renew = %v, %v before the end", key, err, good.Sub(answered))
			return
		} else if err != nil {
			t.Logf("%s: too busy to renew in time", key)
			return
		}
		good = sent.Add(ttl)
	}
}
