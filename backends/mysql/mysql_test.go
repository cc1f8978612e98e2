package mysql_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/rounds"
	"github.com/lockrun/lockrun/internal/testserver"
)

// The other tests go by MariaDB; these two by MySQL, where the two may differ. One server is enough for all of them, each
// of which leaves it as it was.

func TestOnMySQL80(t *testing.T) {
	t.Parallel()
	certs := testserver.NewCerts(t)
	// Its URL names no authority, so that what is counted and cut on the way is not encrypted.
	m := testserver.StartMySQL(t, testserver.MySQL80, testserver.MariaDBConfig{Args: []string{"--ssl-ca=" + certs.CAFile,
		"--ssl-cert=" + certs.Server.CertFile, "--ssl-key=" + certs.Server.KeyFile}})
	onMySQL(t, m)
	t.Run("conformance", func(t *testing.T) { conformance(t, m) })
	t.Run("caching_sha2_password", func(t *testing.T) { cachingSHA2(t, m, certs) })
	t.Run("TLS is asked for", func(t *testing.T) { tlsIsAskedFor(t, m, certs) })
	t.Run("settings", func(t *testing.T) {
		worksWith(t, m, map[string]settings{
			"primary keys are required":      {"sql_require_primary_key": "ON"},
			"primary keys are made":          {"sql_generate_invisible_primary_key": "ON"},
			"the usual collation of MySQL 8": {"collation_server": "utf8mb4_0900_ai_ci"},
		})
	})
	t.Run("statements are replicated as they are", func(t *testing.T) { statementsAreReplicated(t, m) })
}

func TestOnMySQL57(t *testing.T) {
	t.Parallel()
	m := testserver.StartMySQL(t, testserver.MySQL57, testserver.MariaDBConfig{})
	onMySQL(t, m)
	if rounds.Full() { // it takes as long as all the others
		t.Run("conformance", func(t *testing.T) { conformance(t, m) })
	}
}

func onMySQL(t *testing.T, m *testserver.MariaDB) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *testserver.MariaDB)
	}{
		{"one of fifty", func(t *testing.T, m *testserver.MariaDB) { oneOfFifty(t, m, rounds.Of(1, 20)) }},
		{"a key that is made meanwhile", aKeyThatIsMadeMeanwhile},
		{"one exchange an operation", oneExchangeAnOperation},
		{"many init at once", func(t *testing.T, m *testserver.MariaDB) { manyInit(t, m, rounds.Of(1, 20)) }},
		{"the plan makes the tables", thePlanMakesTheTables},
		{"the rights of init", theRightsOfInit},
		{"a table made by hand", aTableMadeByHand},
		{"asking needs no right to write", askingNeedsNoRightToWrite},
		{"what an administrator has to mend", whatAnAdministratorHasToMend},
		{"doctor", doctorTells},
		{"a release rings the bell", aReleaseRingsTheBell},
		{"a bell that is lost", aBellThatIsLost},
		{"listening that is cut short", shortStatements},
		{"waiters take turns", waitersTakeTurns},
		{"idle connections are cut", idleConnections},
		{"a connection is killed", aConnectionIsKilled},
		{"a connection is cut while asking", cutWhileAsking},
		{"the answer to COMMIT is lost", theAnswerToCommitIsLost},
		{"rows locked by somebody else", rowsLockedBySomebodyElse},
		{"collisions", collisions},
		{"read-only", aReadOnlyServer},
		{"super-read-only", superReadOnly},
		{"settings", usualSettings},
		{"users", users},
	} {
		waitForCut(t, m) // what the test before has not closed by itself
		t.Run(c.name, func(t *testing.T) { c.test(t, m) })
	}
}

// settings are global variables of the server and their values, as SET wants them.
type settings map[string]string

// set sets them for connections that are made from now on, until the test ends.
func set(t *testing.T, m *testserver.MariaDB, all settings) {
	t.Helper()
	for name, value := range all {
		old := m.Query("SELECT @@GLOBAL." + name)
		if old == "" || strings.ContainsAny(old, ",+-_") {
			old = "'" + old + "'"
		}
		m.Exec("SET GLOBAL " + name + " = " + value)
		t.Cleanup(func() { m.Exec("SET GLOBAL " + name + " = " + old) })
	}
}

