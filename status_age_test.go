package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// endless is a store that cannot tell when a lease will expire, as ZooKeeper cannot. Its clock is an hour ahead.
type endless struct {
	backends.Backend
	asked *int
	err   error
}

func (e endless) Status(ctx context.Context, keys ...string) ([]backends.State, error) {
	states, err := e.Backend.Status(ctx, keys...)
	for i := range states {
		states[i].ExpiresAt, states[i].ExpiresIn = nil, nil
	}
	return states, err
}

func (e endless) Now(ctx context.Context) (time.Time, error) {
	*e.asked++
	now, err := e.Backend.Now(ctx)
	if e.err != nil {
		err = e.err
	}
	return now.Add(time.Hour), err
}

func TestAgesWhereNoExpiryIsKnown(t *testing.T) {
	store, open := inMemory()
	taken(t, store, backends.Request{Key: "held"})
	for _, key := range []string{"paused", "hour"} {
		p := backends.Pause{By: "ann"}
		if key != "paused" {
			p.For = time.Hour
		}
		if err := store.Open().Pause(t.Context(), key, p); err != nil {
			t.Fatal(err)
		}
	}
	asked := 0
	ages := func(open opener, argv ...string) map[string]string {
		t.Helper()
		got := invoke(t, open, nil, append([]string{"status"}, argv...)...)
		if strings.Contains(got.err, "panic") || !strings.Contains(got.out, "AGE") {
			t.Fatalf("%+v", got)
		}
		lines := strings.Split(strings.TrimSpace(got.out), "\n")
		from := strings.Index(lines[0], "AGE")
		all := map[string]string{}
		for _, l := range lines[1:] {
			key, _, _ := strings.Cut(l, "  ")
			all[key] = strings.Fields(l[from:])[0]
		}
		return all
	}
	with := func(err error) opener {
		return func(context.Context, *Config) (backends.Backend, error) {
			return endless{store.Open(), &asked, err}, nil
		}
	}
	for key, age := range ages(with(nil)) {
		if !strings.HasPrefix(age, "1h") {
			t.Errorf("%s has age %s by a clock that is an hour ahead", key, age)
		}
	}
	if asked != 1 {
		t.Errorf("the clock was asked %d times", asked)
	}
	for key, age := range ages(with(context.DeadlineExceeded)) {
		if strings.HasPrefix(age, "1h") || !strings.HasSuffix(age, "s") {
			t.Errorf("%s has age %s by this host's clock", key, age)
		}
	}
	if all := ages(open); len(all) != 3 || !strings.HasSuffix(all["paused"], "s") || !strings.HasSuffix(all["hour"], "s") {
		t.Errorf("%v", all)
	}
	asked = 0
	if got := invoke(t, with(nil), nil, "status", "nobody"); got.code != codeNo || asked != 0 {
		t.Errorf("%+v, and the clock was asked %d times", got, asked)
	}
}

// A backend that cannot be opened has no clock; what the fallback holds is shown all the same.
func TestTheClockOfAFallbackAlone(t *testing.T) {
	store, _ := inMemory()
	taken(t, store, backends.Request{Key: "k"})
	asked := 0
	open := func(context.Context, *Config) (backends.Backend, error) {
		return &both{why: errors.New("down"), fallback: endless{store.Open(), &asked, nil}, tell: func(string) {}}, nil
	}
	if got := invoke(t, open, nil, "status", "k"); got.code != 0 || !strings.Contains(got.out, " 1h ") || asked != 1 {
		t.Errorf("%+v, and the clock was asked %d times", got, asked)
	}
	if got := invoke(t, open, nil, "status", "--json", "k"); got.code != 0 || asked != 1 { // it shows no age
		t.Errorf("%+v, and the clock was asked %d times", got, asked)
	}
}
