package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// driverFuncs is what differs between the two SQLite libraries.
type driverFuncs struct {
	name string
	open func(uri string) (driver.Conn, error)
	code func(error) int // SQLite's extended result code, 0 for other errors
}

// SQLite's result codes that are told apart here. Extended codes carry the primary one in their low byte.
const (
	codeBusy      = 5
	codeLocked    = 6
	codeReadOnly  = 8
	codeIOErr     = 10
	codeCorrupt   = 11
	codeFull      = 13
	codeCantOpen  = 14
	codeProtocol  = 15
	codeNotADB    = 26
	codeAccess    = 3
	codeMismatch  = 1 // SQLITE_ERROR: no such table or column, among others
	codeReadShort = codeIOErr | 2<<8
)

// fault is an error of SQLite with its result code.
type fault struct {
	code int
	err  error
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// primary is SQLite's primary result code of err, 0 where err is none of SQLite's.
func primary(err error) int {
	var f *fault
	if errors.As(err, &f) {
		return f.code & 0xff
	}
	return 0
}

// conn is one connection. It is not safe for concurrent use; backend.do sees to that.
//
// The drivers are used below database/sql: its pool keeps goroutines and starts a transaction in several steps, and a
// process that lives for one acquire and one release would pay for both.
type conn struct {
	raw driver.Conn
	d   driverFuncs
}

// dial opens path with the given URI parameters, like "mode=rw".
func dial(d driverFuncs, path, params string) (*conn, error) {
	raw, err := d.open("file:" + (&url.URL{Path: path}).EscapedPath() + "?" + params)
	if err != nil {
		return nil, &fault{d.code(err), err}
	}
	return &conn{raw, d}, nil
}

func (c *conn) close() error { return c.raw.Close() }

func named(args []any) []driver.NamedValue {
	list := make([]driver.NamedValue, len(args))
	for i, a := range args {
		switch v := a.(type) {
		case int:
			a = int64(v)
		case bool:
			a = int64(0)
			if v {
				a = int64(1)
			}
		}
		list[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
	}
	return list
}

// exec runs one statement and returns how many rows it changed. Neither exec nor query hands on a context: the drivers
// would start a goroutine for it at each statement, and no statement here waits for a lock.
func (c *conn) exec(sql string, args ...any) (int64, error) {
	res, err := c.raw.(driver.ExecerContext).ExecContext(context.Background(), sql, named(args))
	if err != nil {
		return 0, c.fault(err)
	}
	n, _ := res.RowsAffected() // neither driver fails here
	return n, nil
}

// query calls each with every row. A row's values are int64, float64, string, []byte or nil.
func (c *conn) query(each func(row []driver.Value) error, sql string, args ...any) error {
	rows, err := c.raw.(driver.QueryerContext).QueryContext(context.Background(), sql, named(args))
	if err != nil {
		return c.fault(err)
	}
	defer rows.Close()
	row := make([]driver.Value, len(rows.Columns()))
	for {
		switch err := rows.Next(row); err {
		case nil:
		case io.EOF:
			return nil
		default:
			return c.fault(err)
		}
		if err := each(row); err != nil {
			return err
		}
	}
}

// one returns the first column of the first row as text; "" where there is none.
func (c *conn) one(sql string, args ...any) (string, error) {
	text := ""
	err := c.query(func(row []driver.Value) error {
		if text == "" && row[0] != nil {
			text = fmt.Sprint(row[0])
		}
		return nil
	}, sql, args...)
	return text, err
}

func (c *conn) fault(err error) error {
	return &fault{c.d.code(err), err}
}

// passing tells whether the same statement may well succeed a moment later: a lock is taken, or another process is just
// recovering, creating or handing on the files beside the database.
func passing(err error) bool {
	switch primary(err) {
	case codeBusy, codeLocked, codeProtocol:
		return true
	}
	return false
}

// settling tells whether err can be due to files that another process creates at this very moment: SQLite opens -wal and
// -shm before it gives them the database's mode. It passes within milliseconds, or it is a real lack of permission.
func settling(err error) bool {
	switch primary(err) {
	case codeCantOpen, codeReadOnly, codeAccess:
		return true
	case codeIOErr:
		return strings.Contains(err.Error(), "disk I/O") && faultCode(err) == codeReadShort
	}
	return false
}

func faultCode(err error) int {
	var f *fault
	if errors.As(err, &f) {
		return f.code
	}
	return 0
}

// errForeignValue is a value that no lockrun writes.
var errForeignValue = errors.New("the database holds a value that is not lockrun's")

// checkTypes compares a row with what its columns have to be: T text, I an integer, in lower case also NULL. The tables
// are strict, so that nothing else gets in; where somebody forced it in all the same, it must not read as nothing.
func checkTypes(row []driver.Value, types string) error {
	for i, want := range []byte(types) {
		ok := row[i] == nil && want >= 'a'
		switch row[i].(type) {
		case int64:
			ok = want == 'I' || want == 'i'
		case string, []byte:
			ok = want == 'T' || want == 't'
		}
		if !ok {
			return fmt.Errorf("%w (%T in column %d of a row)", errForeignValue, row[i], i+1)
		}
	}
	return nil
}

// get reads a column; NULL and a value of another type give the zero value.
func get[T any](v driver.Value) T {
	t, _ := v.(T)
	return t
}

// text reads a column of text: mattn gives string or []byte, by the column's declared type.
func text(v driver.Value) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return get[string](v)
}