// worksWith lives a lease's life, from init on, with each group of settings.
func worksWith(t *testing.T, m *testserver.MariaDB, groups map[string]settings) {
	for name, group := range groups {
		t.Run(name, func(t *testing.T) {
			set(t, m, group)
			s := newStore(t, m)
			b := open(t, s.url, backends.Options{})
			defer b.Close()
			r := request("Key")
			r.RunID, r.Last, r.HoldAtLeast = `it's "a" \ run`, true, time.Millisecond
			l := mustAcquire(t, b, r)
			refused(t, b, request("Key"))
			mustRelease(t, mustAcquire(t, b, request("key")))
			if err := l.Renew(within(t, 20*time.Second), time.Minute); err != nil {
				t.Errorf("Renew = %v", err)
			}
			states, err := b.Status(within(t, 20*time.Second), "Key")
			if err != nil || *states[0].ExpiresIn > time.Minute || *states[0].ExpiresIn < 20*time.Second || states[0].RunID != r.RunID {
				t.Errorf("Status = %+v, %v", states, err)
			}
			mustRelease(t, l)
			if _, err := b.Acquire(within(t, 20*time.Second), r); !errors.As(err, new(*backends.DoneError)) {
				t.Errorf("a run that is done: %v", err)
			}
			if all, err := b.History(within(t, 20*time.Second), backends.Query{}); err != nil || len(all) != 3 {
				t.Errorf("History = %+v, %v", all, err)
			}
			s.expireAgain(t, b)
			for check, c := range doctor(t, b) {
				if !c.OK {
					t.Errorf("doctor: %s: %+v", check, c)
				}
			}
		})
	}
}

// expireAgain lets a lease run out, takes it over, pauses the key and breaks the lease.
func (s *store) expireAgain(t *testing.T, b backends.Backend) {
	t.Helper()
	ctx := within(t, 20*time.Second)
	mustAcquire(t, b, request("k"))
	s.expire("k")
	if g := mustAcquire(t, b, request("k")).Grant(); !g.Takeover {
		t.Errorf("taken over: %+v", g)
	}
	if err := b.Pause(ctx, "k", backends.Pause{By: "ops", For: time.Hour, Reason: "a 'reason'"}); err != nil {
		t.Errorf("Pause = %v", err)
	}
	if states, err := b.Break(ctx, "k", 0, "ops"); err != nil || len(states) != 1 {
		t.Errorf("Break = %+v, %v", states, err)
	}
	if held := refused(t, b, request("k")); !held.Paused {
		t.Errorf("paused: %+v", held)
	}
	if err := b.Resume(ctx, "k"); err != nil {
		t.Errorf("Resume = %v", err)
	}
}

func usualSettings(t *testing.T, m *testserver.MariaDB) {
	worksWith(t, m, map[string]settings{
		"quotes mean something else":     {"sql_mode": "'ANSI,NO_BACKSLASH_ESCAPES,HIGH_NOT_PRECEDENCE,PAD_CHAR_TO_FULL_LENGTH'"},
		"no mode at all":                 {"sql_mode": "''"},
		"all is strict":                  {"sql_mode": "'TRADITIONAL,ONLY_FULL_GROUP_BY'"},
		"timestamps are filled in":       {"explicit_defaults_for_timestamp": "OFF"},
		"timestamps are not filled in":   {"explicit_defaults_for_timestamp": "ON"},
		"another zone":                   {"time_zone": "'+05:30'"},
		"sessions that want much":        {"autocommit": "OFF", "sql_safe_updates": "ON", "transaction_isolation": "'SERIALIZABLE'"},
		"an engine without transactions": {"default_storage_engine": "'MyISAM'"},
		"short rows":                     {"innodb_default_row_format": "'COMPACT'", "innodb_strict_mode": "ON"},
		"wide characters":                {"character_set_server": "'utf16'"},
	})
}

// A limit for statements that is shorter than a second of listening ends no wait.
func shortStatements(t *testing.T, m *testserver.MariaDB) {
	set(t, m, settings{"max_execution_time": "300"})
	listeningThatIsCutShort(t, m)
}

// CON-07
func idleConnections(t *testing.T, m *testserver.MariaDB) {
	set(t, m, settings{"wait_timeout": "1"})
	connectionsCutWhileIdle(t, m)
}

