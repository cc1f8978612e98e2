package redis

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// request asks for key as a new run.
func request(key string) backends.Request {
	return backends.Request{Key: key, Owner: backends.NewOwner(), Holder: "alpha", Host: "host-a", PID: 7, TTL: time.Minute, Slots: 1}
}

// loose is r for a lease that can be attached to.
func loose(r backends.Request) backends.Request {
	r.Loose = true
	return r
}

func acquire(t testing.TB, b backends.Backend, r backends.Request) backends.Lease {
	t.Helper()
	l, err := b.Acquire(context.Background(), r)
	if err != nil {
		t.Fatalf("Acquire %q: %v", r.Key, err)
	}
	return l
}

func release(t testing.TB, l backends.Lease) {
	t.Helper()
	if err := l.Release(context.Background(), backends.End{Outcome: backends.Succeeded}); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

func refused(t testing.TB, b backends.Backend, r backends.Request) *backends.HeldError {
	t.Helper()
	_, err := b.Acquire(context.Background(), r)
	var held *backends.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("Acquire %q = %v, want *HeldError", r.Key, err)
	}
	return held
}

// unknown wants an answer that is not known, in one line that holds all words, and no secret.
func unknown(t testing.TB, err error, permanent bool, words ...string) {
	t.Helper()
	var held *backends.HeldError
	var done *backends.DoneError
	var e *backends.Error
	if errors.As(err, &held) || errors.As(err, &done) || errors.Is(err, backends.ErrLost) || !errors.As(err, &e) {
		t.Errorf("got %v, want an answer that is not known", err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	if strings.ContainsAny(err.Error(), "\r\n") || strings.Contains(err.Error(), secret) {
		t.Errorf("more than a line, or the password: %q", err)
	}
	if backends.IsPermanent(err) != permanent {
		t.Errorf("%q is permanent: %v, want %v", err, !permanent, permanent)
	}
}

// secret is the password in these tests.
const secret = "s3cr#t @/%:?&=ü"

// soon runs f, which has to end within d.
func soon(t testing.TB, d time.Duration, what string, f func()) {
	t.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > d {
		t.Errorf("%s took %v, want less than %v", what, took.Round(time.Millisecond), d)
	}
}

// eventually looks until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

// within is a context for one exchange.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// writeFile is a file with this text.
func writeFile(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
