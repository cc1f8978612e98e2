package mysql_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// BenchmarkContenders is 100 hosts, each with a key of its own, that acquire, renew and release: as fast as they are
// answered, or at a rate that they share. It reports operations a second, and how long one took.
func BenchmarkContenders(b *testing.B) {
	const hosts = 100
	s := newStore(b, testserver.StartMariaDB(b, testserver.MariaDBConfig{}))
	all := make([]backends.Backend, hosts)
	for i := range all {
		all[i] = s.open(b, backends.Options{})
		defer all[i].Close()
		cycle(b, all[i], fmt.Sprint("k", i))
	}
	for name, pause := range map[string]time.Duration{"flat out": 0, "1000 a second": hosts * 3 * time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				round(b, all, pause)
			}
		})
	}
}

// round lets every host go through some cycles, each of which lasts at least pause.
func round(b *testing.B, all []backends.Backend, pause time.Duration) {
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	began := time.Now()
	for i, host := range all {
		wg.Go(func() {
			time.Sleep(pause * time.Duration(i) / time.Duration(len(all)))
			for range 30 {
				next := time.Now().Add(pause)
				own := cycle(b, host, fmt.Sprint("k", i))
				time.Sleep(time.Until(next))
				mu.Lock()
				took = append(took, own...)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
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

// cycle is acquire, renew and release, and how long each took.
func cycle(b *testing.B, host backends.Backend, key string) []time.Duration {
	var took []time.Duration
	var l backends.Lease
	for _, step := range []func() error{
		func() (err error) { l, err = host.Acquire(b.Context(), request(key)); return err },
		func() error { return l.Renew(b.Context(), time.Minute) },
		func() error { return l.Release(b.Context(), backends.End{Outcome: backends.Succeeded}) },
	} {
		began := time.Now()
		if err := step(); err != nil {
			b.Error(err)
			return took
		}
		took = append(took, time.Since(began))
	}
	return took
}
