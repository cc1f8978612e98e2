package main

import (
	"context"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/memory"
)

// silent is a store that stops answering what is asked about the past.
type silent struct{ backends.Backend }

func (silent) History(ctx context.Context, _ backends.Query) ([]backends.Record, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestALostLeaseTellsWhoBrokeIt(t *testing.T) {
	const unknown = "the lease is no longer ours (broken by an operator, expired, or removed)"
	for name, c := range map[string]struct {
		take func(*memory.Store, backends.Backend) error
		wrap func(backends.Backend) backends.Backend
		want string
	}{
		"broken": {take: func(_ *memory.Store, b backends.Backend) error {
			_, err := b.Break(context.Background(), "k", 0, "broken by ann@desk")
			return err
		}, want: "the lease is no longer ours (broken by ann@desk)"},
		"another was": {take: func(s *memory.Store, b backends.Backend) error {
			s.Remove("k")
			l, err := b.Acquire(context.Background(), askFor(b, time.Minute, 0).req)
			if err == nil {
				_, err = b.Break(context.Background(), "k", l.Grant().Token, "broken by ann@desk")
			}
			return err
		}, want: unknown},
		"silent": {take: func(_ *memory.Store, b backends.Backend) error {
			_, err := b.Break(context.Background(), "k", 0, "broken by ann@desk")
			return err
		}, wrap: func(b backends.Backend) backends.Backend { return silent{b} }, want: unknown},
	} {
		store := memory.New(time.Now, backends.DefaultKeep)
		r := &runner{cfg: &Config{BackendTimeout: 50 * time.Millisecond, Slots: 1}, b: store.Open()}
		r.req = askFor(r.b, time.Minute, 0).req
		l, err := r.b.Acquire(t.Context(), r.req)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.take(store, r.b); err != nil {
			t.Fatal(err)
		}
		if c.wrap != nil {
			r.b = c.wrap(r.b)
		}
		r.lease, r.keep = l, &keeper{cause: backends.ErrLost}
		if got := r.whyLost(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestAnUnansweredRenewalIsNoLossToAskAbout(t *testing.T) {
	r := &runner{keep: &keeper{cause: errNoAnswer}} // no store: it must not be asked
	if got := r.whyLost(); got != errNoAnswer.Error() {
		t.Errorf("%q", got)
	}
}
