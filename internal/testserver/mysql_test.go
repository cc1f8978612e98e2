package testserver

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
)

func TestMySQLKeepsItsDataAcrossKill(t *testing.T) {
	for _, version := range []string{MySQL80, MySQL57} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			m := StartMySQL(t, version, MariaDBConfig{Args: []string{"--default-time-zone=+05:30"}})
			if got := m.Query("SELECT VERSION()"); !strings.HasPrefix(got, version) {
				t.Errorf("it is version %s", got)
			}
			if got := m.Query("SELECT @@time_zone"); got != "+05:30" {
				t.Errorf("time_zone is %s", got)
			}
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
			m.Stop()
			if m.Running() {
				t.Error("it runs after it was stopped")
			}
		})
	}
}

func TestMySQLOverTLS(t *testing.T) {
	m := StartMySQL(t, MySQL80, MariaDBConfig{TLS: NewCerts(t)})
	for trusted, certs := range map[bool]*Certs{true: m.config.TLS, false: NewCerts(t)} {
		c := m.client()
		c.Net, c.Addr, c.TLS = "tcp", m.Addr(), certs.ClientConfig()
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
}
