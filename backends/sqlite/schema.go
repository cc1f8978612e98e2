package sqlite

import "strings"

// schemaVersion is stored as user_version, appID as application_id ("lkrn"), so that neither a newer lockrun's store nor
// another program's database is ever written to.
const (
	schemaVersion = 1
	appID         = 0x6c6b726e
)

// ddl creates the store. Few tables, since every start parses all of it.
//
// Instants are microseconds since 1970 (acquired, expires, ...), for people and for what has to survive a reboot; *_boot
// are nanoseconds of the boot named in boot, by which a lease is judged. Keys are text compared byte by byte, which is
// SQLite's default collation. The tables are strict: a column without a type of its own would take any value, and a
// token that somebody set to a word would read as 0.
//
// leases holds one row for each slot that is taken, or was when its holder died. runs knows attempts and done-marks of
// run ids. history is numbered twice: id orders all of it, so that the oldest rows are found at its left edge whatever
// their number, and seq orders the rows of one key and kind, so that the surplus over N is one range of the index.
var ddl = []string{
	`CREATE TABLE keys (
  key TEXT NOT NULL PRIMARY KEY,
  token INTEGER NOT NULL DEFAULT 0,
  starts INTEGER NOT NULL DEFAULT 0,
  ended INTEGER NOT NULL DEFAULT 0,
  refused INTEGER NOT NULL DEFAULT 0,
  pause_by TEXT, pause_reason TEXT, paused INTEGER,
  pause_until INTEGER, pause_boot TEXT, pause_until_boot INTEGER
) WITHOUT ROWID, STRICT`,
	`CREATE TABLE leases (
  key TEXT NOT NULL, slot INTEGER NOT NULL,
  owner TEXT NOT NULL, token INTEGER NOT NULL,
  holder TEXT, host TEXT, pid INTEGER,
  run_id TEXT, attempt INTEGER NOT NULL, waited INTEGER NOT NULL,
  ttl INTEGER NOT NULL, takeover INTEGER NOT NULL, live INTEGER NOT NULL,
  acquired INTEGER NOT NULL, renewed INTEGER NOT NULL, expires INTEGER NOT NULL,
  boot TEXT NOT NULL, expires_boot INTEGER NOT NULL,
  hold INTEGER NOT NULL, hold_boot INTEGER NOT NULL,
  released INTEGER NOT NULL, recorded INTEGER NOT NULL, loose INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (key, slot)
) WITHOUT ROWID, STRICT`,
	`CREATE TABLE runs (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL, run_id TEXT NOT NULL,
  attempts INTEGER NOT NULL, at INTEGER NOT NULL, done INTEGER,
  UNIQUE (key, run_id)
) STRICT`,
	`CREATE INDEX runs_at ON runs (at)`,
	`CREATE TABLE history (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL, refused INTEGER NOT NULL, seq INTEGER NOT NULL,
  token INTEGER, run_id TEXT, attempt INTEGER, holder TEXT, host TEXT, pid INTEGER, slot INTEGER,
  outcome TEXT NOT NULL, reason TEXT, exit_code INTEGER,
  started INTEGER, ended INTEGER NOT NULL, waited INTEGER NOT NULL, duration INTEGER, backend TEXT
) STRICT`,
	`CREATE INDEX history_key ON history (key, refused, seq)`,
}

// plan is the schema as text.
func plan() string {
	return strings.Join(ddl, ";\n") + ";\n"
}
