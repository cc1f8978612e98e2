// Package modernc opens SQLite databases with modernc.org/sqlite, the C library translated to Go, for builds without a C
// compiler. The file format and the locks are the same, so that both kinds of build may share a database.
package modernc

import (
	"database/sql/driver"
	"errors"

	"modernc.org/sqlite"
)

// Open returns one connection to the database of a file: URI, without database/sql's pool and goroutines around it.
// A lock that is taken is an error at once.
func Open(uri string) (driver.Conn, error) {
	return new(sqlite.Driver).Open(uri + "&_busy_timeout=0&_synchronous=NORMAL")
}

// Code is SQLite's extended result code of err, 0 where err is none of SQLite's.
func Code(err error) int {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code()
}
