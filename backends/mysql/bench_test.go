package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/mysql"
	"github.com/lockrun/lockrun/internal/testserver"
)

// contenders is how many hosts contend in benchmarks, each with a key of its own.
const contenders = 100

// BenchmarkContenders is hosts that acquire, renew and release: as fast as they are answered, or at a rate that they
// share. "server alone" says the same to the server, written down beforehand, and looks at no answer. They report
// operations a second, and how long one took.
func BenchmarkContenders(b *testing.B) {
	m := testserver.StartMariaDB(b, testserver.MariaDBConfig{})
	s := newStore(b, m)
	all := make([]backends.Backend, contenders)
	for i := range all {
		all[i] = s.open(b, backends.Options{})
		defer all[i].Close()
		cycle(b, all[i], fmt.Sprint("k", i))
	}
	through := func(i, _ int) []time.Duration { return cycle(b, all[i], fmt.Sprint("k", i)) }
	b.Run("flat out", func(b *testing.B) { cycles(b, 0, through) })
	b.Run("1000 a second", func(b *testing.B) { cycles(b, contenders*3*time.Millisecond, through) })
	alone := serverAlone(b, m)
	b.Run("server alone", func(b *testing.B) { cycles(b, 0, alone) })
}

// BenchmarkRun is what one run costs beside its job: connect, acquire, release, close.
func BenchmarkRun(b *testing.B) {
	s := newStore(b, testserver.StartMariaDB(b, testserver.MariaDBConfig{}))
	for b.Loop() {
		host := s.open(b, backends.Options{})
		mustRelease(b, mustAcquire(b, host, request("k")))
		host.Close()
	}
}

// each is how many cycles a host does in a round.
const each = 30

// cycles lets every host go through its cycles, each of which lasts at least pause.
func cycles(b *testing.B, pause time.Duration, do func(i, n int) []time.Duration) {
	var mu sync.Mutex
	var took []time.Duration
	n := 0
	began := time.Now()
	for b.Loop() {
		var wg sync.WaitGroup
		for i := range contenders {
			wg.Go(func() {
				time.Sleep(pause * time.Duration(i) / contenders)
				for c := range each {
					next := time.Now().Add(pause)
					own := do(i, n*each+c)
					time.Sleep(time.Until(next))
					mu.Lock()
					took = append(took, own...)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		n++
	}
	report(b, took, time.Since(began))
}

func report(b *testing.B, took []time.Duration, all time.Duration) {
	var sum time.Duration
	for _, d := range took {
		sum += d
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(float64(len(took))/all.Seconds(), "leaseops/s")
	b.ReportMetric(ms(sum)/float64(len(took)), "mean-ms")
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
}

// timed runs the steps and tells how long each took.
func timed(b *testing.B, steps ...func() error) []time.Duration {
	var took []time.Duration
	for _, step := range steps {
		began := time.Now()
		if err := step(); err != nil {
			b.Error(err)
			return took
		}
		took = append(took, time.Since(began))
	}
	return took
}

// cycle is acquire, renew and release.
func cycle(b *testing.B, host backends.Backend, key string) []time.Duration {
	var l backends.Lease
	ctx := context.Background()
	return timed(b,
		func() (err error) { l, err = host.Acquire(ctx, request(key)); return err },
		func() error { return l.Renew(ctx, time.Minute) },
		func() error { return l.Release(ctx, backends.End{Outcome: backends.Succeeded}) })
}

// serverAlone is a cycle of texts, over plain connections and on tables of its own.
func serverAlone(b *testing.B, m *testserver.MariaDB) func(i, n int) []time.Duration {
	s := newStore(b, m)
	c := driver.NewConfig()
	c.User, c.Net, c.Addr, c.DBName, c.MultiStatements, c.ClientFoundRows = "root", "tcp", m.Addr(), testserver.Database, true, true
	connector, err := driver.NewConnector(c)
	if err != nil {
		b.Fatal(err)
	}
	db := sql.OpenDB(connector)
	b.Cleanup(func() { db.Close() })
	conns := make([]*sql.Conn, contenders)
	texts := make([][][]string, contenders)
	for i := range conns {
		if conns[i], err = db.Conn(context.Background()); err != nil {
			b.Fatal(err)
		}
		// At the usual REPEATABLE READ gap locks make them deadlock by the thousand.
		if _, err := conns[i].ExecContext(context.Background(), "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil {
			b.Fatal(err)
		}
		r := request(fmt.Sprint("k", i))
		m.Exec("INSERT INTO "+s.table+"_keys (job_name) VALUES (?)", []byte(r.Key))
		for n := range int64(50 * each) {
			texts[i] = append(texts[i], mysql.Texts(s.table, r, n+1))
		}
	}
	return func(i, n int) []time.Duration {
		var steps []func() error
		for _, text := range texts[i][n] {
			steps = append(steps, func() error { _, err := conns[i].ExecContext(context.Background(), text); return err })
		}
		return timed(b, steps...)
	}
}
