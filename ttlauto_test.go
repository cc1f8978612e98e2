package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// took are n successful runs, of which the last few took longer.
func took(n int, usual time.Duration, longer ...time.Duration) (all []backends.Record) {
	for range n - len(longer) {
		all = append(all, backends.Record{Outcome: backends.Succeeded, Duration: &usual})
	}
	for _, d := range longer {
		all = append(all, backends.Record{Outcome: backends.Succeeded, Duration: &d})
	}
	return all
}

func TestTTLByTheHistory(t *testing.T) {
	for _, c := range []struct {
		runs []backends.Record
		want time.Duration
	}{
		{nil, time.Minute},
		{[]backends.Record{{Outcome: backends.Succeeded}}, time.Minute}, // no duration is known
		{took(1, time.Second), 30 * time.Second},
		{took(1, time.Hour), 90 * time.Minute},
		{took(2, time.Hour, 2*time.Hour), 3 * time.Hour},
		{took(99, time.Minute, time.Hour), 90 * time.Minute},
		{took(100, time.Minute, time.Hour), 90 * time.Second},              // one of a hundred is beyond the percentile
		{took(100, time.Minute, time.Hour, 2*time.Hour), 90 * time.Minute}, // two are not
		{took(50, 20*time.Second), 30 * time.Second},                       // exactly the least
		{took(50, 20*time.Second+time.Millisecond), 30*time.Second + 2*time.Millisecond},
		{took(3, 16*time.Hour), 24 * time.Hour},
		{took(3, 400*24*time.Hour), 24 * time.Hour},
	} {
		if got := ttlFor(c.runs); got != c.want {
			t.Errorf("%d runs: %v, want %v", len(c.runs), got, c.want)
		}
	}
}

// unread is a store whose history cannot be read.
type unread struct{ backends.Backend }

func (unread) History(context.Context, backends.Query) ([]backends.Record, error) {
	return nil, &backends.Error{Op: "history", Backend: "test:", Err: errors.New("no right to read it")}
}

func TestAutoTTLIsWhatTheLeaseAndItsTimingGet(t *testing.T) {
	store, open := inMemory()
	for i, d := range []time.Duration{time.Hour, 2 * time.Hour} {
		l := taken(t, store, backends.Request{Key: "k"})
		code := i
		end := backends.End{Outcome: backends.Succeeded, ExitCode: &code, Duration: d}
		if i == 1 {
			end.Outcome = backends.Failed // does not count
		}
		if err := l.Release(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	cfg := good(t, "--key k --ttl auto -- true")
	r := &runner{cfg: cfg, ui: newUI(cfg, nil), open: open, req: newRequest(cfg)}
	a := r.openAndAcquire(t.Context(), t.Context())
	if a.err != nil {
		t.Fatal(a.err)
	}
	r.learn(a)
	timing := newTiming(a.g.lease.Grant(), r.cfg)
	if ttl := 90 * time.Minute; a.g.lease.Grant().TTL != ttl || r.req.TTL != ttl || timing.Every != ttl/3 || timing.Grace != 10*time.Second {
		t.Errorf("granted %+v, timing %+v", a.g.lease.Grant(), timing)
	}
	if cfg.TTL != time.Minute || cfg.Heartbeat != 0 {
		t.Errorf("what was asked for has changed: %+v", cfg)
	}
}

func TestAutoTTLWithoutAHistoryToRead(t *testing.T) {
	_, open := inMemory()
	blind := func(ctx context.Context, cfg *Config) (backends.Backend, error) {
		b, err := open(ctx, cfg)
		return unread{b}, err
	}
	got := invoke(t, blind, nil, "--key", "k", "--ttl", "auto", "--", "true")
	if got.code != 0 || strings.Count(got.err, "\n") != 1 || !strings.Contains(got.err, fmt.Sprintf("so --ttl auto is %v", time.Minute)) {
		t.Errorf("%+v", got)
	}
}
