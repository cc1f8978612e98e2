package kafka

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/ledger"
	"github.com/lockrun/lockrun/internal/boottime"
)

// Break appends a BREAK where the log shows a lease that it may be about.
func (b *backend) Break(ctx context.Context, key string, token int64, by string) ([]backends.State, error) {
	a, err := b.tell(ctx, &ledger.Entry{Kind: ledger.Break, Key: key, Token: token, By: by}, func(s *ledger.State) error {
		if !slices.ContainsFunc(s.Leases, func(l ledger.Lease) bool { return token == 0 || l.Token == token }) {
			return backends.ErrNotHeld
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, b.fail("unlock", err)
	case a.res == nil:
		return nil, b.fail("unlock", errTorn)
	case a.res.Did != ledger.Broken:
		return nil, backends.ErrNotHeld
	}
	var broken []backends.State
	for i := range a.res.Broken {
		broken = append(broken, leaseState(key, &a.res.Broken[i], a.res.Time))
	}
	return broken, nil
}

// tell appends what is decided on what is in the log now, and not on what this process has read of it.
func (b *backend) tell(ctx context.Context, e *ledger.Entry, check func(*ledger.State) error) (answer, error) {
	l := b.log(e.Key)
	if err := l.refresh(ctx, func(*ledger.Book) error { return nil }); err != nil {
		return answer{}, err
	}
	return l.do(ctx, e, check)
}

func (b *backend) Pause(ctx context.Context, key string, p backends.Pause) error {
	if err := backends.CheckKey(key); err != nil {
		return err
	}
	_, err := b.log(key).do(ctx, &ledger.Entry{Kind: ledger.Pause, Key: key, By: p.By, Reason: p.Reason, For: ms(p.For)}, nil)
	return b.fail("pause", err)
}

func (b *backend) Resume(ctx context.Context, key string) error {
	a, err := b.tell(ctx, &ledger.Entry{Kind: ledger.Resume, Key: key}, func(s *ledger.State) error {
		if s.Pause == nil {
			return backends.ErrNotHeld
		}
		return nil
	})
	switch {
	case err != nil:
		return b.fail("resume", err)
	case a.res == nil:
		return b.fail("resume", errTorn)
	case a.res.Did != ledger.PauseEnded:
		return backends.ErrNotHeld
	}
	return nil
}

func (b *backend) Record(ctx context.Context, r backends.Record) error {
	if err := backends.CheckKey(r.Key); err != nil {
		return err
	}
	_, err := b.log(r.Key).do(ctx, &ledger.Entry{Kind: ledger.Note, Key: r.Key, Record: &r}, nil)
	return b.fail("record", err)
}

// Now asks a broker for its time, by an append of its own where none of this process has told it in the last seconds. Who
// may only read gets this host's time instead, though never one before the last record.
func (b *backend) Now(ctx context.Context) (time.Time, error) {
	at, err := b.logs[0].time(ctx)
	if err != nil {
		return time.Time{}, b.fail("read the clock", err)
	}
	return ledger.Instant(at), nil
}

// time is the time of the partition's leader.
func (l *log) time(ctx context.Context) (int64, error) {
	var at int64
	err := l.with(ctx, func(book *ledger.Book) error {
		var exact bool
		if at, exact = l.clock.exact(); exact {
			return nil
		}
		if !l.b.c.readOnly {
			return errUntold
		}
		err := l.catchUp(book)
		at = l.clock.now()
		return err
	})
	if errors.Is(err, errUntold) {
		return l.askTime(ctx)
	}
	return at, err
}

var errUntold = errors.New("no append has told the time yet")

// askTime appends a record that is about nothing else.
func (l *log) askTime(ctx context.Context) (int64, error) {
	if err := l.b.usable(ctx, l); err != nil {
		return 0, err
	}
	appended, err := l.mark(ctx, &ledger.Entry{Kind: ledger.Clock})
	received := boottime.Now()
	if err != nil {
		return 0, err
	}
	at := appended.Time.UnixMilli()
	return at, l.with(ctx, func(*ledger.Book) error {
		l.clock.set(at, received)
		return nil
	})
}
