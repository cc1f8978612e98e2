package mysql_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/rounds"
	"github.com/lockrun/lockrun/internal/testserver"
)

// CON-05, and the like: what asking again cannot mend is told at once, with its cause and what to do.
func TestWhatAnAdministratorHasToMend(t *testing.T) {
	whatAnAdministratorHasToMend(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
}

func whatAnAdministratorHasToMend(t *testing.T, m *testserver.MariaDB) {
	for name, c := range map[string]struct {
		spoil func(s *store) (url string)
		words []string
	}{
		"no table": {func(s *store) string { s.m.Exec("DROP TABLE " + s.table); return s.url }, []string{"lockrun init", "1146"}},
		"no history": {func(s *store) string { s.m.Exec("DROP TABLE " + s.table + "_history"); return s.url },
			[]string{"lockrun init", "1146"}},
		"no column": {func(s *store) string { s.m.Exec("ALTER TABLE " + s.table + " DROP COLUMN hold_time"); return s.url },
			[]string{"hold_time", "init --print"}},
		"no column that is written only": {func(s *store) string { s.m.Exec("ALTER TABLE " + s.table + " DROP COLUMN waited_us"); return s.url },
			[]string{"waited_us", "init --print"}},
		"a newer schema": {func(s *store) string { s.m.Exec("UPDATE " + s.table + "_schema SET version = 99"); return s.url },
			[]string{"99", "newer lockrun"}},
		"an older schema": {func(s *store) string { s.m.Exec("UPDATE " + s.table + "_schema SET version = 0"); return s.url },
			[]string{"needs 1", "lockrun init"}},
		"no version":      {func(s *store) string { s.m.Exec("DELETE FROM " + s.table + "_schema"); return s.url }, []string{"lockrun init"}},
		"no INSERT right": {func(s *store) string { return s.user("reader", "SELECT") }, []string{"1142", "GRANT"}},
		"no right at all": {func(s *store) string {
			newUser(s.m, "nobody", "'secret'")
			return s.asUser("nobody", "secret")
		}, []string{"GRANT", "104"}},
		"wrong password": {func(s *store) string { s.user("known", everyday); return s.asUser("known", "secret2") },
			[]string{"1045", "password", "logging in"}},
		"no such user": {func(s *store) string { return s.asUser("unknown", "secret") }, []string{"1045"}},
		"wrong database": {func(s *store) string { return strings.Replace(s.url, "/lockrun?", "/absent?", 1) },
			[]string{"1049", "absent", "database"}},
		"keys that ignore case": {func(s *store) string {
			s.m.Exec("ALTER TABLE " + s.table + " MODIFY job_name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL")
			return s.url
		}, []string{"job_name", "VARCHAR", "VARBINARY", "lockrun init"}},
		"times in whole seconds": {func(s *store) string {
			s.m.Exec("ALTER TABLE " + s.table + " MODIFY expire_time DATETIME NOT NULL")
			return s.url
		}, []string{"expire_time", "DATETIME(0)", "DATETIME(6)"}},
		"times of the session's zone": {func(s *store) string {
			s.m.Exec("ALTER TABLE " + s.table + " MODIFY expire_time TIMESTAMP(6) NOT NULL")
			return s.url
		}, []string{"expire_time", "TIMESTAMP", "DATETIME(6)"}},
	} {
		t.Run(name, func(t *testing.T) {
			url := c.spoil(newStore(t, m))
			b := open(t, url, backends.Options{})
			defer b.Close()
			_, err := b.Acquire(within(t, 20*time.Second), request("k"))
			unknown(t, err, true, c.words...)
			failed := func(c backends.Check) bool { return !c.OK && c.Remedy != "" }
			if checks := b.(backends.Doctor).Doctor(within(t, 20*time.Second)); !slices.ContainsFunc(checks, failed) {
				t.Errorf("the doctor finds nothing: %+v", checks)
			}
		})
	}
}

// What is there and cannot be used is no success of init.
func TestInitFindsAMissingColumn(t *testing.T) {
	s := newStore(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
	s.m.Exec("ALTER TABLE " + s.table + "_history DROP COLUMN duration_us")
	b := open(t, s.url, backends.Options{})
	defer b.Close()
	unknown(t, b.(backends.Initer).Init(within(t, 20*time.Second)), true, "duration_us", "init --print")
}

// KEY-02 on a table that somebody made after an old recipe, with the columns that a reader would expect.
func TestATableMadeByHandIsFound(t *testing.T) {
	aTableMadeByHand(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
}

func aTableMadeByHand(t *testing.T, m *testserver.MariaDB) {
	s := bareStore(t, m)
	m.Exec("CREATE TABLE " + s.table + " (job_name VARCHAR(100) PRIMARY KEY, instance_id VARCHAR(64), expire_time DATETIME," +
		" attempt_count INT) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
	b := s.open(t, backends.Options{})
	defer b.Close()
	_, err := b.Acquire(within(t, 20*time.Second), request("k"))
	unknown(t, err, true, "lockrun init")
	unknown(t, b.(backends.Initer).Init(within(t, 20*time.Second)), true, "column", "table")
	if n := m.Query("SELECT COUNT(*) FROM " + s.table); n != "0" {
		t.Errorf("the table was written to: %s rows", n)
	}
}

// Asking needs SELECT and nothing else.
func TestAskingNeedsNoRightToWrite(t *testing.T) {
	askingNeedsNoRightToWrite(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
}

func askingNeedsNoRightToWrite(t *testing.T, m *testserver.MariaDB) {
	s := newStore(t, m)
	a := open(t, s.user("writer", everyday), backends.Options{})
	defer a.Close()
	r := request("crashed")
	l := mustAcquire(t, a, request("held"))
	mustAcquire(t, a, r)
	mustRelease(t, mustAcquire(t, a, request("free")))
	s.expire("crashed")

	b := open(t, s.user("reader", "SELECT"), backends.Options{ReadOnly: true})
	defer b.Close()
	states, err := b.Status(within(t, 20*time.Second))
	if err != nil || len(states) != 3 || states[2].State != backends.Held || states[2].Token != l.Grant().Token {
		t.Errorf("Status = %+v, %v", states, err)
	}
	records, err := b.History(within(t, 20*time.Second), backends.Query{})
	if err != nil || len(records) != 2 || !slices.ContainsFunc(records, func(r backends.Record) bool { return r.Outcome == backends.Crashed }) {
		t.Errorf("History = %+v, %v", records, err)
	}
	_, err = b.Break(within(t, 20*time.Second), "held", 0, "me")
	unknown(t, err, true, "GRANT")
}

// CNC-03: many make the tables at once, in an empty database, and then work in them at once.
func TestManyInitAtOnce(t *testing.T) {
	manyInit(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}), rounds.Of(3, 100))
}

func manyInit(t *testing.T, m *testserver.MariaDB, often int) {
	for range often {
		s := bareStore(t, m)
		crowd(t, s, 30, func(b backends.Backend, i int) error {
			return b.(backends.Initer).Init(within(t, 30*time.Second))
		})
		crowd(t, s, 30, func(b backends.Backend, i int) error {
			l, err := b.Acquire(within(t, 30*time.Second), request("k"+string(rune('a'+i))))
			if err != nil {
				return err
			}
			return l.Release(within(t, 30*time.Second), backends.End{Outcome: backends.Succeeded})
		})
		if n := m.Query("SELECT COUNT(*) FROM " + s.table + "_schema"); n != "1" {
			t.Errorf("%s schema versions", n)
		}
	}
}

// crowd lets n hosts go at one instant; none may fail.
func crowd(t *testing.T, s *store, n int, f func(b backends.Backend, i int) error) {
	t.Helper()
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		b := s.open(t, backends.Options{})
		all.Go(func() {
			defer b.Close()
			<-start
			if err := f(b, i); err != nil {
				t.Errorf("host %d: %v", i, err)
			}
		})
	}
	close(start)
	all.Wait()
}

// What init prints is what it does: somebody else may run it.
func TestThePlanMakesTheTables(t *testing.T) {
	thePlanMakesTheTables(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
}

func thePlanMakesTheTables(t *testing.T, m *testserver.MariaDB) {
	s := bareStore(t, m)
	b := s.open(t, backends.Options{})
	defer b.Close()
	plan := b.(backends.Initer).InitPlan()
	if n := m.Query("SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_NAME LIKE ?", s.table+"%"); n != "0" {
		t.Fatalf("printing the plan made %s tables", n)
	}
	for _, statement := range strings.SplitAfter(strings.TrimSpace(plan), ";\n") {
		m.Exec(strings.TrimSuffix(strings.TrimSpace(statement), ";"))
	}
	mustRelease(t, mustAcquire(t, b, request("k")))
	if err := b.(backends.Initer).Init(within(t, 20*time.Second)); err != nil {
		t.Errorf("Init over what is there: %v", err)
	}
}

// What docs/backends/mysql.md says that whoever runs init needs is enough.
func TestTheRightsOfInit(t *testing.T) {
	theRightsOfInit(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
}

func theRightsOfInit(t *testing.T, m *testserver.MariaDB) {
	s := bareStore(t, m)
	newUser(m, "maker", "'secret'")
	m.Exec("GRANT CREATE, INSERT, SELECT ON lockrun.* TO maker")
	b := open(t, s.asUser("maker", "secret"), backends.Options{})
	defer b.Close()
	for range 2 {
		if err := b.(backends.Initer).Init(within(t, 20*time.Second)); err != nil {
			t.Error(err)
		}
	}
}

// A user of everyday cannot create tables, and is told who can.
func TestInitWithoutTheRightToCreate(t *testing.T) {
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{})
	s := newStore(t, m)
	url := s.user("writer", everyday)
	s.table = "absent"
	b := open(t, strings.Split(url, "?")[0]+"?table=absent", backends.Options{})
	defer b.Close()
	unknown(t, b.(backends.Initer).Init(within(t, 20*time.Second)), true, "CREATE", "init --print")
}

// FOV-04: a primary that becomes read-only is no loss, and no skip; it is asked again, on a new connection.
func TestAReadOnlyServer(t *testing.T) {
	aReadOnlyServer(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
}

func aReadOnlyServer(t *testing.T, m *testserver.MariaDB) {
	s := newStore(t, m)
	p := testserver.StartProxy(t, m.Addr())
	b := open(t, strings.Replace(s.user("writer", everyday), m.Addr(), p.Addr(), 1), backends.Options{})
	defer b.Close()
	l := mustAcquire(t, b, request("k"))
	m.Exec("SET GLOBAL read_only = ON")
	before := p.Accepted()
	unknown(t, l.Renew(within(t, 20*time.Second), time.Minute), false, "read-only", "1290")
	_, err := b.Acquire(within(t, 20*time.Second), request("other"))
	unknown(t, err, false, "read-only")
	unknown(t, l.Release(within(t, 20*time.Second), backends.End{Outcome: backends.Failed}), false, "read-only")
	if _, err := b.Status(within(t, 20*time.Second), "k"); err != nil {
		t.Errorf("Status of a read-only server: %v", err)
	}
	if n := p.Accepted() - before; n != 3 {
		t.Errorf("%d new connections after 3 refusals; a new primary would not be found", n)
	}
	m.Exec("SET GLOBAL read_only = OFF")
	if err := l.Renew(within(t, 20*time.Second), time.Minute); err != nil {
		t.Errorf("Renew after it: %v", err)
	}
	mustRelease(t, l)
}

// A transaction of somebody else on our rows is waited for, within the context, and then is no answer.
func TestRowsLockedBySomebodyElse(t *testing.T) {
	rowsLockedBySomebodyElse(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
}

func rowsLockedBySomebodyElse(t *testing.T, m *testserver.MariaDB) {
	s := newStore(t, m)
	b := s.open(t, backends.Options{Timeout: 2 * time.Second})
	defer b.Close()
	mustRelease(t, mustAcquire(t, b, request("k")))
	tx, err := m.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("SELECT * FROM " + s.table + "_keys FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	r := request("k")
	_, err = b.Acquire(within(t, 1500*time.Millisecond), r)
	if !errors.Is(err, backends.ErrLost) {
		unknown(t, err, false, "acquire")
	}
	// The server gives up too, so that nothing is granted to somebody who has gone.
	eventually(t, "the server gives up", func() bool {
		return m.Query("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE '%"+r.Owner+"%'") == "1" // which is ours
	})
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if d := s.dump("k"); d != "" {
		t.Errorf("granted to nobody: %s", d)
	}
	mustAcquire(t, b, r)
}
