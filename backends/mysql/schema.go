package mysql

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// schemaVersion is raised with every change that an older lockrun could not work with.
const schemaVersion = 1

// Kinds of history rows, each numbered and limited by itself.
const (
	kindRun     = "0"
	kindRefusal = "1"
)

// tables are the names of the tables, quoted.
type tables struct {
	leases, keys, runs, history, waiters, schema string

	database string // where they are
}

func newTables(database, prefix string) tables {
	q := func(suffix string) string { return "`" + prefix + suffix + "`" }
	return tables{database: database, leases: q(""), keys: q("_keys"), runs: q("_runs"), history: q("_history"), waiters: q("_waiters"),
		schema: q("_schema")}
}

// ddl creates the store. Columns that are compared are bytes: a text collation would take "Job" for "job", or ignore a
// space at the end. All times are UTC.
//
// The first table has a row for each slot that is taken, or was when its holder died; whoever deletes rows by hand takes
// leases away and nothing else. Token counters live in the second, which is never cleaned. The third knows attempts and
// done-marks of run ids. History rows are numbered by key and kind, so that the surplus over N is one range of the
// primary key. The fifth tells who waits, for listings alone.
var ddl = []string{
	`CREATE TABLE IF NOT EXISTS {leases} (
  job_name VARBINARY(255) NOT NULL,
  slot INT NOT NULL,
  instance_id VARBINARY(32) NOT NULL,
  token BIGINT NOT NULL,
  expire_time DATETIME(6) NOT NULL,
  attempt_count INT NOT NULL,
  run_id VARBINARY(255) NOT NULL,
  holder VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
  host VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
  pid BIGINT NOT NULL,
  acquire_time DATETIME(6) NOT NULL,
  renew_time DATETIME(6) NOT NULL,
  hold_time DATETIME(6) NOT NULL,
  waited_us BIGINT NOT NULL,
  ttl_us BIGINT NOT NULL,
  released TINYINT NOT NULL,
  takeover TINYINT NOT NULL,
  loose TINYINT NOT NULL DEFAULT 0,
  PRIMARY KEY (job_name, slot)
) ENGINE=InnoDB`,
	`CREATE TABLE IF NOT EXISTS {keys} (
  job_name VARBINARY(255) NOT NULL,
  token BIGINT NOT NULL DEFAULT 0,
  starts INT NOT NULL DEFAULT 0,
  run_seq BIGINT NOT NULL DEFAULT 0,
  pause_by VARCHAR(255) CHARACTER SET utf8mb4 NULL,
  pause_reason VARCHAR(1024) CHARACTER SET utf8mb4 NULL,
  pause_time DATETIME(6) NULL,
  pause_until DATETIME(6) NULL,
  PRIMARY KEY (job_name)
) ENGINE=InnoDB`,
	`CREATE TABLE IF NOT EXISTS {runs} (
  job_name VARBINARY(255) NOT NULL,
  run_id VARBINARY(255) NOT NULL,
  attempts INT NOT NULL,
  used_time DATETIME(6) NOT NULL,
  done_time DATETIME(6) NULL,
  PRIMARY KEY (job_name, run_id),
  KEY used (used_time)
) ENGINE=InnoDB`,
	`CREATE TABLE IF NOT EXISTS {history} (
  job_name VARBINARY(255) NOT NULL,
  kind TINYINT NOT NULL,
  seq BIGINT NOT NULL,
  token BIGINT NULL,
  run_id VARBINARY(255) NOT NULL,
  attempt_count INT NOT NULL,
  holder VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
  host VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
  pid BIGINT NOT NULL,
  slot INT NULL,
  outcome VARCHAR(16) CHARACTER SET utf8mb4 NOT NULL,
  reason VARCHAR(1024) CHARACTER SET utf8mb4 NOT NULL,
  exit_code INT NULL,
  start_time DATETIME(6) NOT NULL,
  end_time DATETIME(6) NOT NULL,
  waited_us BIGINT NOT NULL,
  duration_us BIGINT NULL,
  backend VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
  PRIMARY KEY (job_name, kind, seq),
  UNIQUE KEY token (job_name, token),
  KEY ended (end_time)
) ENGINE=InnoDB`,
	`CREATE TABLE IF NOT EXISTS {waiters} (
  job_name VARBINARY(255) NOT NULL,
  instance_id VARBINARY(32) NOT NULL,
  seen_time DATETIME(6) NOT NULL,
  PRIMARY KEY (job_name, instance_id)
) ENGINE=InnoDB`,
	`CREATE TABLE IF NOT EXISTS {schema} (
  id INT NOT NULL,
  version INT NOT NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB`,
	`INSERT IGNORE INTO {schema} (id, version) VALUES (1, {version})`,
}

func (t tables) ddl() []string {
	f := t.fields("")
	f["version"] = number(schemaVersion)
	all := make([]string, len(ddl))
	for i, s := range ddl {
		all[i] = f.fill(s)
	}
	return all
}

// InitPlan is the DDL as an administrator would run it.
func (b *backend) InitPlan() string { return strings.Join(b.t.ddl(), separator) + separator }

// Init creates the tables that are missing, one statement after the other, and checks those that are there. It may be
// repeated and run by many at once: each statement leaves what it finds.
func (b *backend) Init(ctx context.Context) error {
	p := b.unchecked()
	defer p.Close()
	return p.do(ctx, "create the tables", repeatable, func(ctx context.Context, c *conn) error {
		for _, s := range b.t.ddl() {
			if _, err := c.exec(ctx, s); err != nil {
				return forInit(err)
			}
		}
		return b.t.examine(ctx, c, p.setup)
	})
}

