package mysql

import (
	"strings"

	driver "github.com/go-sql-driver/mysql"

	"github.com/lockrun/lockrun/backends"
)

// remedy is what to do about an error number of the server, and whether asking again is useless until it is done.
type remedy struct {
	text      string
	permanent bool
}

// remedies by error number. MySQL and MariaDB agree on numbers below 1900. Whatever is not here is taken for passing.
var remedies = map[uint16]remedy{
	1044: {"GRANT the user its rights on the database, as docs/backends/mysql.md lists them, and check the database's name", true},
	1045: {"check user and password; where the user may log in only with TLS, add tls=true", true},
	1698: {"check user and password; the server lets this user in by its Unix account only, over the socket", true},
	1049: {"create the database, or correct its name in the URL", true},
	1046: {"name the database in the URL", true},
	1129: {"the server blocks this host after many broken connections: FLUSH HOSTS, or raise max_connect_errors", true},
	1130: {"the server lets nobody in from this host: create the user for it", true},
	1251: {"give the user another way to log in", true},
	1524: {"give the user a way to log in that the server has a plugin for", true},
	3159: {"the server asks for TLS: add tls=true", true},
	1820: {"the user has to change its password first", true},
	1862: {"the user's password has expired", true},
	3118: {"the account is locked", true},
	4151: {"the account is locked", true},

	errNoTable:  {"run lockrun init against this backend", true},
	errNoColumn: {"the tables were made by another version, or by hand: compare with lockrun init --print", true},
	1142:        {grantRemedy, true},
	1143:        {grantRemedy, true},
	1227:        {grantRemedy, true},
	1370:        {grantRemedy, true},
	1665: {"set binlog_format to ROW or MIXED at the server: with STATEMENT it cannot replicate transactions at READ COMMITTED",
		true},
	1064: {"the server is older than MySQL 5.7 or MariaDB 10.5, or a proxy does not pass on several statements in one text", true},

	// The connection is closed after each of these, so that the next try asks the name service again and can find the
	// new primary.
	1290: {readOnlyRemedy, false},
	1792: {readOnlyRemedy, false},
	1836: {readOnlyRemedy, false},
	1047: {"the Galera node has no quorum: check wsrep_cluster_status", false},

	1040: {"raise max_connections at the server", false},
	1203: {"raise max_user_connections at the server", false},
	1226: {"raise the user's limits at the server", false},
	1021: {"the server's disk is full", false},
	1114: {"the server's table space is full", false},
	1030: {"look into the server's error log", false},

	errIdle:        {"raise wait_timeout at the server: it is shorter than an exchange takes", false},
	errLockTimeout: {"a transaction of somebody else holds the rows: look at SHOW ENGINE INNODB STATUS", false},
	errDeadlock:    {"other transactions kept colliding with ours", false},
}

const (
	grantRemedy    = "GRANT SELECT, INSERT, UPDATE, DELETE on lockrun's tables to the user, as docs/backends/mysql.md lists it"
	readOnlyRemedy = "the server is read-only: make the URL lead to the primary, or end read_only there"
)

// explainServer adds to e what to do about an error that the server answered.
func (p *pool) explainServer(err *driver.MySQLError, e *backends.Error) {
	r := remedies[err.Number]
	e.Remedy, e.Permanent = r.text, r.permanent
	if err.Number == errNoTable && !strings.Contains(err.Message, p.server.table) {
		e.Remedy = "" // not a table of ours: a view or a trigger that somebody made
	}
}
