package mysql_test

import (
	"testing"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/backendtest"
	"github.com/lockrun/lockrun/internal/testserver"
)

func TestConformance(t *testing.T) {
	conformance(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
}

func conformance(t *testing.T, m *testserver.MariaDB) {
	backendtest.Run(t, func(t *testing.T) *backendtest.Store {
		s := newStore(t, m)
		return &backendtest.Store{
			Open:   func(o backends.Options) backends.Backend { return s.open(t, o) },
			Expire: s.expire, Remove: s.remove, Dump: s.dump, Foreign: s.foreign,
		}
	})
}