// An administrator who kills the holder's connection does not end the lease.
func aConnectionIsKilled(t *testing.T, m *testserver.MariaDB) {
	b := newStore(t, m).open(t, backends.Options{})
	defer b.Close()
	waitForCut(t, m)
	l := mustAcquire(t, b, request("k"))
	killConnection(t, m)
	if err := l.Renew(within(t, 20*time.Second), time.Minute); err != nil {
		t.Errorf("Renew = %v", err)
	}
	killConnection(t, m)
	mustRelease(t, l)
}

// killConnection kills the only connection by TCP.
func killConnection(t *testing.T, m *testserver.MariaDB) {
	t.Helper()
	m.Exec("KILL " + m.Query("SELECT ID FROM information_schema.PROCESSLIST WHERE HOST LIKE '127.0.0.1:%'"))
	waitForCut(t, m)
}

// What the server answers where another transaction was in the way is asked again: also what a node of a group replication
// says, whose COMMIT lost its certification.
func collisions(t *testing.T, m *testserver.MariaDB) {
	for _, code := range []string{"1205", "1213", "3101"} {
		t.Run(code, func(t *testing.T) {
			s := newStore(t, m)
			for _, event := range []string{"INSERT ON " + s.table, "UPDATE ON " + s.table, "INSERT ON " + s.table + "_history"} {
				once := strings.NewReplacer(" ", "_").Replace("once_" + event)
				m.Exec("CREATE TRIGGER " + once + " BEFORE " + event + " FOR EACH ROW IF @" + once + " IS NULL THEN SET @" + once +
					" = 1; SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = " + code + "; END IF")
			}
			b := s.open(t, backends.Options{})
			defer b.Close()
			l := mustAcquire(t, b, request("k"))
			if err := l.Renew(within(t, 20*time.Second), time.Minute); err != nil {
				t.Errorf("Renew = %v", err)
			}
			mustRelease(t, l)
			if all, err := b.History(within(t, 20*time.Second), backends.Query{}); err != nil || len(all) != 1 || all[0].Token != 1 {
				t.Errorf("History = %+v, %v", all, err)
			}
		})
	}
}

// MySQL 8.0 tells why it cuts a connection that has idled, which then may stand where the answer to a request is expected
// that came at that moment. It is asked again, and nobody hears of it. The table without transactions keeps what is undone.
func cutWhileAsking(t *testing.T, m *testserver.MariaDB) {
	s := newStore(t, m)
	m.Exec("CREATE TABLE " + s.table + "_once (i INT) ENGINE=MyISAM")
	m.Exec("CREATE TRIGGER cut_" + s.table + " BEFORE UPDATE ON " + s.table + " FOR EACH ROW IF NOT EXISTS (SELECT 1 FROM " + s.table +
		"_once) THEN INSERT INTO " + s.table + "_once VALUES (1); SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 4031; END IF")
	b := s.open(t, backends.Options{})
	defer b.Close()
	l := mustAcquire(t, b, request("k"))
	if err := l.Renew(within(t, 20*time.Second), time.Minute); err != nil {
		t.Errorf("Renew = %v", err)
	}
	if n := m.Query("SELECT COUNT(*) FROM " + s.table + "_once"); n != "1" {
		t.Errorf("it was cut %s times", n)
	}
	mustRelease(t, l)
}

// FOV-04 for a user whom read_only does not stop, and for sessions that may only read.
func superReadOnly(t *testing.T, m *testserver.MariaDB) {
	s := newStore(t, m)
	b := s.open(t, backends.Options{})
	defer b.Close()
	l := mustAcquire(t, b, request("k"))
	m.Exec("SET GLOBAL super_read_only = ON")
	t.Cleanup(func() { m.Exec("SET GLOBAL read_only = OFF") }) // and the other with it
	for range 2 {                                              // on the connection that is there, and on a new one
		unknown(t, l.Renew(within(t, 20*time.Second), time.Minute), false, "read-only", "1290")
	}
	_, err := b.Acquire(within(t, 20*time.Second), request("other"))
	unknown(t, err, false, "read-only", "1290")
	if c := doctor(t, b)["read_only"]; c.OK || !strings.Contains(c.Cause, "super_read_only") {
		t.Errorf("doctor says %+v", c)
	}
	m.Exec("SET GLOBAL read_only = OFF")
	mustRelease(t, l)
	set(t, m, settings{"transaction_read_only": "ON"})
	other := s.open(t, backends.Options{})
	defer other.Close()
	_, err = other.Acquire(within(t, 20*time.Second), request("other"))
	unknown(t, err, false, "read-only", "1792")
}

