package sqlite

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/backends"
)

// lockedBy has another connection keep the database locked by these statements until the test ends.
func (s *store) lockedBy(statements ...string) {
	s.t.Helper()
	c, err := dial(s.d, s.path, "mode=rw")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.close() })
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for _, sql := range statements {
		for n := 0; ; n++ {
			_, err := c.exec(sql)
			if err == nil {
				break
			}
			if !passing(err) || backOff(ctx, n) != nil {
				s.t.Fatal(sql, err)
			}
		}
	}
}

// tooLate wants an answer that is not known, in one line with cause and remedy, after a bound that is short. On a busy
// machine it can be over before the operation has met what is in its way; then it gets more time.
func (s *store) tooLate(op, cause string, ask func(ctx context.Context) error) {
	s.t.Helper()
	var err error
	for bound := 50 * time.Millisecond; bound < patience; bound *= 4 {
		ctx, cancel := context.WithTimeout(s.t.Context(), bound)
		err = ask(ctx)
		cancel()
		if err == nil || strings.Contains(err.Error(), cause) {
			break
		}
	}
	var e *backends.Error
	if !errors.As(err, &e) || !errors.Is(err, context.DeadlineExceeded) || e.Permanent {
		s.t.Errorf("%s: %#v, %v", op, err, err)
		return
	}
	waited, ok := strings.CutPrefix(e.Err.Error(), cause+" ")
	if _, bad := time.ParseDuration(waited); e.Op != op || !ok || bad != nil {
		s.t.Errorf("%s: %v", op, err)
	}
	if strings.Contains(err.Error(), "context") || !strings.Contains(e.Remedy, "fuser -v "+s.path) {
		s.t.Errorf("%s does not help: %v", op, err)
	}
}

func TestADatabaseThatSomebodyKeepsLocked(t *testing.T) {
	for _, begin := range []string{"BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"} {
		t.Run(begin, func(t *testing.T) {
			eachDriver(t, func(t *testing.T, s *store) {
				b := s.open(backends.Options{})
				l, err := b.Acquire(t.Context(), request("held"))
				if err != nil {
					t.Fatal(err)
				}
				if err := b.Pause(t.Context(), "paused", backends.Pause{By: "me"}); err != nil {
					t.Fatal(err)
				}
				s.lockedBy(begin)
				for op, ask := range map[string]func(ctx context.Context) error{
					"acquire": func(ctx context.Context) error { _, err := b.Acquire(ctx, request("k")); return err },
					"renew":   func(ctx context.Context) error { return l.Renew(ctx, time.Hour) },
					"release": func(ctx context.Context) error { return l.Release(ctx, backends.End{Outcome: backends.Failed}) },
					"unlock":  func(ctx context.Context) error { _, err := b.Break(ctx, "held", 0, "me"); return err },
					"pause":   func(ctx context.Context) error { return b.Pause(ctx, "k", backends.Pause{By: "me"}) },
					"resume":  func(ctx context.Context) error { return b.Resume(ctx, "paused") },
					"record": func(ctx context.Context) error {
						return b.Record(ctx, backends.Record{Key: "k", Outcome: backends.Lost})
					},
					"give back": func(ctx context.Context) error { return b.Abandon(ctx, request("held")) },
				} {
					s.tooLate(op, waitsForLock, ask)
				}
				if _, err := b.Status(t.Context()); err != nil { // readers are not in anybody's way
					t.Error(err)
				}
			})
		})
	}
}

// Some tools lock readers out as well.
func TestADatabaseThatSomebodyKeepsToHimself(t *testing.T) {
	eachDriver(t, func(t *testing.T, s *store) {
		// By a process that has ended: this one would keep a pin, which is a lock of its own.
		if got := letGo(t, []*proc{s.start("once", "k")}); got["ran"] != 1 {
			t.Fatal(got)
		}
		s.lockedBy("PRAGMA locking_mode=EXCLUSIVE", "BEGIN EXCLUSIVE")
		for _, o := range []backends.Options{{}, {ReadOnly: true}} {
			s.tooLate("open", waitsForLock, func(ctx context.Context) error {
				_, err := open(ctx, urlOf(s.path), o, s.d, hostClock)
				return err
			})
		}
	})
}

func TestAnEmptyDatabaseThatSomebodyKeepsLocked(t *testing.T) {
	eachDriver(t, func(t *testing.T, s *store) {
		s.createPlain()
		s.lockedBy("BEGIN EXCLUSIVE")
		s.tooLate("open", waitsForLock, func(ctx context.Context) error {
			_, err := open(ctx, urlOf(s.path), backends.Options{}, s.d, hostClock)
			return err
		})
	})
}

func TestADatabaseThatSomebodyIsCreatingForEver(t *testing.T) {
	s := newStore(t, linked)
	s.createPlain()
	live, err := os.Create(s.path + "-live")
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	if err := unix.Flock(int(live.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	s.tooLate("open", waitsForCreator, func(ctx context.Context) error {
		_, err := open(ctx, urlOf(s.path), backends.Options{}, s.d, hostClock)
		return err
	})
}

// What a process waits for may be itself: an exchange that was given up and has not ended.
func TestAnExchangeBehindOneThatHangs(t *testing.T) {
	s := newStore(t, linked)
	b := s.open(backends.Options{}).(*backend)
	hang := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := do(ctx, b, "renew", changing, func(*conn) (struct{}, error) { <-hang; return struct{}{}, nil })
	if err == nil || !strings.Contains(err.Error(), waitsForDisk) {
		t.Errorf("a disk that hangs: %v", err)
	}
	s.tooLate("status", waitsForTurn, func(ctx context.Context) error { _, err := b.Status(ctx); return err })
	close(hang)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
