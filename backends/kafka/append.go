package kafka

import (
	"context"
	"errors"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/ledger"
	"github.com/lockrun/lockrun/backends/kafka/wire"
	"github.com/lockrun/lockrun/internal/boottime"
)

// answer is what came of an append.
type answer struct {
	res   *ledger.Result // nil: the record has been appended, and what it did can no longer be told
	state *ledger.State  // of the key, at least as of the record
}

// do appends e and returns what it did. check, if not nil, looks at the key's state before anything is appended, and its
// error is do's. A context that ends leaves the outcome unknown.
//
// Where the reply to the append is lost, the record is looked for in the log: if it is there, it counts as answered.
func (l *log) do(ctx context.Context, e *ledger.Entry, check func(*ledger.State) error) (answer, error) {
	if err := l.b.usable(ctx); err != nil {
		return answer{}, err
	}
	id, key, value, carry, err := l.prepare(ctx, e, check)
	if err != nil {
		return answer{}, err
	}
	appended, err := l.b.client.Produce(ctx, l.id, key, value, wire.Header{Name: ledger.HeaderName, Value: carry})
	received := boottime.Now()
	if err != nil {
		return l.lookFor(ctx, e, id, err)
	}
	if appended.Time.IsZero() {
		l.forgetPending(id)
		return answer{}, errNoTime
	}
	return l.outcome(ctx, e, id, func(book *ledger.Book) error {
		l.clock.set(appended.Time.UnixMilli(), received)
		return l.readTo(book, appended.Offset)
	})
}

// errNoTime is about a topic whose records have the producers' times. Nobody takes the record for one of the lock's.
var errNoTime = errors.New("the topic keeps the producers' times (message.timestamp.type=CreateTime)")

// prepare writes the record, with what is known at this moment.
func (l *log) prepare(ctx context.Context, e *ledger.Entry, check func(*ledger.State) error) (id string, key, value, carry []byte, err error) {
	e.Writer, e.N = l.b.writer, l.b.seq.Add(1)
	l.b.c.sign(e)
	id = e.ID()
	err = l.with(ctx, func(book *ledger.Book) error {
		if err := l.freshen(book); err != nil {
			return err
		}
		if e.Kind == ledger.Lock && l.said != 0 && l.said != l.b.c.partitions {
			return l.b.differs(l.said)
		}
		page, err := book.Page(e.Key)
		if err != nil {
			return err
		}
		if check != nil {
			if err := check(page.State()); err != nil {
				return err
			}
		}
		l.pending[id] = nil
		known, err := book.Carry(page, e)
		if err == nil {
			carry, err = known.Encode()
		}
		return err
	})
	if err == nil {
		value, err = e.Encode()
	}
	return id, e.RecordKey(), value, carry, err
}

// sign adds how keys are spread, and how long things are kept, where that is not the default.
func (c *config) sign(e *ledger.Entry) {
	e.Partitions = c.partitions
	if c.keep.Runs != backends.DefaultKeep.Runs {
		e.KeepRuns = c.keep.Runs
	}
	if c.keep.Age != backends.DefaultKeep.Age {
		e.KeepAge = max(c.keep.Age.Milliseconds(), 1)
	}
	if c.keep.DoneAge != backends.DefaultKeep.DoneAge {
		e.DoneAge = max(c.keep.DoneAge.Milliseconds(), 1)
	}
}

// outcome reads on and takes what the record has done.
func (l *log) outcome(ctx context.Context, e *ledger.Entry, id string, read func(*ledger.Book) error) (answer, error) {
	var a answer
	err := l.with(ctx, func(book *ledger.Book) error {
		page, err := book.Page(e.Key)
		if err == nil {
			err = read(book)
		}
		if err != nil {
			return err
		}
		a = answer{res: l.pending[id], state: page.State().Clone()}
		return nil
	})
	l.forgetPending(id)
	return a, err
}

// lookFor searches the log for a record whose append failed with err.
func (l *log) lookFor(ctx context.Context, e *ledger.Entry, id string, err error) (answer, error) {
	if !wire.MaybeDone(err) {
		l.forgetPending(id)
		return answer{}, err
	}
	l.b.lateMayCome(e.Owner)
	a, readErr := l.outcome(ctx, e, id, l.catchUp)
	if readErr != nil || a.res == nil {
		return answer{}, err
	}
	return a, nil
}

// forgetPending ends waiting for an append. Where somebody else has the turn it stays, which costs a few bytes.
func (l *log) forgetPending(id string) {
	select {
	case l.turn <- struct{}{}:
		delete(l.pending, id)
		<-l.turn
	default:
	}
}
