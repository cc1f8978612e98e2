package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// conn is one connection. It is used by one operation at a time; the pool sees to that.
//
// The driver is used below database/sql, whose pool starts a goroutine, pings, and decides by itself what to send again.
// Here only the pool may decide that, because it knows what can be repeated.
type conn struct {
	raw    sqldriver.Conn
	reused bool // it has idled, so the server may have cut it meanwhile
	single bool // a node of a Galera cluster, which gets each statement by itself

	server time.Time // what the server's clock read
	local  time.Time // when that answer was here
}

// sync remembers what the server's clock reads now.
func (c *conn) sync(server time.Time) { c.server, c.local = server, time.Now() }

// deadline is when ctx ends by the server's clock, a little too early rather than too late. It is measured by durations
// from the last answer, so this host's clock may read what it likes.
func (c *conn) deadline(ctx context.Context) time.Time {
	end, _ := ctx.Deadline() // pool.do sees to it that there is one
	return c.server.Add(end.Sub(c.local))
}

// value is a column as the server wrote it; nil is NULL.
type value = sqldriver.Value

type row []value

// set is one result set, sets are those of one text in their order.
type set struct {
	types []columnType
	rows  []row
}

type sets []set

// columnType is a column's type as the server tells it: "VARBINARY", or "DATETIME" with the digits of its fraction.
type columnType struct {
	name   string
	digits int64
}

// only is the first row of the first set, or none.
func (s sets) only() row {
	if len(s) == 0 || len(s[0].rows) == 0 {
		return nil
	}
	return s[0].rows[0]
}

// rollback undoes a transaction that failed half-way. Left open it would be committed by the next BEGIN.
func (c *conn) rollback(ctx context.Context) error {
	_, err := c.exec(ctx, "ROLLBACK")
	return err
}

// exec sends one statement and returns how many rows it found.
func (c *conn) exec(ctx context.Context, sql string) (int64, error) {
	res, err := c.raw.(sqldriver.ExecerContext).ExecContext(ctx, sql, nil)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// query sends a text of one or more statements and reads all that comes back, to the answer of the last statement.
//
// A Galera node gets them one by one. It rolls a transaction back when another node's conflicts with it, at any moment,
// and tells so in answer to the next command; but when that happens between two statements of one text, MariaDB goes on
// with the next one outside of any transaction, and answers OK to COMMIT (seen with 10.11.19: 5 of 900 leases that passed
// between three nodes were granted twice). That a lease counts only once it is seen after COMMIT would have caught these;
// but what runs outside of the transaction runs without its locks, too.
func (c *conn) query(ctx context.Context, sql string) (sets, error) {
	if !c.single {
		return c.send(ctx, sql)
	}
	var all sets
	for statement := range strings.SplitSeq(sql, separator) {
		got, err := c.send(ctx, statement)
		if err != nil {
			return all, err
		}
		all = append(all, got...)
	}
	return all, nil
}

func (c *conn) send(ctx context.Context, sql string) (sets, error) {
	rows, err := c.raw.(sqldriver.QueryerContext).QueryContext(ctx, sql, nil)
	if err != nil {
		return nil, err
	}
	all, err := readSets(rows)
	return all, errors.Join(err, rows.Close())
}

func readSets(rows sqldriver.Rows) (sets, error) {
	var all sets // also what came before an error
	next := rows.(sqldriver.RowsNextResultSet)
	for len(rows.Columns()) > 0 {
		s, err := readSet(rows)
		if err != nil {
			return all, err
		}
		all = append(all, s)
		if err := next.NextResultSet(); err == io.EOF {
			break
		} else if err != nil {
			return all, err
		}
	}
	return all, nil
}

func readSet(rows sqldriver.Rows) (set, error) {
	n := len(rows.Columns())
	s := set{types: make([]columnType, n)}
	for i := range n {
		s.types[i].name = rows.(sqldriver.RowsColumnTypeDatabaseTypeName).ColumnTypeDatabaseTypeName(i)
		s.types[i].digits, _, _ = rows.(sqldriver.RowsColumnTypePrecisionScale).ColumnTypePrecisionScale(i)
	}
	for {
		r := make(row, n)
		if err := rows.Next(r); err == io.EOF {
			return s, nil
		} else if err != nil {
			return s, err
		}
		for i, v := range r {
			if b, ok := v.([]byte); ok { // a view into the driver's buffer
				r[i] = string(b)
			}
		}
		s.rows = append(s.rows, r)
	}
}

// str reads a column as text; NULL is "".
func (r row) str(i int) string {
	if i >= len(r) || r[i] == nil {
		return ""
	}
	if s, ok := r[i].(string); ok {
		return s
	}
	return fmt.Sprint(r[i])
}

// num reads a column as a number; NULL and what is none are 0.
func (r row) num(i int) int64 {
	if i < len(r) {
		if n, ok := r[i].(int64); ok {
			return n
		}
	}
	n, _ := strconv.ParseInt(r.str(i), 10, 64)
	return n
}

// null tells whether a column is NULL.
func (r row) null(i int) bool { return i >= len(r) || r[i] == nil }

// time reads a DATETIME column, which holds UTC; NULL is the zero time. Whatever else stands there is an error, since
// leases are judged by it.
func (r row) time(i int) (time.Time, error) {
	if r.null(i) {
		return time.Time{}, nil
	}
	t, err := time.Parse("2006-01-02 15:04:05", r.str(i))
	if err != nil {
		return time.Time{}, fmt.Errorf("the server answered %q where a time was expected", r.str(i))
	}
	return t, nil
}

// times reads several columns into where they belong.
func (r row) times(to map[int]*time.Time) error {
	for i, p := range to {
		t, err := r.time(i)
		if err != nil {
			return err
		}
		*p = t
	}
	return nil
}

// intact tells whether the connection can be used, as far as that shows without asking the server.
func (c *conn) intact(ctx context.Context) bool {
	return c.raw.(sqldriver.Validator).IsValid() && c.raw.(sqldriver.SessionResetter).ResetSession(ctx) == nil
}

func (c *conn) close() { _ = c.raw.Close() }
