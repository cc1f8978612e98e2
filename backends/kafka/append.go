package kafka

import (
	"context"
	"errors"
	"time"

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

// once appends e and returns what it did. check, if not nil, looks at the key's state before anything is appended, and its
// error is once's. A context that ends leaves the outcome unknown.
//
// Where the reply to the append is lost, the record is looked for in the log: if it is there, it counts as answered.
func (l *log) once(ctx context.Context, e *ledger.Entry, check func(*ledger.State) error) (answer, error) {
	if err := l.b.usable(ctx, l); err != nil {
		return answer{}, err
	}
	d, err := l.prepare(ctx, e, check)
	if err != nil {
		return answer{}, err
	}
	s, err := l.send(ctx, d)
	if err != nil {
		return l.lookFor(ctx, e, d.id, err)
	}
	if s.Time.IsZero() {
		l.forgetPending(d.id)
		if s.ahead != nil {
			s.ahead.Drop()
		}
		return answer{}, errNoTime
	}
	res, err := l.arrived(ctx, d, s)
	if err != nil || res != nil {
		l.forgetPending(d.id)
		return answer{res: res}, err
	}
	return l.outcome(ctx, e, d.id, func(book *ledger.Book) error { return l.readTo(book, s.Offset) })
}

// sent is an append that has been answered.
type sent struct {
	wire.Appended
	ahead           *wire.Ahead   // may be nil
	asked, received time.Duration // by package boottime
}

// send appends a record, and asks for what follows the book where that will be wanted soon: who has taken a lease gives it
// back, often a moment later, and who has taken one after the other takes the next.
func (l *log) send(ctx context.Context, d draft) (s sent, err error) {
	header := wire.Header{Name: ledger.HeaderName, Value: d.carry}
	s.asked = boottime.Now()
	if d.e.Kind == ledger.Lock || d.e.Kind == ledger.Release && d.oneOfMany {
		s.Appended, s.ahead, err = l.b.client.ProduceAhead(ctx, l.id, d.next, aheadBytes, d.key, d.value, header)
	} else {
		s.Appended, err = l.b.client.Produce(ctx, l.id, d.key, d.value, header)
	}
	s.received = boottime.Now()
	return s, err
}

// arrived takes note of an append, and tells what the record did where that follows from its offset and its time alone. nil:
// it does not, and has to be read.
func (l *log) arrived(ctx context.Context, d draft, s sent) (*ledger.Result, error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		if s.ahead != nil {
			s.ahead.Drop()
		}
		return nil, ctx.Err()
	}
	defer func() { <-l.turn }()
	at := s.Time.UnixMilli()
	l.clock.set(at, s.received)
	l.written = max(l.written, s.Offset)
	if s.ahead != nil {
		if l.ahead != nil {
			l.ahead.Drop()
		}
		l.ahead, l.aheadAsked = s.ahead, s.asked
	}
	if l.book == nil || l.pending[d.id] != nil {
		return l.pending[d.id], nil
	}
	if l.book.Cut(s.LogStart); l.book.Torn() {
		return nil, nil
	}
	if l.book != d.book || s.Offset != d.next {
		return nil, nil
	}
	if res, ok := l.book.Foretell(d.e, s.Offset, at); ok {
		return &res, nil
	}
	return nil, nil
}

// errNoTime is about a topic whose records have the producers' times. Nobody takes the record for one of the lock's.
var errNoTime = errors.New("the topic keeps the producers' times (message.timestamp.type=CreateTime)")

// draft is a record that is to be appended.
type draft struct {
	e                 *ledger.Entry
	id                string
	key, value, carry []byte

	// It was written by what this book knew, which is all before that offset.
	book *ledger.Book
	next int64

	oneOfMany bool // this process has asked for leases here more than once
}

// prepare writes the record, with what is known at this moment.
func (l *log) prepare(ctx context.Context, e *ledger.Entry, check func(*ledger.State) error) (draft, error) {
	e.Writer, e.N = l.b.writer, l.b.seq.Add(1)
	l.b.c.sign(e)
	d := draft{e: e, id: e.ID(), key: e.RecordKey()}
	err := l.with(ctx, func(book *ledger.Book) error {
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
		l.pending[d.id] = nil
		d.book, d.next = book, book.Next()
		if e.Kind == ledger.Lock {
			l.asked++
		}
		d.oneOfMany = l.asked > 1
		known, err := book.Carry(page, e)
		if err == nil {
			d.carry, err = known.Encode()
		}
		return err
	})
	if err == nil {
		d.value, err = e.Encode() // not before: a LOCK also says what is known of its run id
	}
	return d, err
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
	if errors.Is(err, wire.NotLeader) {
		return l.underTheNext(ctx, e, id, err)
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
