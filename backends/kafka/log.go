package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockrun/lockrun/backends/kafka/ledger"
	"github.com/lockrun/lockrun/backends/kafka/wire"
	"github.com/lockrun/lockrun/internal/boottime"
)

// log is one partition and what this process has read of it.
type log struct {
	b  *backend
	id int

	// turn is taken for whatever touches the fields below, reading from the broker included. It is a channel so that
	// whoever waits for it can stop waiting.
	turn chan struct{}

	book    *ledger.Book              // nil: nothing has been read yet, or what was read is of no more use
	readAt  time.Duration             // when the broker was last asked for what is new, and all of that is in the book, by package boottime
	tail    *wire.Overview            // the log's end, as somebody has read it by the way, to begin the book with
	written int64                     // the last offset of an append of this process
	asked   int                       // LOCKs that this process has written
	ctx     context.Context           // of whoever has the turn
	pending map[string]*ledger.Result // by the ids of this process's appends that have not come by; nil until they do
	ended   map[int64]string          // tokens that this process has seen released, and by which owner
	clock   clock
	said    int // over how many partitions the writer of the last record that was read spreads keys; 0: none has said

	ahead      *wire.Ahead   // an answer that has not been looked at
	aheadAsked time.Duration // when it was asked for
}

func newLog(b *backend, partition int) *log {
	return &log{b: b, id: partition, turn: make(chan struct{}, 1), pending: map[string]*ledger.Result{}, ended: map[int64]string{}, written: -1}
}

// Sizes and times of reading.
const (
	tailLines   = 8           // how many of the last records are read at first; more where they do not go back far enough
	chunk       = 1 << 20     // bytes of one read of what is new
	oneRecord   = 1           // bytes of a read of one record: brokers give a whole batch at least
	seeWithin   = time.Second // how long one read waits for a record that is known to be there
	patientRead = 20 * time.Second

	aheadBytes    = 64 << 10
	aheadPatience = 250 * time.Millisecond
)

// with does something with the book, having the turn. f may be called again with another book where the first turned out
// to be of no use.
func (l *log) with(ctx context.Context, f func(*ledger.Book) error) error {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-l.turn }()
	if err := ctx.Err(); err != nil {
		return err
	}
	l.ctx = ctx
	l.takeAhead()
	for try := 0; ; try++ {
		err := l.ready()
		if err == nil {
			err = f(l.book)
		}
		if l.book != nil && l.book.Torn() {
			l.book = nil
			if err == nil {
				err = errTorn
			}
		}
		if errors.Is(err, wire.OffsetOutOfRange) || errors.Is(err, ledger.ErrHole) {
			l.book, l.written = nil, -1 // what was known of the log no longer fits it; a new reader may fare better
		} else if !errors.Is(err, errTorn) {
			return err
		}
		if try == 2 {
			return err
		}
	}
}

// errTorn means that the log changed under what was read of it.
var errTorn = errors.New("the log was cut, or has lost its end, while it was read")

// takeAhead reads what was asked for with an append. What went wrong with it is of no interest: who wants to know what is
// new asks again.
func (l *log) takeAhead() {
	a := l.ahead
	if a == nil {
		return
	}
	l.ahead = nil
	found, err := a.Take(l.ctx, aheadPatience)
	if err != nil || l.book == nil {
		return
	}
	if err := l.advance(l.book, found); err != nil {
		l.book = nil
	} else if l.book.Next() >= found.HighWater {
		l.readAt = max(l.readAt, l.aheadAsked)
	}
}

// ready begins the book, if there is none.
func (l *log) ready() (err error) {
	if l.book != nil {
		return nil
	}
	var end int64
	if l.tail != nil {
		end = l.tail.Tail.Next
	} else if end, err = l.b.client.End(l.ctx, l.id); err != nil {
		return err
	}
	l.book, err = l.bookAt(end, l.saw)
	l.tail = nil
	return err
}

// bookAt begins a book that has read everything before end, and what has come since.
func (l *log) bookAt(end int64, watch func(ledger.Line, ledger.Result)) (*ledger.Book, error) {
	first := max(end-tailLines, 0)
	if l.tail != nil {
		first = l.tail.From
	}
	for {
		lines, start, err := l.lines(first, end)
		if errors.Is(err, wire.OffsetOutOfRange) && start > first {
			first = start
			continue
		}
		if err != nil {
			return nil, err
		}
		book, need, err := ledger.NewBook(start, first, lines, l.source, watch)
		if err != nil || book != nil {
			return book, err
		}
		first = need
	}
}

// fetch reads records from an offset on, unless that has just been done.
func (l *log) fetch(from int64) (found wire.Fetched, asked time.Duration, err error) {
	asked = boottime.Now()
	if t := l.tail; t != nil && t.From == from {
		return *t.Tail, asked - time.Since(t.Asked), nil
	}
	found, err = l.b.client.Fetch(l.ctx, l.id, from, 0, chunk)
	return found, asked, err
}