// What a user may lack beside rights.
func users(t *testing.T, m *testserver.MariaDB) {
	s := newStore(t, m)
	for name, c := range map[string]struct {
		with  string
		words []string
	}{
		"native":  {"IDENTIFIED WITH mysql_native_password BY 'secret'", nil},
		"locked":  {"IDENTIFIED BY 'secret' ACCOUNT LOCK", []string{"3118", "locked"}},
		"expired": {"IDENTIFIED BY 'secret' PASSWORD EXPIRE", []string{"1862", "expired"}},
		"guarded": {"IDENTIFIED BY 'secret' REQUIRE X509", []string{"1045", "tls=true"}},
		"limited": {"IDENTIFIED BY 'secret' WITH MAX_QUERIES_PER_HOUR 1", []string{"1226", "limits"}},
	} {
		t.Run(name, func(t *testing.T) {
			m.Exec("CREATE USER " + name + " " + c.with)
			m.Exec("GRANT " + everyday + " ON lockrun.* TO " + name)
			b := open(t, s.asUser(name, "secret"), backends.Options{})
			defer b.Close()
			l, err := b.Acquire(within(t, 20*time.Second), request("k"))
			if c.words == nil && err == nil {
				mustRelease(t, l)
				return
			}
			unknown(t, err, name != "limited", c.words...)
		})
	}
}

// cachingSHA2 logs in by each way that there is, first where the server has forgotten the user, and then where it has not.
func cachingSHA2(t *testing.T, m *testserver.MariaDB, certs *testserver.Certs) {
	s := newStore(t, m)
	m.Exec("CREATE USER sha IDENTIFIED WITH caching_sha2_password BY 'secret'")
	m.Exec("GRANT " + everyday + " ON lockrun.* TO sha")
	plain := s.asUser("sha", "secret")
	for name, raw := range map[string]string{"plain": plain, "TLS": addParam(plain, "tls=true&ca="+url.QueryEscape(certs.CAFile)),
		"socket": addParam(plain, "socket="+url.QueryEscape(m.Socket()))} {
		t.Run(name, func(t *testing.T) {
			m.Exec("FLUSH PRIVILEGES")
			wrong := open(t, strings.Replace(raw, "secret", "secret2", 1), backends.Options{})
			defer wrong.Close()
			_, err := wrong.Now(within(t, 20*time.Second))
			unknown(t, err, true, "1045", "password")
			for range 2 {
				b := open(t, raw, backends.Options{})
				mustRelease(t, mustAcquire(t, b, request("k")))
				b.Close()
			}
		})
	}
}

func tlsIsAskedFor(t *testing.T, m *testserver.MariaDB, certs *testserver.Certs) {
	s := newStore(t, m)
	set(t, m, settings{"require_secure_transport": "ON"})
	b := s.open(t, backends.Options{})
	defer b.Close()
	_, err := b.Acquire(within(t, 20*time.Second), request("k"))
	unknown(t, err, true, "3159", "tls=true")
	safe := open(t, addParam(s.url, "ca="+url.QueryEscape(certs.CAFile)), backends.Options{})
	defer safe.Close()
	l := mustAcquire(t, safe, request("k"))
	killConnection(t, m)
	if err := l.Renew(within(t, 20*time.Second), time.Minute); err != nil {
		t.Errorf("Renew = %v", err)
	}
	mustRelease(t, l)
}

func statementsAreReplicated(t *testing.T, m *testserver.MariaDB) {
	s := newStore(t, m)
	set(t, m, settings{"binlog_format": "STATEMENT"})
	b := s.open(t, backends.Options{})
	defer b.Close()
	_, err := b.Acquire(within(t, 20*time.Second), request("k"))
	unknown(t, err, true, "1665", "binlog_format")
	if c := doctor(t, b)["binlog_format"]; c.OK {
		t.Errorf("doctor says %+v", c)
	}
	if _, err := b.Status(within(t, 20*time.Second)); err != nil {
		t.Errorf("Status = %v", err)
	}
}
