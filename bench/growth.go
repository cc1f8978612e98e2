package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// fill grows a store. It knows the schema of backends/sqlite, because a million runs would take an hour. One key has as
// much history as is kept, so that each run of it throws the oldest record away.
const fill = `
PRAGMA synchronous = OFF;
BEGIN IMMEDIATE;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %[1]d)
INSERT INTO keys (key, token, starts, ended) SELECT 'key' || i, %[2]d, 0, %[2]d FROM n;
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i < %[1]d * %[2]d - 1)
INSERT INTO history (key, refused, seq, token, run_id, attempt, holder, host, pid, slot, outcome, exit_code, started, ended, waited, duration, backend)
	SELECT 'key' || (i %% %[1]d + 1), 0, i / %[1]d + 1, i / %[1]d + 1, 'run' || i, 1, 'holder', 'host', 4711, 0, 'succeeded', 0,
		unixepoch() * 1000000, unixepoch() * 1000000, 0, 1000000, 'sqlite:store' FROM n;
INSERT INTO keys (key, token, starts, ended) VALUES ('full', 1000, 0, 1000);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 1000)
INSERT INTO history (key, refused, seq, token, attempt, holder, host, pid, slot, outcome, exit_code, started, ended, waited, duration, backend)
	SELECT 'full', 0, i, i, 1, 'holder', 'host', 4711, 0, 'succeeded', 0,
		unixepoch() * 1000000, unixepoch() * 1000000, 0, 1000000, 'sqlite:store' FROM n;
COMMIT;
PRAGMA wal_checkpoint(TRUNCATE);
`

// growth compares a run on a store with many keys and records with one on an empty store.
func (b *bench) growth() ([]row, error) {
	grown := b.at("grown.db")
	if err := b.grow(grown); err != nil {
		return nil, err
	}
	var cmds []*command
	for _, c := range []struct{ store, key string }{{b.at("empty.db"), "k"}, {grown, "key7"}, {grown, "full"}} {
		cmd, err := commandOf(c.store, b.lockrun, "--key", c.key, "--", b.yes)
		if err != nil {
			return nil, err
		}
		cmds = append(cmds, cmd)
	}
	m, err := inTurns(b.runs, []int{0, 0, 0}, cmds...)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(grown)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("a run on a store with %d keys and %d records (%d MB) against an empty one", b.keys, b.records, info.Size()>>20)
	return []row{versus(what, m[1], m[0]), versus("the same, of a key whose history is full", m[2], m[0])}, nil
}

// grow makes the store and fills it.
func (b *bench) grow(store string) error {
	mk := exec.Command(b.lockrun, "init", "--backend", "sqlite://"+store)
	if out, err := mk.CombinedOutput(); err != nil {
		return fmt.Errorf("lockrun init: %w: %s", err, out)
	}
	sql := exec.Command("sqlite3", "-bail", store)
	sql.Stdin = strings.NewReader(fmt.Sprintf(fill, b.keys, b.records/b.keys))
	if out, err := sql.CombinedOutput(); err != nil {
		return fmt.Errorf("sqlite3: %w: %s", err, out)
	}
	return nil
}
