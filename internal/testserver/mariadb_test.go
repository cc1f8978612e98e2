package testserver

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

func TestMariaDBKeepsItsDataAcrossKill(t *testing.T) {
	m := StartMariaDB(t, MariaDBConfig{})
	m.Exec("CREATE TABLE t (i INT PRIMARY KEY)")
	m.Exec("INSERT INTO t VALUES (7)")
	m.Kill()
	if err := m.ping(); err == nil {
		t.Fatal("a killed server answers")
	}
	m.Restart()
	if got := m.Query("SELECT i FROM t"); got != "7" {
		t.Errorf("after kill -9 and a restart the row is %s", got)
	}
	m.RestartEmpty()
	if got := m.Query("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = ?", Database); got != "0" {
		t.Errorf("after a restart without data there are %s tables", got)
	}
}

func TestMariaDBClockAndZone(t *testing.T) {
	start := time.Date(2024, 3, 31, 0, 59, 50, 0, time.UTC) // ten seconds before Berlin's clocks go from 2:00 to 3:00
	m := StartMariaDB(t, MariaDBConfig{Clock: start, Env: []string{"TZ=Europe/Berlin"}})
	read := func() time.Duration {
		at, err := time.Parse("2006-01-02 15:04:05", m.Query("SELECT UTC_TIMESTAMP()"))
		if err != nil {
			t.Fatal(err)
		}
		return at.Sub(start)
	}
	if d := read(); d < 0 || d > patience {
		t.Errorf("the server's clock is %v after what was asked for", d)
	}
	if zone := m.Query("SELECT @@system_time_zone"); zone != "CET" {
		t.Errorf("the server's zone is %s", zone)
	}
	before := read()
	m.Restart()
	if d := read(); d < before {
		t.Errorf("after a restart the server's clock went back from %v to %v", before, d)
	}
}

func TestMariaDBOverTLS(t *testing.T) {
	m := StartMariaDB(t, MariaDBConfig{TLS: NewCerts(t), Args: []string{"--default-time-zone=+05:30"}})
	m.Exec("CREATE USER 'secure'@'127.0.0.1' IDENTIFIED BY 'pass' REQUIRE SSL")
	m.Exec("GRANT ALL ON " + Database + ".* TO 'secure'@'127.0.0.1'")
	for trusted, certs := range map[bool]*Certs{true: m.config.TLS, false: NewCerts(t)} {
		c := m.client()
		c.User, c.Passwd, c.Net, c.Addr, c.TLS = "secure", "pass", "tcp", m.Addr(), certs.ClientConfig()
		connector, err := mysql.NewConnector(c)
		if err != nil {
			t.Fatal(err)
		}
		db := sql.OpenDB(connector)
		defer db.Close()
		if err := db.Ping(); (err == nil) != trusted {
			t.Errorf("authority trusted %v: %v", trusted, err)
		}
	}
	if got := m.Query("SELECT @@time_zone"); got != "+05:30" {
		t.Errorf("time_zone is %s", got)
	}
	if u := m.URLFor("secure", "p@ss"); !strings.HasPrefix(u, "mysql://secure:p%40ss@127.0.0.1:") || !strings.Contains(u, "tls=true") {
		t.Errorf("URLFor = %s", u)
	}
}
