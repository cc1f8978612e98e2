package zookeeper

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// request asks for key as a new run.
func request(key string) backends.Request {
	return backends.Request{Key: key, Owner: backends.NewOwner(), Holder: "alpha", Host: "host-a", PID: 4711, TTL: time.Minute, Slots: 1}
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// enough is time for what has to be answered, on a machine that is busy with everything else.
const enough = 30 * time.Second

func acquire(t testing.TB, b backends.Backend, r backends.Request) backends.Lease {
	t.Helper()
	l, err := b.Acquire(within(t, enough), r)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func renew(t testing.TB, l backends.Lease) {
	t.Helper()
	if err := l.Renew(within(t, enough), time.Minute); err != nil {
		t.Fatal(err)
	}
}

func release(t testing.TB, l backends.Lease) {
	t.Helper()
	if err := l.Release(within(t, enough), backends.End{Outcome: backends.Succeeded}); err != nil {
		t.Fatal(err)
	}
}

// unknown wants an answer that is not known, in one line with these words and a remedy.
func unknown(t testing.TB, err error, permanent bool, words ...string) {
	t.Helper()
	var e *backends.Error
	if !errors.As(err, &e) {
		t.Errorf("%v is not an answer that is not known", err)
		return
	}
	if e.Permanent != permanent {
		t.Errorf("permanent is %v of: %v", e.Permanent, err)
	}
	if strings.Contains(err.Error(), "\n") || e.Remedy == "" {
		t.Errorf("%q is not one line with a remedy", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(enough); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, enough)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func stateOf(t testing.TB, b backends.Backend, key string) backends.State {
	t.Helper()
	all, err := b.Status(within(t, enough), key)
	if err != nil || len(all) == 0 {
		t.Fatalf("%v, %v", all, err)
	}
	return all[0]
}

func historyOf(t testing.TB, b backends.Backend, key string) []backends.Record {
	t.Helper()
	all, err := b.History(within(t, enough), backends.Query{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
