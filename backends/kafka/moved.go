package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/lockrun/lockrun/backends/kafka/ledger"
	"github.com/lockrun/lockrun/backends/kafka/wire"
)

// While leaders move - the topic has just been made, or a broker stops - an append meets one that leads no more. Its answer
// does not say whether the record is lost: a leader that is deposed while its replicas have not answered says the same.
//
// What its successor has of it comes before all that the successor is given itself. So a mark is appended, and everything
// before it read. A record that is not there never will be, since its request has been answered, and another can be sent in
// its place. Nothing is appended twice.

// notThere is about a record that is not in the log, and will not be.
type notThere struct{ error }

func (n notThere) Unwrap() error { return n.error }

// do is once, again where the record has met a leader that led no more, for as long as one exchange may take.
func (l *log) do(ctx context.Context, e *ledger.Entry, check func(*ledger.State) error) (answer, error) {
	for giveUp := time.Now().Add(l.b.c.wire.Timeout); ; {
		a, err := l.once(ctx, e, check)
		if !errors.As(err, new(notThere)) || time.Now().After(giveUp) || ctx.Err() != nil {
			return a, err
		}
	}
}

// underTheNext looks for a record that a leader has answered with err while it was deposed. The error is a notThere where
// the record is not in its successor's log.
func (l *log) underTheNext(ctx context.Context, e *ledger.Entry, id string, err error) (answer, error) {
	at, markErr := l.mark(ctx, &ledger.Entry{Kind: ledger.Clock})
	if markErr != nil {
		l.b.lateMayCome(e.Owner)
		l.forgetPending(id)
		return answer{}, markErr // says what is in the way now
	}
	a, readErr := l.outcome(ctx, e, id, func(book *ledger.Book) error { return l.readTo(book, at.Offset) })
	switch {
	case readErr != nil:
		l.b.lateMayCome(e.Owner)
		return answer{}, readErr
	case a.res == nil:
		return answer{}, notThere{err}
	}
	return a, nil
}

// mark appends a CLOCK. That says nothing more where it is there twice, so it is sent until it has been answered.
func (l *log) mark(ctx context.Context, e *ledger.Entry) (wire.Appended, error) {
	e.Writer, e.N = l.b.writer, l.b.seq.Add(1)
	value, err := e.Encode()
	if err != nil {
		return wire.Appended{}, err
	}
	at, err := l.b.client.Mark(ctx, l.id, e.RecordKey(), value)
	if err == nil && at.Time.IsZero() {
		err = errNoTime
	}
	return at, err
}