// forInit names the right that only init needs.
func forInit(err error) error {
	if code := mysqlCode(err); code == 1142 || code == 1044 {
		return &fault{phase: "creating", err: err, permanent: true,
			remedy: "GRANT CREATE on the database to the user, or let an administrator run what lockrun init --print shows"}
	}
	return inPhase("creating", err)
}

// unchecked is a pool of its own whose connections do not look at the tables, for Init and Doctor.
func (b *backend) unchecked() *pool {
	p := newPool(b.server, b.timeout)
	p.check = func(ctx context.Context, c *conn, setup string) error {
		_, err := c.query(ctx, setup)
		return err
	}
	return &p
}

// shape is what the columns that decide about leases have to be. A text collation folds keys; a DATETIME without
// microseconds rounds a lease's end, up or down by half a second.
var shape = []struct{ table, column, kind string }{
	{"l", "job_name", "VARBINARY"}, {"k", "job_name", "VARBINARY"}, {"r", "job_name", "VARBINARY"}, {"h", "job_name", "VARBINARY"},
	{"w", "job_name", "VARBINARY"},
	{"l", "instance_id", "VARBINARY"}, {"r", "run_id", "VARBINARY"},
	{"l", "expire_time", "DATETIME"}, {"l", "hold_time", "DATETIME"}, {"l", "acquire_time", "DATETIME"},
	{"k", "pause_until", "DATETIME"}, {"r", "done_time", "DATETIME"}, {"h", "end_time", "DATETIME"},
	{"l", "token", "BIGINT"}, {"k", "token", "BIGINT"}, {"h", "token", "BIGINT"}, {"l", "slot", "INT"}, {"l", "released", "TINYINT"},
	{"l", "loose", "TINYINT"}, {"l", "run_id", "VARBINARY"},
}

// shapeQuery asks for the columns' types without reading a row: the answer's head has them.
var shapeQuery = sync.OnceValue(func() string {
	columns := make([]string, len(shape))
	for i, c := range shape {
		columns[i] = c.table + "." + c.column
	}
	return "SELECT " + strings.Join(columns, ", ") + " FROM {leases} l, {keys} k, {runs} r, {history} h, {waiters} w LIMIT 0"
})

// isGalera comes last: a server that cannot be a node answers it with an error.
const isGalera = "SELECT @@GLOBAL.wsrep_on"

// check says setup and looks at version and shape of the tables, in one exchange.
func (t tables) check(ctx context.Context, c *conn, setup string) error {
	got, err := c.query(ctx, setup+separator+t.fields("").fill("SELECT MAX(version), {now} FROM {schema}"+separator+shapeQuery())+
		separator+isGalera)
	if mysqlCode(err) != errNoVariable && err != nil {
		return err
	}
	if len(got) < 2 {
		return errNoAnswer
	}
	c.single = err == nil && len(got) == 3 && got[2].rows[0].num(0) != 0
	at, err := got.only().time(1)
	if err != nil {
		return err
	}
	c.sync(at)
	if v := got.only(); v.num(0) != schemaVersion {
		return wrongVersion(v)
	}
	for i, want := range shape {
		is := got[1].types[i]
		if is.name != want.kind || want.kind == "DATETIME" && is.digits != 6 {
			return &fault{phase: "looking at the tables", permanent: true,
				err:    fmt.Errorf("column %s of %s is %s, not %s", want.column, t.aliased(want.table), is, columnType{want.kind, 6}),
				remedy: "the table was not made by lockrun init: rename it and run lockrun init, or name another with ?table="}
		}
	}
	return nil
}

// columnNames are the columns that the tables are made with, by CREATE statement.
var columnNames = regexp.MustCompile(`(?m)^  ([a-z_]+) `)

// examine is check, and asks for every column by its name. A connection does not: a run finds a missing one itself.
func (t tables) examine(ctx context.Context, c *conn, setup string) error {
	if err := t.check(ctx, c, setup); err != nil {
		return err
	}
	for i, table := range t.all() {
		var columns []string
		for _, m := range columnNames.FindAllStringSubmatch(ddl[i], -1) {
			columns = append(columns, m[1])
		}
		if _, err := c.query(ctx, "SELECT "+strings.Join(columns, ", ")+" FROM "+table+" LIMIT 0"); err != nil {
			return inPhase("looking at the tables", err)
		}
	}
	return nil
}

func (c columnType) String() string {
	if c.name == "DATETIME" {
		return fmt.Sprintf("DATETIME(%d)", c.digits)
	}
	return c.name
}

// aliased is the table that shapeQuery calls by a letter.
func (t tables) aliased(letter string) string {
	return map[string]string{"l": t.leases, "k": t.keys, "r": t.runs, "h": t.history, "w": t.waiters}[letter]
}

func wrongVersion(v row) error {
	f := &fault{phase: "looking at the tables", permanent: true}
	switch {
	case v.null(0):
		f.err, f.remedy = errors.New("they have no schema version"), "run lockrun init against this backend"
	case v.num(0) > schemaVersion:
		f.err = fmt.Errorf("their schema version is %d, and this lockrun knows %d", v.num(0), schemaVersion)
		f.remedy = "use a newer lockrun, or name another table with ?table="
	default:
		f.err = fmt.Errorf("their schema version is %d, and this lockrun needs %d", v.num(0), schemaVersion)
		f.remedy = "name another table with ?table= and run lockrun init"
	}
	return f
}
