package sqlite

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockrun/lockrun/backends"
)

// BenchmarkRun is what a run spends on its store: open, acquire, release, close. The grown store has 100,000 keys and a
// million records, and one key whose history is full, so that each run throws a record away.
func BenchmarkRun(b *testing.B) {
	for _, d := range drivers() {
		empty, grown := newStore(b, d), newStore(b, d)
		for _, c := range []struct {
			name string
			s    *store
			key  string
		}{{"empty", empty, "k"}, {"grown", grown, "key7"}, {"grown, full key", grown, "full"}} {
			b.Run(d.name+"/"+c.name, func(b *testing.B) {
				if c.s == grown {
					grown.grow(100_000, 10)
				}
				defer reportCPU(b, cpu())
				for b.Loop() {
					bk := c.s.open(backends.Options{})
					l, err := bk.Acquire(b.Context(), request(c.key))
					if err != nil {
						b.Fatal(err)
					}
					if err := l.Release(b.Context(), backends.End{Outcome: backends.Succeeded}); err != nil {
						b.Fatal(err)
					}
					bk.Close()
				}
			})
		}
	}
}

// cpu is this process's processor time; on a busy machine it says more than the time on the wall.
func cpu() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func reportCPU(b *testing.B, before time.Duration) {
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
}

// grow fills a store once.
func (s *store) grow(keys, each int) {
	s.t.Helper()
	s.open(backends.Options{}).Close()
	if n := s.sql("SELECT count(*) FROM keys"); n[0] != "[0]" {
		return
	}
	us := time.Now().UnixMicro()
	s.sql(fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<%d)
 INSERT INTO keys (key, token, ended) SELECT 'key'||i, %d, %d FROM n`, keys, us, each))
	s.sql(fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<%d)
 INSERT INTO history (key, refused, seq, token, attempt, holder, host, pid, slot, outcome, started, ended, waited)
 SELECT 'key'||(i%%%d+1), 0, i/%d+1, i, 1, 'holder', 'host', 1, 0, 'succeeded', %d, %d, 0 FROM n`, keys*each-1, keys, keys, us, us))
	s.sql(`INSERT INTO keys (key, token, ended) VALUES ('full', 1, 1000)`)
	s.sql(fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<1000)
 INSERT INTO history (key, refused, seq, token, attempt, holder, host, pid, slot, outcome, started, ended, waited)
 SELECT 'full', 0, i, i, 1, 'holder', 'host', 1, 0, 'succeeded', %d, %d, 0 FROM n`, us, us))
	s.sql("PRAGMA wal_checkpoint(TRUNCATE)")
}

// BenchmarkSkip is what a refused run spends, with and without the record of it.
func BenchmarkSkip(b *testing.B) {
	for _, last := range []bool{false, true} {
		b.Run(fmt.Sprintf("recorded=%v", last), func(b *testing.B) {
			s := newStore(b, linked)
			if _, err := s.open(backends.Options{}).Acquire(b.Context(), request("k")); err != nil {
				b.Fatal(err)
			}
			defer reportCPU(b, cpu())
			for b.Loop() {
				bk := s.open(backends.Options{})
				r := request("k")
				r.Last = last
				if _, err := bk.Acquire(b.Context(), r); !isHeld(err) {
					b.Fatal(err)
				}
				bk.Close()
			}
		})
	}
}

func BenchmarkRenew(b *testing.B) {
	s := newStore(b, linked)
	l, err := s.open(backends.Options{}).Acquire(b.Context(), request("k"))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := l.Renew(b.Context(), time.Hour); err != nil {
			b.Fatal(err)
		}
	}
}
