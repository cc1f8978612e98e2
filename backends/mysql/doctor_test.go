package mysql_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

func doctor(t *testing.T, b backends.Backend) map[string]backends.Check {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	found := map[string]backends.Check{}
	for _, c := range b.(backends.Doctor).Doctor(ctx) {
		if c.Backend != b.Name() || !c.OK && c.Remedy == "" || strings.Contains(c.Cause+c.Remedy, "secret") {
			t.Errorf("%+v", c)
		}
		found[c.Check] = c
	}
	return found
}

func TestDoctor(t *testing.T) {
	doctorTells(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
}

func doctorTells(t *testing.T, m *testserver.MariaDB) {
	good := newStore(t, m)
	for name, c := range map[string]struct {
		spoil func(s *store) string // returns the URL
		ok    []string              // checks that are good
		wrong string                // the one that is not
		cause string
	}{
		"all is well": {func(s *store) string { return s.user("writer", everyday) },
			[]string{"round trip", "clock", "version", "read_only", "wait_timeout", "isolation", "replication", "schema", "engine", "rights"}, "", ""},
		"rights are missing": {func(s *store) string { return s.user("half", "SELECT, INSERT") }, []string{"schema"}, "rights", "UPDATE on"},
		"read only": {func(s *store) string {
			m.Exec("SET GLOBAL read_only = ON")
			t.Cleanup(func() { m.Exec("SET GLOBAL read_only = OFF") })
			return s.user("writer", everyday)
		}, []string{"schema"}, "read_only", "ON"},
		"no tables":      {func(s *store) string { s.m.Exec("DROP TABLE " + s.table); return s.url }, []string{"round trip"}, "schema", "doesn't exist"},
		"another engine": {func(s *store) string { s.m.Exec("ALTER TABLE " + s.table + " ENGINE=MyISAM"); return s.url }, []string{"schema"}, "engine", "MyISAM"},
		"wrong password": {func(s *store) string { s.user("writer", everyday); return s.asUser("writer", "secret2") }, nil, "connection", "1045"},
		"no server":      {func(s *store) string { return s.at("127.0.0.1:1") }, nil, "connection", "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, c.spoil(newStore(t, m)), backends.Options{})
			defer b.Close()
			found := doctor(t, b)
			m.Exec("SET GLOBAL read_only = OFF")
			for _, check := range c.ok {
				if !found[check].OK {
					t.Errorf("%s: %+v", check, found[check])
				}
			}
			if w := found[c.wrong]; c.wrong != "" && (w.OK || !strings.Contains(w.Cause, c.cause)) {
				t.Errorf("%s: %+v, want it to tell %q", c.wrong, w, c.cause)
			}
			for check, f := range found {
				if !f.OK && check != c.wrong {
					t.Errorf("%s is wrong, too: %+v", check, f)
				}
			}
		})
	}
	if n := m.Query("SELECT COUNT(*) FROM " + good.table + "_keys"); n != "0" {
		t.Errorf("doctor wrote %s keys", n)
	}
}

// What a failover may forget is advice, where the server has a binary log and does not wait for a replica.
func TestDoctorTellsOfReplication(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{Args: []string{"--log-bin=binlog", "--server-id=1", "--binlog-format=ROW"}})
	b := newStore(t, m).open(t, backends.Options{})
	defer b.Close()
	if c := doctor(t, b)["replication"]; !c.OK || !strings.Contains(c.Cause, "asynchronous") || !strings.Contains(c.Remedy, "--record") {
		t.Errorf("%+v", c)
	}
	m.Exec("SET GLOBAL rpl_semi_sync_master_enabled = ON")
	if c := doctor(t, b)["replication"]; !c.OK || c.Cause != "semi-synchronous" || c.Remedy != "" {
		t.Errorf("%+v", c)
	}
}

// A server whose clock is an hour away is advice, not a fault: leases depend on that clock alone.
func TestDoctorTellsClocksApart(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{Clock: time.Now().Add(time.Hour)})
	b := newStore(t, m).open(t, backends.Options{})
	defer b.Close()
	c := doctor(t, b)["clock"]
	if !c.OK || c.Remedy == "" || !strings.Contains(c.Cause, "59m") && !strings.Contains(c.Cause, "1h") {
		t.Errorf("%+v", c)
	}
}
