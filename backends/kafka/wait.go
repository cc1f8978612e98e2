package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/ledger"
)

// Wait blocks in a fetch of the key's partition, which the broker answers as soon as there is a record, and looks at what
// each record changes. What runs out without a record is told by the clock.
func (b *backend) Wait(ctx context.Context, r backends.Request) error {
	if err := r.Check(); err != nil {
		return err
	}
	l := b.log(r.Key)
	e := lockEntry(r)
	for first := true; ; first = false {
		var next int64
		var left time.Duration
		look := func(book *ledger.Book) error {
			page, err := book.Page(r.Key)
			if err != nil {
				return err
			}
			next = book.Next()
			left = inTheWay(page.State(), e, l.clock.guess())
			return nil
		}
		err := error(nil)
		if first {
			err = l.refresh(ctx, look)
		} else {
			err = l.with(ctx, look)
		}
		if err != nil || left == 0 {
			return b.waited(ctx, err)
		}
		if err := l.listen(ctx, next, left); err != nil {
			return b.waited(ctx, err)
		}
	}
}

// waited is Wait's error: ctx's own where that has ended.
func (b *backend) waited(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return b.fail("wait", err)
}

// inTheWay is how long the LOCK would be refused as held unless something happens. 0: it would not be, or it would be
// refused as done, which is for Acquire to tell.
func inTheWay(s *ledger.State, e *ledger.Entry, now int64) time.Duration {
	var held *backends.HeldError
	if err := s.Refuse(e, now); !errors.As(err, &held) {
		return 0
	}
	if held.Until.IsZero() {
		return patientRead
	}
	return min(max(held.Left, 0), patientRead)
}

// listen waits for records from next on, at most that long, and takes them into the book.
func (l *log) listen(ctx context.Context, next int64, atMost time.Duration) error {
	found, err := l.b.client.Fetch(ctx, l.id, next, max(atMost, time.Millisecond), chunk)
	if err != nil {
		return l.with(ctx, func(book *ledger.Book) error { return l.catchUp(book) }) // the log may have been cut
	}
	return l.with(ctx, func(book *ledger.Book) error {
		if len(found.Records) == 0 || found.Records[0].Offset > book.Next() {
			return nil // the book was begun anew meanwhile, and has read them
		}
		return l.advance(book, found)
	})
}