// lines reads the records from first on, at least those before end. It also tells where the log begins.
func (l *log) lines(first, end int64) (lines []ledger.Line, start int64, err error) {
	for next := first; ; {
		found, asked, err := l.fetch(next)
		if errors.Is(err, wire.OffsetOutOfRange) {
			start, _, err2 := l.b.client.Offsets(l.ctx, l.id)
			return nil, max(start, found.LogStart), errors.Join(err, err2)
		}
		if err != nil {
			return nil, 0, err
		}
		more, err := l.read(found.Records)
		if err != nil {
			return nil, 0, err
		}
		lines = append(lines, more...)
		if next = found.Next; next >= end {
			if next >= found.HighWater {
				l.readAt = asked
			}
			return lines, found.LogStart, nil
		}
		if len(found.Records) == 0 && found.HighWater <= next {
			if err := l.ctx.Err(); err != nil {
				return nil, 0, err
			}
			time.Sleep(time.Millisecond) // a new leader that has not caught up with what its followers are known to have
		}
	}
}

// read makes lines of records, and sees to the clock.
func (l *log) read(records []wire.Record) ([]ledger.Line, error) {
	lines := make([]ledger.Line, 0, len(records))
	for _, r := range records {
		line, err := ledger.Read(ledgerRecord(r))
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", l.id, err)
		}
		if r.Appended {
			l.clock.atLeast(line.Time)
		}
		if line.Entry != nil && line.Record.Carry != nil && line.Entry.Partitions > 0 {
			l.said = line.Entry.Partitions
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// ledgerRecord is a record as the rules want it.
func ledgerRecord(r wire.Record) ledger.Record {
	lr := ledger.Record{Offset: r.Offset, Epoch: r.Epoch, Key: r.Key, Value: r.Value}
	if r.Appended {
		lr.Time = r.Time.UnixMilli()
	}
	for _, h := range r.Headers {
		if h.Name == ledger.HeaderName {
			lr.Carry = h.Value
		}
	}
	return lr
}

// source is where a book gets single records from.
func (l *log) source(first, last int64) ([]ledger.Line, error) {
	var lines []ledger.Line
	size := chunk
	if first == last {
		size = oneRecord
	}
	for next := first; next <= last; {
		found, err := l.b.client.Fetch(l.ctx, l.id, next, 0, size)
		if err != nil {
			return nil, err
		}
		more, err := l.read(found.Records)
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
		if found.Next == next {
			break
		}
		next = found.Next
	}
	return lines, nil
}

// advance takes what a fetch has found into the book.
func (l *log) advance(book *ledger.Book, found wire.Fetched) error {
	if book.Cut(found.LogStart); book.Torn() {
		return errTorn
	}
	lines, err := l.read(found.Records)
	if err != nil {
		return err
	}
	for _, line := range lines {
		if err := book.Feed(line); err != nil {
			return err
		}
	}
	if found.Next > book.Next() {
		return fmt.Errorf("%w: before offset %d", ledger.ErrHole, found.Next)
	}
	if book.Torn() {
		return errTorn
	}
	return nil
}

// catchUp reads what is new now. It returns when all has been read that the broker had when it was asked, and all that this
// process has appended itself.
func (l *log) catchUp(book *ledger.Book) error {
	asked := boottime.Now()
	for {
		found, err := l.b.client.Fetch(l.ctx, l.id, book.Next(), 0, chunk)
		if err != nil {
			return err
		}
		if err := l.advance(book, found); err != nil {
			return err
		}
		if book.Next() >= found.HighWater {
			if err := l.readOwn(book); err != nil {
				return err
			}
			l.readAt = asked
			return nil
		}
	}
}

// readOwn reads on to the last record of this process that the broker has acknowledged, where it is not shown: a new leader
// does not know at once how far its followers are, and lets nobody read what it is not sure of. Of the log's end it tells
// nothing before it knows. So what is behind that has been lost, and not merely hidden.
func (l *log) readOwn(book *ledger.Book) error {
	if book.Next() > l.written {
		return nil
	}
	end, err := l.b.client.End(l.ctx, l.id)
	if err != nil {
		return err
	}
	if end <= l.written {
		l.written = -1
		return errTorn
	}
	return l.readTo(book, l.written)
}

// justNow is how long ago the broker was asked, at most, where it is not asked again before an append. It is too
// short for anybody to see what the last append did, and to cut it off.
const justNow = 3 * time.Millisecond

// freshen reads what is new, unless that has just been done. What an append carries should be what the log says now: old
// knowledge makes others read more, and after a cut it brings back what is gone. Nor should it be without what this process
// has appended itself.
func (l *log) freshen(book *ledger.Book) error {
	if boottime.Now()-l.readAt < l.b.c.justNow && book.Next() > l.written {
		return nil
	}
	return l.catchUp(book)
}

// readTo reads until the record at that offset has come by.
func (l *log) readTo(book *ledger.Book, offset int64) error {
	for book.Next() <= offset {
		asked := boottime.Now()
		found, err := l.b.client.Fetch(l.ctx, l.id, book.Next(), seeWithin, chunk)
		if err == nil {
			err = l.advance(book, found)
		}
		if err != nil {
			return err
		}
		if book.Next() >= found.HighWater {
			l.readAt = asked
		}
		if err := l.ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// saw keeps what this process waits to hear of.
func (l *log) saw(line ledger.Line, res ledger.Result) {
	id := line.Entry.ID()
	if _, mine := l.pending[id]; mine {
		l.pending[id] = &res
	}
	if res.Did == ledger.Ended && line.Entry.Writer == l.b.writer {
		l.ended[res.Lease.Token] = res.Lease.Owner
	}
}
