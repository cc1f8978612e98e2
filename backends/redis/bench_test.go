package redis

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/testserver"
)

// BenchmarkContenders is the rate of lease operations of 100 contenders on keys of their own: acquire, renew, release.
func BenchmarkContenders(b *testing.B) {
	server := testserver.StartRedis(b, testserver.RedisConfig{})
	store := opened(b, server.URL(), backends.Options{})
	const contenders = 100
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range contenders {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			for left.Add(-3) > -3 {
				l, err := store.Acquire(ctx, request("k"+strconv.Itoa(i)))
				if err == nil {
					err = l.Renew(ctx, time.Minute)
				}
				if err == nil {
					err = l.Release(ctx, backends.End{Outcome: backends.Succeeded})
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// BenchmarkHandover is the time from a release to the waiter's grant.
func BenchmarkHandover(b *testing.B) {
	for _, top := range topologies {
		b.Run(top.name, func(b *testing.B) {
			url := top.start(b)
			here, there := opened(b, url, backends.Options{}), opened(b, url, backends.Options{})
			ctx := context.Background()
			var took []time.Duration
			for b.Loop() {
				l := acquire(b, here, request("k"))
				r := request("k")
				granted := make(chan time.Time)
				go func() {
					for {
						next, err := there.Acquire(ctx, r)
						if err == nil {
							granted <- time.Now()
							_ = next.Release(ctx, backends.End{Outcome: backends.Failed})
							close(granted)
							return
						}
						r.Waited = 1
						_ = there.(backends.Waiter).Wait(ctx, r)
					}
				}()
				for s := stateOf(b, here, "k"); s.Waiters == nil || *s.Waiters == 0; s = stateOf(b, here, "k") {
				}
				start := time.Now()
				release(b, l)
				took = append(took, (<-granted).Sub(start))
				<-granted
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-median")
		})
	}
}
