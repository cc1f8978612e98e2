//go:build cgo

// Package mattn opens SQLite databases with the C library, compiled in by github.com/mattn/go-sqlite3.
package mattn

// #include "memory.h"
import "C"

import (
	"database/sql/driver"
	"errors"
	"sync"

	"github.com/mattn/go-sqlite3"
)

// once: SQLite may be configured before its first use only.
var once sync.Once

// Open returns one connection to the database of a file: URI, without database/sql's pool and goroutines around it.
// A lock that is taken is an error at once.
func Open(uri string) (driver.Conn, error) {
	once.Do(func() { C.lockrun_sqlite_memory() })
	return new(sqlite3.SQLiteDriver).Open(uri + "&_busy_timeout=0&_synchronous=NORMAL")
}

// Code is SQLite's extended result code of err, 0 where err is none of SQLite's.
func Code(err error) int {
	var e sqlite3.Error
	if !errors.As(err, &e) {
		return 0
	}
	if e.ExtendedCode != 0 {
		return int(e.ExtendedCode)
	}
	return int(e.Code)
}
