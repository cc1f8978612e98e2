package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// rate is lease operations a second by many contenders on distinct keys: the whole life of leases, and renewals alone
// beside the same renewals sent with nothing of ours around them.
func (b *bench) rate(s *stage, st *store) []row {
	cs := st.contenders(s, b.contenders, func(i int) string { return fmt.Sprintf("rate-%d", i) })
	recorded := st.recordRenewals(s, b.contenders)
	leases := make([]backends.Lease, len(cs))
	for i, c := range st.contenders(s, b.contenders, func(i int) string { return fmt.Sprintf("held-%d", i) }) {
		var err error
		leases[i], err = c.Acquire(context.Background(), c.request())
		must(err)
	}
	var whole, renewals, native, empty, creates []float64
	var means [4][]time.Duration
	for range b.rounds {
		rate, mean := b.lives(cs)
		whole = append(whole, rate)
		for i := range means {
			means[i] = append(means[i], mean[i])
		}
		renewals = append(renewals, keepOn(len(leases), b.span, func(i int) error {
			return leases[i].Renew(context.Background(), 10*time.Minute)
		}))
		native = append(native, st.native.keepOn(recorded, b.span))
		if r, ok := st.native.(*redisReplay); ok {
			empty = append(empty, r.emptyScript(b.contenders, b.span))
		}
		if z, ok := st.native.(*zookeeperReplay); ok {
			creates = append(creates, z.creates(b.contenders, b.span))
		}
	}
	n := b.contenders
	rows := []row{
		{fmt.Sprintf("%s, %d contenders on distinct keys: acquire, renew and release in turn, operations", st.name, n), perSecond(median(whole)), "", ""},
		{"the same; mean time of acquire; renew; release; of them all", fmt.Sprintf("%s; %s; %s; %s",
			ms(median(means[0])), ms(median(means[1])), ms(median(means[2])), ms(median(means[3]))), "", ""},
		rates("the same, renewals alone, against the same requests replayed", renewals, native),
	}
	if len(empty) > 0 {
		rows = append(rows, rates("the same, against `redis-benchmark` with EVALSHA of an empty script", renewals, empty))
	}
	if len(creates) > 0 {
		rows = append(rows, rates("the whole life of leases, against the creation of nodes over bare connections", whole, creates))
	}
	return rows
}

// lives is one round of whole leases: operations a second, and the mean time of acquire, renew, release, and of all.
func (b *bench) lives(cs []*contender) (rate float64, mean [4]time.Duration) {
	sums, counts := make([][3]time.Duration, len(cs)), make([]int, len(cs))
	rate = 3 * keepOn(len(cs), b.span, func(i int) error {
		took, err := cs[i].cycle(context.Background())
		for op, d := range took {
			sums[i][op] += d
		}
		counts[i]++
		return err
	})
	n := 0
	for i, sum := range sums {
		n += counts[i]
		for op, d := range sum {
			mean[op] += d
		}
	}
	mean[3] = (mean[0] + mean[1] + mean[2]) / 3
	for i := range mean {
		mean[i] /= time.Duration(n)
	}
	return rate, mean
}

// recordRenewals gives the request by which each of n held leases is renewed.
func (st *store) recordRenewals(s *stage, n int) [][]byte {
	ctx := context.Background()
	c := &contender{Backend: st.backend(s, st.throughProxy())}
	all := make([][]byte, n)
	for i := range all {
		c.key = fmt.Sprintf("recorded-%d", i)
		l, err := c.Acquire(ctx, c.request())
		must(err)
		must(l.Renew(ctx, 10*time.Minute)) // whatever is sent only the first time
		stop := st.proxy.Record()
		must(l.Renew(ctx, 10*time.Minute))
		all[i] = one(st.native.find(stop()))
	}
	return all
}

// keepOn lets n goroutines do something again and again for about span, and gives how often a second it was done. What
// is under way at the end counts, and so does its time.
func keepOn(n int, span time.Duration, do func(i int) error) float64 {
	var wg sync.WaitGroup
	counts := make([]int, n)
	errs := make([]error, n)
	begin := time.Now()
	for i := range n {
		wg.Go(func() {
			for time.Since(begin) < span && errs[i] == nil {
				errs[i] = do(i)
				counts[i]++
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	sum := 0
	for i := range n {
		must(errs[i])
		sum += counts[i]
	}
	return float64(sum) / took.Seconds()
}

// atOnce lets n goroutines do something at one instant, and gives the time until all have.
func atOnce(n int, do func(i int)) time.Duration {
	var ready, wg sync.WaitGroup
	gate := make(chan struct{})
	ready.Add(n)
	for i := range n {
		wg.Go(func() {
			ready.Done()
			<-gate
			do(i)
		})
	}
	ready.Wait()
	begin := time.Now()
	close(gate)
	wg.Wait()
	return time.Since(begin)
}
