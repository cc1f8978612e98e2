package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/lockrun/lockrun/internal/testserver"
)

// mysqlReplay repeats statements over bare connections of the driver. mariadb-slap, written in C, would send the same
// statement on all connections, so that they would wait for one row's lock, which contenders on distinct keys do not.
type mysqlReplay struct {
	s      *stage
	server *testserver.MariaDB
}

// comQuery is the first byte of a packet that carries a statement, after four bytes of length and number.
const comQuery = 3

// find takes the texts of statements.
func (m *mysqlReplay) find(recorded [][]byte) (statements [][]byte) {
	for _, r := range recorded {
		if len(r) > 5 && r[4] == comQuery {
			statements = append(statements, r[5:])
		}
	}
	return statements
}

func (m *mysqlReplay) keepOn(requests [][]byte, span time.Duration) float64 {
	conns := m.connect(len(requests))
	defer closeAll(conns)
	return keepOn(len(conns), span, func(i int) error {
		_, err := conns[i].ExecContext(context.Background(), string(requests[i]))
		return err
	})
}

func (m *mysqlReplay) atOnce(requests [][]byte, n int) time.Duration {
	conns := m.connect(n)
	defer closeAll(conns)
	errs := make([]error, n)
	took := atOnce(n, func(i int) {
		for _, r := range requests {
			errs[i] = errors.Join(errs[i], send(conns[i], string(r)))
		}
	})
	for _, err := range errs {
		must(err)
	}
	return took
}

// send sends a statement, again where the server broke a deadlock by it, as everybody has to.
func send(c *sql.Conn, statement string) error {
	for {
		_, err := c.ExecContext(context.Background(), statement)
		var refused *mysql.MySQLError
		if !errors.As(err, &refused) || refused.Number != deadlock {
			return err
		}
	}
}

const deadlock = 1213

func (m *mysqlReplay) busy() time.Duration { return 0 }

// connect opens n connections, over TCP as lockrun's are.
func (m *mysqlReplay) connect(n int) []*sql.Conn {
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName, c.MultiStatements = "root", "tcp", m.server.Addr(), testserver.Database, true
	connector, err := mysql.NewConnector(c)
	must(err)
	db := sql.OpenDB(connector)
	m.s.Cleanup(func() { db.Close() })
	conns := make([]*sql.Conn, n)
	for i := range conns {
		conns[i], err = db.Conn(context.Background())
		must(err)
	}
	return conns
}

// closeAll ends the connections rather than giving them back to their pool.
func closeAll(conns []*sql.Conn) {
	for _, c := range conns {
		_ = c.Raw(func(any) error { return sql.ErrConnDone })
		c.Close()
	}
}
