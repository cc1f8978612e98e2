package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/backendtest"
	"github.com/lockrun/lockrun/backends/sqlite/modernc"
)

// pure is the driver of builds without cgo, which every build tests.
var pure = driverFuncs{name: "pure Go", open: modernc.Open, code: modernc.Code}

// drivers are those that this build can test.
func drivers() []driverFuncs {
	if linked.name == pure.name {
		return []driverFuncs{pure}
	}
	return []driverFuncs{linked, pure}
}

// eachDriver runs f for both libraries.
func eachDriver(t *testing.T, f func(t *testing.T, s *store)) {
	for _, d := range drivers() {
		t.Run(d.name, func(t *testing.T) { f(t, newStore(t, d)) })
	}
}

func request(key string) backends.Request {
	return backends.Request{Key: key, Owner: backends.NewOwner(), Holder: "test", Host: "same", PID: 1, TTL: time.Hour, Slots: 1}
}

func isHeld(err error) bool {
	var held *backends.HeldError
	return errors.As(err, &held)
}

func TestConformance(t *testing.T) {
	for _, d := range drivers() {
		t.Run(d.name, func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) *backendtest.Store { return newStore(t, d).suite() })
		})
	}
}

// store is a database in a folder of its own, and a way into it past the backend.
type store struct {
	t    testing.TB
	d    driverFuncs
	path string
}

func newStore(t testing.TB, d driverFuncs) *store {
	return &store{t, d, filepath.Join(t.TempDir(), "lockrun.db")}
}

func (s *store) suite() *backendtest.Store {
	return &backendtest.Store{Open: s.open, Expire: s.expire, Remove: s.remove, Dump: s.dump, Foreign: s.foreign}
}

func (s *store) open(o backends.Options) backends.Backend {
	s.t.Helper()
	b, err := s.tryOpen(o)
	if err != nil {
		s.t.Fatalf("Open: %v", err)
	}
	return b
}

func (s *store) tryOpen(o backends.Options) (backends.Backend, error) {
	return open(s.t.Context(), urlOf(s.path), o, s.d, hostClock)
}

func urlOf(path string) *backends.URL { return &backends.URL{Scheme: "sqlite", Path: path} }

// sql runs one statement in a connection of its own and returns the rows as text.
func (s *store) sql(query string, args ...any) []string {
	s.t.Helper()
	c, err := dial(s.d, s.path, "mode=rw")
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.close()
	var rows []string
	for n := 0; ; n++ {
		rows = nil
		err := c.query(func(row []driver.Value) error {
			rows = append(rows, fmt.Sprintf("%v", row))
			return nil
		}, query, args...)
		if err == nil {
			return rows
		}
		if !passing(err) || backOff(s.t.Context(), n) != nil {
			s.t.Fatalf("%s: %v", query, err)
		}
	}
}

func (s *store) expire(key string) {
	s.sql(`UPDATE leases SET expires=acquired, expires_boot=0 WHERE key=?`, key)
}

func (s *store) remove(key string) {
	s.sql(`DELETE FROM leases WHERE key=?`, key)
}

func (s *store) dump(key string) string {
	return fmt.Sprint(s.sql(`SELECT * FROM leases WHERE key=? ORDER BY slot`, key), s.sql(`SELECT token, starts FROM keys WHERE key=?`, key))
}

// foreign puts a table of the same name in the place of lockrun's.
func (s *store) foreign(string) (contents func() string) {
	s.open(backends.Options{}).Close()
	s.sql(`ALTER TABLE leases RENAME TO other`)
	s.sql(`CREATE TABLE leases (id INTEGER PRIMARY KEY, name TEXT)`)
	s.sql(`INSERT INTO leases (name) VALUES ('not a lease')`)
	return func() string {
		return fmt.Sprint(s.sql(`SELECT * FROM leases`), s.sql(`SELECT sql FROM sqlite_master`))
	}
}
