package testserver

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Database is the empty database that every MariaDB server here has.
const Database = "lockrun"

// MariaDBConfig is how a MariaDB server is started. Its zero value is a server whose user root needs no password, with an
// empty database called lockrun.
type MariaDBConfig struct {
	TLS    *Certs    // offer TLS, with --require-secure-transport in Args ask for it
	Env    []string  // "TZ=Europe/Berlin"
	Clock  time.Time // what the server's clock reads at the start, by libfaketime; it goes on across restarts. Zero: the time
	Args   []string  // more options, as on mariadbd's command line: "--default-time-zone=+05:30"
	member bool      // of a Galera cluster, and ready only when it is in step
}

// MariaDB is one server of MariaDB, or of MySQL: see StartMySQL.
type MariaDB struct {
	*Process
	mysql  *mysqlBuild // nil: it is MariaDB
	port   int
	dir    string
	config MariaDBConfig
	offset time.Duration // of Clock against this host's
	db     *sql.DB
}

// StartMariaDB starts one server. The first call on a machine makes its data, later ones copy them.
func StartMariaDB(t TB, config MariaDBConfig) *MariaDB {
	t.Helper()
	Need(t, "mariadbd", "mariadb-install-db")
	return startMariaDB(t, config, mariadbTemplate)
}

func startMariaDB(t TB, config MariaDBConfig, template func() (string, error)) *MariaDB {
	t.Helper()
	return startDatabase(t, &MariaDB{config: config}, template)
}

// startDatabase starts a server whose data begin as a copy of template.
func startDatabase(t TB, m *MariaDB, template func() (string, error)) *MariaDB {
	t.Helper()
	m.dir = newFolder(t, "mariadb")
	if !m.config.Clock.IsZero() {
		Need(t, "libfaketime.so.1")
		m.offset = time.Until(m.config.Clock)
	}
	source, err := template()
	if err == nil {
		err = m.own(m.dir)
	}
	if err == nil {
		err = m.fill(source)
	}
	if err != nil {
		t.Fatalf("preparing the data of %s: %v", m.program(), err)
	}
	if err := m.connect(); err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { m.db.Close() })
	m.Process = launch(t, func() (spec, error) { return m.choose(source) })
	return m
}

// connect makes the harness's own pool; nothing has to run yet.
func (m *MariaDB) connect() error {
	connector, err := mysql.NewConnector(m.client())
	if err == nil {
		m.db = sql.OpenDB(connector)
	}
	return err
}

// choose gives the server an address and says how to start it there.
func (m *MariaDB) choose(source string) (spec, error) {
	var err error
	if m.port, err = freePort(); err != nil {
		return spec{}, err
	}
	user, err := m.user()
	return spec{
		name:  fmt.Sprintf("%s on port %d", filepath.Base(m.program()), m.port),
		argv:  append([]string{m.program()}, m.args()...),
		env:   append(m.faketime(), m.config.Env...),
		user:  user,
		log:   filepath.Join(m.dir, "log"),
		data:  m.data(),
		fill:  func() error { return m.fill(source) },
		ready: func(int) error { return m.ping() },
		quit:  20 * time.Second,
	}, err
}

// program is the server's.
func (m *MariaDB) program() string {
	if m.mysql != nil {
		return m.mysql.program()
	}
	return find("mariadbd")
}

// user is whom the server runs as. nil means this process's own user.
func (m *MariaDB) user() (*syscall.Credential, error) {
	if m.mysql != nil {
		return nil, nil
	}
	return databaseUser()
}

// own gives the server's user dir and all in it.
func (m *MariaDB) own(dir string) error {
	if m.mysql != nil {
		return nil
	}
	return own(dir)
}

