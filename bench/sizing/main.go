// Command sizing measures how lockrun's load on a store grows with the number of hosts: a start of all hosts at one instant,
// each with a connection and a key of its own, and the beats of as many held keys, at several sizes, on real servers that it
// starts itself. docs/sizing.md says what follows from the figures.
//
//	go run ./bench/sizing -on sqlite,redis -sizes 10,100,1000
//
// All hosts are goroutines of this one process, which shares the machine with the server: what is measured is what both can
// do together, and so less than the server alone.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/bench/measure"
)

// patience is how long a host waits for an answer here, so that a crowd on a busy machine is measured rather than given up;
// lockrun's own default is 5 s, and what took longer than that is counted.
const (
	patience = 2 * time.Minute
	usual    = 5 * time.Second
)

func main() {
	on := flag.String("on", "sqlite,redis,mysql,zookeeper,kafka", "which stores to measure")
	sizes := flag.String("sizes", "10,100,1000", "how many hosts, increasing")
	span := flag.Duration("for", time.Second, "how long beats are counted in each round")
	rounds := flag.Int("rounds", 3, "how often each is measured; medians are told")
	partitions := flag.Int("partitions", 1, "Kafka's")
	flag.Parse()
	ns, err := numbers(*sizes)
	if err == nil {
		fmt.Println("| store | hosts | start at one instant: all done after | runs a second | median run | slowest run | later than 5 s | beats a second | a key takes |")
		fmt.Println("|---|---|---|---|---|---|---|---|---|")
		for name := range strings.SplitSeq(*on, ",") {
			if err = measure.Perform(func(s *measure.Stage) { table(start(s, name, *partitions), ns, *span, *rounds) }); err != nil {
				err = fmt.Errorf("%s: %w", name, err)
				break
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sizing:", err)
		os.Exit(1)
	}
}

func numbers(list string) (all []int, err error) {
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-sizes: %q is no number of hosts", word)
		}
		all = append(all, n)
	}
	if len(all) < 2 || !slices.IsSorted(all) {
		return nil, fmt.Errorf("-sizes: at least two, increasing, are needed")
	}
	return all, nil
}

// table prints one line a size.
func table(st *store, sizes []int, span time.Duration, rounds int) {
	st.crowd(1, "warm") // what is made or learnt once
	for i, n := range sizes {
		before := st.bytes()
		var all, middle, slowest []time.Duration
		var beats []float64
		late := 0
		for round := range rounds {
			c := st.crowd(n, fmt.Sprintf("start-%d-%d", n, round))
			all, middle, slowest = append(all, c.all), append(middle, measure.Median(c.each)), append(slowest, slices.Max(c.each))
			for _, d := range c.each {
				if d > usual {
					late++
				}
			}
		}
		each := "" // where the store does not tell
		if after := st.bytes(); after > 0 && i == len(sizes)-1 {
			each = fmt.Sprintf("%.1f KB", float64(after-before)/float64(n*rounds)/1024)
		}
		for range rounds {
			beats = append(beats, st.beats(n, span))
		}
		fmt.Printf("| %s | %d | %s | %.0f | %s | %s | %d of %d | %.0f | %s |\n", st.name, n, ms(measure.Median(all)), float64(n)/measure.Median(all).Seconds(),
			ms(measure.Median(middle)), ms(measure.Median(slowest)), late, n*rounds, measure.Median(beats), each)
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond)) }

// crowd is how long it took n hosts that started at one instant.
type crowd struct {
	all  time.Duration
	each []time.Duration
}

// crowd starts n hosts at one instant: connect, acquire a key of one's own, release it, hang up.
func (st *store) crowd(n int, key string) crowd {
	c := crowd{each: make([]time.Duration, n)}
	c.all = atOnce(n, func(i int) error {
		begin := time.Now()
		b, err := st.connect()
		if err != nil {
			return err
		}
		defer b.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		l, err := b.Acquire(ctx, request(fmt.Sprintf("%s-%d", key, i), time.Minute))
		if err == nil {
			code := 0
			err = l.Release(ctx, backends.End{Outcome: backends.Succeeded, ExitCode: &code, Duration: time.Millisecond})
		}
		c.each[i] = time.Since(begin)
		return err
	})
	return c
}

// beats is how many renewals a second n holders get through that each send the next as soon as the last is answered.
func (st *store) beats(n int, span time.Duration) float64 {
	leases := make([]backends.Lease, n)
	stores := make([]backends.Backend, n)
	defer func() {
		for _, b := range stores {
			if b != nil {
				_ = b.Close()
			}
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	atOnce(n, func(i int) (err error) {
		if stores[i], err = st.connect(); err == nil {
			leases[i], err = stores[i].Acquire(ctx, request(fmt.Sprintf("held-%d-%d", n, i), st.ttl))
		}
		return err
	})
	counts := make([]int, n)
	began := time.Now()
	atOnce(n, func(i int) error {
		for time.Since(began) < span {
			if err := leases[i].Renew(ctx, st.ttl); err != nil {
				return err
			}
			counts[i]++
		}
		return nil
	})
	sum := 0
	for _, c := range counts {
		sum += c
	}
	rate := float64(sum) / time.Since(began).Seconds()
	atOnce(n, func(i int) error { return leases[i].Release(ctx, backends.End{Outcome: backends.Succeeded}) })
	return rate
}

// atOnce lets n goroutines do something at one instant, and gives the time until all have.
func atOnce(n int, do func(i int) error) time.Duration {
	var ready, all sync.WaitGroup
	gate, errs := make(chan struct{}), make([]error, n)
	ready.Add(n)
	for i := range n {
		all.Go(func() {
			ready.Done()
			<-gate
			errs[i] = do(i)
		})
	}
	ready.Wait()
	begin := time.Now()
	close(gate)
	all.Wait()
	took := time.Since(begin)
	for _, err := range errs {
		measure.Must(err)
	}
	return took
}

func request(key string, ttl time.Duration) backends.Request {
	return backends.Request{Key: key, Owner: backends.NewOwner(), Holder: "host", Host: "host", PID: 1, TTL: ttl, Slots: 1, Last: true}
}
