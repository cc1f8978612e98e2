package mysql_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// A key may be made by somebody else just after an Acquire has found none. Who found none has no lock on it, and so must not
// take a lease: another Acquire, which has the lock, may be about to.
func TestAKeyThatIsMadeMeanwhile(t *testing.T) {
	aKeyThatIsMadeMeanwhile(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
}

func aKeyThatIsMadeMeanwhile(t *testing.T, m *testserver.MariaDB) {
	s := newStore(t, m)
	b := s.open(t, backends.Options{})
	defer b.Close()
	if _, err := b.Now(within(t, 20*time.Second)); err != nil { // the connection is there, and has looked at the tables
		t.Fatal(err)
	}
	other, err := m.DB().Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	say := func(sql string) {
		t.Helper()
		if _, err := other.ExecContext(context.Background(), sql); err != nil {
			t.Fatal(err)
		}
	}
	say("LOCK TABLES " + s.table + " WRITE") // Acquire stops here, after it has looked for the key
	granted := make(chan backends.Lease, 1)
	go func() {
		l, err := b.Acquire(within(t, 20*time.Second), request("k"))
		if err != nil {
			t.Errorf("Acquire = %v", err)
		}
		granted <- l
	}()
	eventually(t, "Acquire waits for the leases", func() bool {
		return m.Query("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for table%'") == "1"
	})
	m.Exec("INSERT INTO "+s.table+"_keys (job_name, token) VALUES (?, 5)", []byte("k"))
	say("UNLOCK TABLES")
	l := <-granted
	if l == nil {
		return
	}
	if counted := m.Query("SELECT token FROM " + s.table + "_keys"); l.Grant().Token != 6 || counted != "6" {
		t.Errorf("token %d is granted, and %s is counted", l.Grant().Token, counted)
	}
	mustRelease(t, l)
}
