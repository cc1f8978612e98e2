package sqlite

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/lockrun/lockrun/backends"
)

var _ backends.Walker = (*backend)(nil)

const (
	walkColumns = `key, token, outcome, exit_code, started, ended, waited, duration`
	walkTypes   = "TiTiiIIi"
)

// batch is how many records are read at once. Between two batches another process's writes can be copied out of the log,
// which a reader of the whole store would keep growing, and a context that has ended is heeded.
const batch = 4096

// Walk reads the history in the order of its table, a batch in a transaction. A record that is written meanwhile has a
// larger number and is met; one that is completed meanwhile is told as it was or as it is.
func (b *backend) Walk(ctx context.Context, q backends.Query, f func(*backends.Record) error) error {
	crashed, err := read(ctx, b, "history", func(c *conn, now instant) ([]backends.Record, error) {
		if c == nil {
			return nil, nil
		}
		return b.crashes(c, q.Key, now)
	})
	for i := range crashed {
		if err == nil && q.Matches(crashed[i]) {
			err = f(&crashed[i])
		}
	}
	rows, last := make([]walked, 0, batch), int64(-1)
	for more := true; more && err == nil; more = len(rows) == batch {
		if rows, err = b.walkBatch(ctx, q, last, rows[:0]); err != nil {
			return err
		}
		for i := range rows {
			if last, err = rows[i].id, f(&rows[i].rec); err != nil {
				return err
			}
		}
	}
	return err
}

// walkBatch reads the records that come after the one numbered last into the room of rows. f is not called here: where
// the disk does not answer, the read goes on after Walk has returned.
func (b *backend) walkBatch(ctx context.Context, q backends.Query, last int64, rows []walked) ([]walked, error) {
	where, values := which(q)
	return read(ctx, b, "history", func(c *conn, _ instant) ([]walked, error) {
		if c == nil {
			return nil, nil
		}
		list := rows
		err := c.query(func(row []driver.Value) error {
			list = append(list, walked{id: get[int64](row[0])})
			return list[len(list)-1].scan(row[1:])
		}, `SELECT id, `+walkColumns+` FROM history WHERE id>? AND `+where+` ORDER BY id LIMIT ?`,
			append(append([]any{last}, values...), batch)...)
		return list, err
	})
}

// walked is one record, with the room for what its pointers point to.
type walked struct {
	id       int64
	rec      backends.Record
	code     int
	duration time.Duration
}

func (w *walked) scan(row []driver.Value) error {
	if err := checkTypes(row, walkTypes); err != nil {
		return err
	}
	n := func(i int) int64 { return get[int64](row[i]) }
	w.rec = backends.Record{Key: text(row[0]), Token: n(1), Outcome: backends.Outcome(text(row[2])),
		StartedAt: fromMicros(n(4)), EndedAt: fromMicros(n(5)), Waited: time.Duration(n(6))}
	if row[3] != nil {
		w.code = int(n(3))
		w.rec.ExitCode = &w.code
	}
	if row[7] != nil {
		w.duration = time.Duration(n(7))
		w.rec.Duration = &w.duration
	}
	return nil
}
