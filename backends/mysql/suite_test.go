package mysql_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/backendtest"
	"github.com/lockrun/lockrun/backends/mysql"
	"github.com/lockrun/lockrun/internal/testserver"
)

func TestConformance(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{})
	backendtest.Run(t, func(t *testing.T) *backendtest.Store {
		s := newStore(t, m)
		return &backendtest.Store{
			Open:   func(o backends.Options) backends.Backend { return s.open(t, o) },
			Expire: s.expire, Remove: s.remove, Dump: s.dump,
			Skip: map[string]string{"Wait": "MySQL tells nobody about a change"},
		}
	})
}

// store is a set of tables of its own on a server, looked at by root beside the backend.
type store struct {
	t     *testing.T
	m     *testserver.MariaDB
	url   string
	table string
}

var tables atomic.Int64

// newStore makes the tables.
func newStore(t *testing.T, m *testserver.MariaDB) *store {
	t.Helper()
	s := bareStore(t, m)
	b := s.open(t, backends.Options{})
	defer b.Close()
	if err := b.(backends.Initer).Init(t.Context()); err != nil {
		t.Fatalf("Init: %v", err)
	}
	return s
}

// bareStore names tables that are not there yet.
func bareStore(t *testing.T, m *testserver.MariaDB) *store {
	s := &store{t: t, m: m, table: fmt.Sprint("t", tables.Add(1))}
	s.url = addParam(m.URL(), "table="+s.table)
	return s
}

func addParam(url, param string) string {
	if strings.Contains(url, "?") {
		return url + "&" + param
	}
	return url + "?" + param
}

func (s *store) open(t *testing.T, o backends.Options) backends.Backend {
	t.Helper()
	return open(t, s.url, o)
}

func open(t *testing.T, raw string, o backends.Options) backends.Backend {
	t.Helper()
	u, err := backends.ParseURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	b, err := mysql.Open(context.Background(), u, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// expire moves the ends of live leases back, as if time had passed.
func (s *store) expire(key string) {
	s.m.Exec("UPDATE "+s.table+" SET expire_time = UTC_TIMESTAMP(6) WHERE job_name = ? AND released = 0", []byte(key))
}

func (s *store) remove(key string) { s.m.Exec("DELETE FROM "+s.table+" WHERE job_name = ?", []byte(key)) }

// dump is every column of every lease of key, in hexadecimal.
func (s *store) dump(key string) string {
	rows, err := s.m.DB().Query("SELECT * FROM "+s.table+" WHERE job_name = ? ORDER BY slot", []byte(key))
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	columns, _ := rows.Columns()
	var all strings.Builder
	for rows.Next() {
		values := make([][]byte, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			s.t.Fatal(err)
		}
		for i, c := range columns {
			fmt.Fprintf(&all, "%s=%x ", c, values[i])
		}
		all.WriteByte('\n')
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return all.String()
}
