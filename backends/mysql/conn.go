package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// conn is one connection. It is used by one operation at a time; the pool sees to that.
//
// The driver is used below database/sql, whose pool starts a goroutine, pings, and decides by itself what to send again.
// Here only the pool may decide that, because it knows what can be repeated.
type conn struct {
	raw    sqldriver.Conn
	reused bool // it has idled, so the server may have cut it meanwhile
	undo   bool // the last text failed inside its transaction
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

// text sends what has to be sent: a transaction that failed half-way is undone first, since BEGIN would commit it.
func (c *conn) text(sql string) string {
	if c.undo {
		c.undo = false
		return "ROLLBACK;\n" + sql
	}
	return sql
}

// exec sends one statement and returns how many rows it found.
func (c *conn) exec(ctx context.Context, sql string) (int64, error) {
	res, err := c.raw.(sqldriver.ExecerContext).ExecContext(ctx, c.text(sql), nil)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// query sends a text of one or more statements and reads all that comes back, to the answer of the last statement.
func (c *conn) query(ctx context.Context, sql string) (sets, error) {
	rows, err := c.raw.(sqldriver.QueryerContext).QueryContext(ctx, c.text(sql), nil)
	if err != nil {
		return nil, err
	}
	all, err := readSets(rows)
	return all, errors.Join(err, rows.Close())
}

func readSets(rows sqldriver.Rows) (sets, error) {
	var all sets
	next := rows.(sqldriver.RowsNextResultSet)
	for len(rows.Columns()) > 0 {
		s, err := readSet(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
		if err := next.NextResultSet(); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
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
