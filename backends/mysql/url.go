package mysql

import (
	"net"
	"strings"

	driver "github.com/go-sql-driver/mysql"

	"github.com/lockrun/lockrun/backends"
)

// server is a backend URL as understood.
type server struct {
	config *driver.Config
	host   string // for messages: host:port, or the path of the socket
	table  string
}

const defaultTable = "lockrun"

// example is shown in every message about a URL.
const example = "write mysql://user@host:3306/database"

// readURL turns mysql://user[:password]@host[:port]/database?... into a driver's configuration. password is used where
// the URL has none.
func readURL(u *backends.URL, password string) (*server, error) {
	if err := u.Only("tls", "ca", "cert", "key", "server_name", "socket", "table"); err != nil {
		return nil, err
	}
	c := driver.NewConfig()
	c.User, c.Passwd, c.DBName = u.User, u.Password, strings.TrimPrefix(u.Path, "/")
	if !u.HasPassword {
		c.Passwd = password
	}
	s := &server{config: c, table: defaultTable}
	for _, step := range []func(*backends.URL) error{s.setNames, s.setAddress, s.setTLS} {
		if err := step(u); err != nil {
			return nil, err
		}
	}
	c.ClientFoundRows = true // a renewal that finds its row is not lost, even where it changes nothing
	c.MultiStatements = true
	c.ConnectionAttributes = "program_name:lockrun"
	c.Logger = &driver.NopLogger{} // stderr is the job's
	// Plugins that send the password as it is (PAM, LDAP) may do so only where nobody can listen.
	c.AllowCleartextPasswords = c.TLS != nil || c.Net == "unix"
	return s, nil
}

func wrongURL(why, remedy string) error {
	return &backends.UsageError{What: "mysql URL", Why: why, Remedy: remedy}
}

func (s *server) setNames(u *backends.URL) error {
	switch {
	case u.User == "":
		return wrongURL("it names no user", example)
	case s.config.DBName == "":
		return wrongURL("it names no database", example)
	case strings.Contains(s.config.DBName, "/"):
		return wrongURL("there is more than a database after the host", example+", with '/' in its name encoded as %2F only where it has one")
	}
	if t := u.Param("table"); t != "" {
		s.table = t
	}
	if len(s.table) > 40 || strings.Trim(strings.ToLower(s.table), "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return wrongURL("table is not a plain name", "use up to 40 letters, digits and underscores")
	}
	return nil
}

// setAddress settles where the server is: a Unix socket where one is named, else the host.
func (s *server) setAddress(u *backends.URL) error {
	if len(u.Hosts) > 1 {
		return wrongURL("it names more than one host", "name the one that leads to the primary server, like a virtual address or a proxy")
	}
	if path := u.Param("socket"); path != "" {
		if !strings.HasPrefix(path, "/") {
			return wrongURL("socket is not an absolute path", "write it like socket=/run/mysqld/mysqld.sock")
		}
		s.config.Net, s.config.Addr, s.host = "unix", path, path
		return nil
	}
	if len(u.Hosts) == 0 {
		return wrongURL("it names no host", example+", or add ?socket=/run/mysqld/mysqld.sock")
	}
	host, port := u.Hosts[0], "3306"
	if h, p, err := net.SplitHostPort(host); err == nil {
		host = h
		if p != "" {
			port = p
		}
	}
	s.config.Net, s.config.Addr = "tcp", net.JoinHostPort(strings.Trim(host, "[]"), port)
	s.host = s.config.Addr
	return nil
}

// setTLS reads tls, ca, cert, key and server_name; each of the others asks for TLS by itself.
func (s *server) setTLS(u *backends.URL) error {
	needed := u.NoTLS("leave tls=false out")
	switch on := u.Param("tls"); {
	case on != "" && on != "true" && on != "false":
		return wrongURL("tls is neither true nor false", "use tls=true")
	case on == "false", on == "" && needed == nil:
		return needed
	}
	c, err := u.TLS()
	if err != nil {
		return err
	}
	if c.ServerName == "" && s.config.Net == "unix" {
		return wrongURL("TLS over a Unix socket has no name to check", "leave TLS out, or add server_name")
	}
	s.config.TLS = c
	return nil
}