// args is the server's command line. What a power cut would lose may be lost; what a kill -9 would, may not.
func (m *MariaDB) args() []string {
	a := append([]string{"--no-defaults", "--datadir=" + m.data()}, innodbOptions...)
	if m.mysql != nil {
		a = m.mysql.args(m.data())
	}
	a = append(a, "--socket="+m.Socket(), "--port="+strconv.Itoa(m.port), "--bind-address=127.0.0.1",
		"--pid-file="+filepath.Join(m.dir, "pid"), "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=2",
		"--max-connections=300", "--innodb-buffer-pool-load-at-startup=OFF")
	if c := m.config.TLS; c != nil {
		a = append(a, "--ssl-ca="+c.CAFile, "--ssl-cert="+c.Server.CertFile, "--ssl-key="+c.Server.KeyFile)
	}
	return append(a, m.config.Args...)
}

// faketime moves the server's clock by an offset in seconds: an instant would be read in the server's time zone, and
// would be there again after a restart. Its monotonic clock stays, because its threads time their waits by it.
func (m *MariaDB) faketime() []string {
	if m.config.Clock.IsZero() {
		return nil
	}
	return []string{"LD_PRELOAD=" + find("libfaketime.so.1"), "FAKETIME_DONT_FAKE_MONOTONIC=1",
		fmt.Sprintf("FAKETIME=%+.3f", m.offset.Seconds())}
}

// fill copies a template into the data folder.
func (m *MariaDB) fill(source string) error {
	if err := copyFolder(source, m.data()); err != nil {
		return err
	}
	return m.own(m.data())
}

func (m *MariaDB) data() string { return filepath.Join(m.dir, "data") }

// Addr is the server's address, "127.0.0.1:17306".
func (m *MariaDB) Addr() string { return addr(m.port) }

// Port is the port in Addr.
func (m *MariaDB) Port() int { return m.port }

// Socket is the path of the server's Unix socket.
func (m *MariaDB) Socket() string { return filepath.Join(m.dir, "s") }

// URL is how lockrun is told of this server, as root.
func (m *MariaDB) URL() string { return m.URLFor("root", "") }

// URLFor is URL for another user. It names the certificate authority where the server has one.
func (m *MariaDB) URLFor(user, password string) string {
	u := &url.URL{Scheme: "mysql", User: url.User(user), Host: m.Addr(), Path: "/" + Database}
	if password != "" {
		u.User = url.UserPassword(user, password)
	}
	if c := m.config.TLS; c != nil {
		u.RawQuery = c.query(false) + "&tls=true"
	}
	return u.String()
}

// DB is a pool of connections as root to the database lockrun, by the Unix socket and so past any Proxy. It is closed
// when the test ends.
func (m *MariaDB) DB() *sql.DB { return m.db }

// Exec runs one statement as root and ends the test when it fails.
func (m *MariaDB) Exec(statement string, args ...any) {
	m.t.Helper()
	if _, err := m.db.Exec(statement, args...); err != nil {
		m.t.Fatalf("%s: %s: %v", m.spec.name, statement, err)
	}
}

// Query reads one value as root, as text, and ends the test when it cannot. NULL reads as "NULL".
func (m *MariaDB) Query(query string, args ...any) string {
	m.t.Helper()
	var v sql.NullString
	if err := m.db.QueryRow(query, args...).Scan(&v); err != nil {
		m.t.Fatalf("%s: %s: %v", m.spec.name, query, err)
	}
	if !v.Valid {
		return "NULL"
	}
	return v.String
}

// client is how the harness itself connects.
func (m *MariaDB) client() *mysql.Config {
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = "root", "unix", m.Socket(), Database
	c.Timeout, c.ReadTimeout, c.WriteTimeout = respBound, patience, patience
	c.Logger = &mysql.NopLogger{} // it would print that a killed server went away
	return c
}

// ping is the readiness check. It goes by the socket, which nobody else has, and which appears later than the port.
func (m *MariaDB) ping() error {
	ctx, cancel := context.WithTimeout(context.Background(), respBound)
	defer cancel()
	var one int
	if !m.config.member {
		return m.db.QueryRowContext(ctx, "SELECT 1").Scan(&one)
	}
	var name, state string
	err := m.db.QueryRowContext(ctx, "SHOW STATUS LIKE 'wsrep_local_state_comment'").Scan(&name, &state)
	if err == nil && state != "Synced" {
		err = fmt.Errorf("it is %s", state)
	}
	return err
}
