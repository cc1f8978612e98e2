package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/mysql"
	"github.com/lockrun/lockrun/internal/testserver"
)

// store is a set of tables of its own on a server, looked at by root beside the backend.
type store struct {
	t     testing.TB
	m     *testserver.MariaDB
	url   string
	table string
}

var tables atomic.Int64

// newStore makes the tables.
func newStore(t testing.TB, m *testserver.MariaDB) *store {
	t.Helper()
	s := bareStore(t, m)
	b := s.open(t, backends.Options{})
	defer b.Close()
	if err := b.(backends.Initer).Init(context.Background()); err != nil {
		t.Fatalf("Init: %v", err)
	}
	return s
}

// bareStore names tables that are not there yet.
func bareStore(t testing.TB, m *testserver.MariaDB) *store {
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

func (s *store) open(t testing.TB, o backends.Options) backends.Backend {
	t.Helper()
	return open(t, s.url, o)
}

func open(t testing.TB, raw string, o backends.Options) backends.Backend {
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

func openURL(u *backends.URL) (backends.Backend, error) {
	return mysql.Open(context.Background(), u, backends.Options{})
}

// expire moves the ends of live leases back, as if time had passed.
func (s *store) expire(key string) {
	s.m.Exec("UPDATE "+s.table+" SET expire_time = UTC_TIMESTAMP(6) WHERE job_name = ? AND released = 0", []byte(key))
}

func (s *store) remove(key string) {
	s.m.Exec("DELETE FROM "+s.table+" WHERE job_name = ?", []byte(key))
}

// foreign puts another program's table in the place of the leases.
func (s *store) foreign(key string) (contents func() string) {
	s.m.Exec("DROP TABLE " + s.table)
	s.m.Exec("CREATE TABLE " + s.table + " (job_name VARCHAR(64) PRIMARY KEY, said TEXT)")
	s.m.Exec("INSERT INTO "+s.table+" VALUES (?, 'not a lease')", key)
	return func() string { return s.m.Query("SELECT GROUP_CONCAT(job_name, said) FROM " + s.table) }
}

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

// at is the store's URL with another address, like that of a proxy.
func (s *store) at(addr string) string { return strings.Replace(s.url, s.m.Addr(), addr, 1) }

// asUser is the store's URL for another user.
func (s *store) asUser(user, password string) string {
	return addParam(s.m.URLFor(user, password), "table="+s.table)
}

// newUser makes a user, or makes it anew, with a password that is written as in SQL.
func newUser(m *testserver.MariaDB, name, password string) {
	m.Exec("DROP USER IF EXISTS " + name)
	m.Exec("CREATE USER " + name + " IDENTIFIED BY " + password)
}

// user makes a user with the given rights on the store's tables.
func (s *store) user(name, rights string) string {
	newUser(s.m, name, "'secret'")
	for _, suffix := range []string{"", "_keys", "_runs", "_history", "_waiters", "_schema"} {
		s.m.Exec("GRANT " + rights + " ON lockrun." + s.table + suffix + " TO " + name)
	}
	return s.asUser(name, "secret")
}

const everyday = "SELECT, INSERT, UPDATE, DELETE"

func request(key string) backends.Request {
	return backends.Request{Key: key, Owner: backends.NewOwner(), Holder: "alpha", Host: "host-a", PID: 4711, TTL: time.Minute, Slots: 1}
}

func mustAcquire(t testing.TB, b backends.Backend, r backends.Request) backends.Lease {
	t.Helper()
	l, err := b.Acquire(within(t, 20*time.Second), r)
	if err != nil {
		t.Fatalf("Acquire %q: %v", r.Key, err)
	}
	return l
}

func mustRelease(t testing.TB, l backends.Lease) {
	t.Helper()
	if err := l.Release(within(t, 20*time.Second), backends.End{Outcome: backends.Succeeded}); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// unknown wants an error that is none of the refusals and whose text names all of the words, in one line, without the
// password.
func unknown(t testing.TB, err error, permanent bool, words ...string) {
	t.Helper()
	var e *backends.Error
	var held *backends.HeldError
	if !errors.As(err, &e) || errors.As(err, &held) || errors.Is(err, backends.ErrLost) {
		t.Errorf("got %v (%T), want an answer that is not known", err, err)
		return
	}
	if backends.IsPermanent(err) != permanent {
		t.Errorf("permanent is %v: %v", !permanent, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in %q", w, err)
		}
	}
	if strings.ContainsAny(err.Error(), "\n\r") || strings.Contains(err.Error(), "secret") {
		t.Errorf("more than a line, or the password, in %q", err)
	}
	if e.Remedy == "" && !errors.Is(err, context.Canceled) {
		t.Errorf("no remedy in %q", err)
	}
}

// eventually looks until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}
