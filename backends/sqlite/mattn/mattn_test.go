//go:build cgo

package mattn

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// SQLite's memory begins in a small region of its own and goes on in malloc's (memory.c). Neither the border between
// them, nor connections that allocate at the same time, nor blocks of all sizes that come and go may be noticed.
func TestMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	setUp(t, path)
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() { exercise(t, path, n) })
	}
	all.Wait()
}

func open(t *testing.T, path string) driver.Conn {
	c, err := Open("file:" + path + "?mode=rwc")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func exec(t *testing.T, c driver.Conn, sql string, args ...driver.NamedValue) {
	if _, err := c.(driver.ExecerContext).ExecContext(context.Background(), sql, args); err != nil {
		t.Errorf("%.80s: %v", sql, err)
	}
}

func setUp(t *testing.T, path string) {
	c := open(t, path)
	defer c.Close()
	exec(t, c, "PRAGMA journal_mode=WAL")
	exec(t, c, "CREATE TABLE words (n INTEGER PRIMARY KEY, word TEXT)")
	exec(t, c, "BEGIN")
	for n := range 6000 {
		exec(t, c, "INSERT INTO words VALUES (?, ?)", driver.NamedValue{Ordinal: 1, Value: int64(n)}, driver.NamedValue{Ordinal: 2, Value: word(n)})
	}
	exec(t, c, "COMMIT")
}

// word is of 1 to 3,000 bytes and tells its number.
func word(n int) string { return strings.Repeat(fmt.Sprint(n, " "), 1+n*n%500) }

// exercise sorts megabytes without an index, and joins values to long ones, with a new connection each time.
func exercise(t *testing.T, path string, n int) {
	for range 2 {
		c := open(t, path)
		seen := 0
		rows, err := c.(driver.QueryerContext).QueryContext(context.Background(), "SELECT n, word FROM words ORDER BY word || n", nil)
		if err != nil {
			t.Error(err)
			return
		}
		row := make([]driver.Value, 2)
		for ; rows.Next(row) != io.EOF; seen++ {
			if number := int(row[0].(int64)); row[1] != word(number) {
				t.Fatalf("%d came as %.40q", number, row[1])
			}
		}
		rows.Close()
		if seen != 6000 {
			t.Errorf("connection %d saw %d words", n, seen)
		}
		exec(t, c, "SELECT length(group_concat(word)) FROM words")
		c.Close()
	}
}
