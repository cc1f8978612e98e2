package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/ledger"
	"github.com/lockrun/lockrun/internal/testserver"
)

// benchStore is newStore on a broker of its own.
func benchStore(b *testing.B) *store {
	b.Helper()
	s := &store{TB: b, cluster: testserver.StartKafka(b, testserver.KafkaConfig{}).Cluster(), topic: "bench"}
	s.behind = s.open(backends.Options{})
	if err := s.behind.Init(context.Background()); err != nil {
		b.Fatal(err)
	}
	return s
}

func benchRequest(key string) backends.Request {
	return backends.Request{Key: key, Owner: backends.NewOwner(), Holder: "bench", Host: "bench", PID: 1, TTL: time.Minute, Slots: 1}
}

// cycle acquires and releases, and gives the time that the former took.
func cycle(b *testing.B, host *backend, key string) time.Duration {
	b.Helper()
	return cycleOf(b, host, benchRequest(key))
}

func cycleOf(b *testing.B, host *backend, r backends.Request) time.Duration {
	b.Helper()
	began := time.Now()
	l, err := host.Acquire(context.Background(), r)
	took := time.Since(began)
	if err == nil {
		err = l.Release(context.Background(), backends.End{Outcome: backends.Succeeded})
	}
	if err != nil {
		b.Fatal(err)
	}
	return took
}

func middle(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Microseconds())
}

// BenchmarkAcquire is an acquire by a process that has used the key before, and in turns with it a bare append (acks=all)
// of a record of the same size. It reports the medians in microseconds, and their ratio.
func BenchmarkAcquire(b *testing.B) {
	s := benchStore(b)
	host := s.open(backends.Options{})
	cycle(b, host, "k")
	end, err := host.client.End(context.Background(), 0)
	if err != nil {
		b.Fatal(err)
	}
	sample, err := host.client.Fetch(context.Background(), 0, end-2, 0, 1<<20)
	if err != nil {
		b.Fatal(err)
	}
	lock := sample.Records[0]
	other := &store{TB: b, cluster: s.cluster, topic: "bare"}
	bare := other.open(backends.Options{})
	if err := bare.Init(context.Background()); err != nil {
		b.Fatal(err)
	}
	var ours, theirs []time.Duration
	for b.Loop() {
		ours = append(ours, cycle(b, host, "k"))
		began := time.Now()
		if _, err := bare.client.Produce(context.Background(), 0, lock.Key, lock.Value, lock.Headers...); err != nil {
			b.Fatal(err)
		}
		theirs = append(theirs, time.Since(began))
	}
	b.ReportMetric(middle(ours), "acquire-µs")
	b.ReportMetric(middle(theirs), "append-µs")
	b.ReportMetric(middle(ours)/middle(theirs), "ratio")
}

// records is how many records a benchmark is to write first. LOCKRUN_KAFKA_RECORDS asks for another number.
func records(b *testing.B, usual int) int {
	text := os.Getenv("LOCKRUN_KAFKA_RECORDS")
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// fresh is another topic on the same broker, with nothing in it.
func (s *store) fresh() *store {
	s.Helper()
	fresh := &store{TB: s.TB, cluster: s.cluster, topic: "fresh"}
	if err := fresh.open(backends.Options{}).Init(context.Background()); err != nil {
		s.Fatal(err)
	}
	return fresh
}

// anew is a cycle by a process that has just connected, as it has to in any case.
func (s *store) anew(b *testing.B, r backends.Request) time.Duration {
	b.Helper()
	host := s.connected(b)
	defer host.Close()
	return cycleOf(b, host, r)
}

func (s *store) connected(b *testing.B) *backend {
	b.Helper()
	host := s.openQuery(backends.Options{}, "")
	if _, err := host.client.Topic(context.Background()); err != nil {
		b.Fatal(err)
	}
	return host
}

// BenchmarkGrown is the acquire of a process that starts anew, on a topic of a million records of ten thousand keys, and in
// turns with it on a fresh topic.
func BenchmarkGrown(b *testing.B) {
	records := records(b, 1_000_000)
	const keys = 10_000
	s := benchStore(b)
	s.grow(records, keys, nil)
	fresh := s.fresh()
	warm := s.open(backends.Options{Timeout: time.Minute})
	warmFresh := fresh.open(backends.Options{})
	var grown, small, warmGrown, warmSmall []time.Duration
	n := 0
	for b.Loop() {
		key := fmt.Sprint("key-", n*7919%keys)
		grown, small = append(grown, s.anew(b, benchRequest(key))), append(small, fresh.anew(b, benchRequest(fmt.Sprint("key-", n%20))))
		cycle(b, warm, "key-1")
		cycle(b, warmFresh, "key-1")
		warmGrown, warmSmall = append(warmGrown, cycle(b, warm, "key-1")), append(warmSmall, cycle(b, warmFresh, "key-1"))
		n++
	}
	began := time.Now()
	if _, err := warm.History(context.Background(), backends.Query{}); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(records)/time.Since(began).Seconds(), "history-records/s")
	b.ReportMetric(middle(grown), "grown-µs")
	b.ReportMetric(middle(small), "fresh-µs")
	b.ReportMetric(middle(grown)/middle(small), "ratio")
	b.ReportMetric(middle(warmGrown)/middle(warmSmall), "warm-ratio")
}

// BenchmarkManyRunIDs is the acquire of a process that starts anew and has a run id that the key, with its twenty thousand
// others, has not had; in turns with it on a fresh topic. It reports the same of run ids that were done long ago.
func BenchmarkManyRunIDs(b *testing.B) {
	records := records(b, 40_000)
	s := benchStore(b)
	s.grow(records, 1, func(n int64) string { return fmt.Sprint("tick-", n) })
	fresh := s.fresh()
	var grown, small, done []time.Duration
	r := benchRequest("key-0")
	for n := 0; b.Loop(); n++ {
		r.Owner, r.RunID = backends.NewOwner(), fmt.Sprint("new-", n)
		grown = append(grown, s.anew(b, r))
		r.Owner = backends.NewOwner()
		small = append(small, fresh.anew(b, r))
		r.Owner, r.RunID = backends.NewOwner(), fmt.Sprint("tick-", n*7919%(records/2))
		host := s.connected(b)
		began := time.Now()
		var was *backends.DoneError
		if _, err := host.Acquire(context.Background(), r); !errors.As(err, &was) {
			b.Fatalf("Acquire of the run id %s, which is done: %v", r.RunID, err)
		}
		done = append(done, time.Since(began))
		host.Close()
	}
	b.ReportMetric(middle(grown), "grown-µs")
	b.ReportMetric(middle(small), "fresh-µs")
	b.ReportMetric(middle(done), "done-µs")
	b.ReportMetric(middle(grown)/middle(small), "ratio")
}

// grow fills the topic with the records of runs, one key after the other, as processes write them that come one by one. id
// names the runs; nil: they have no run ids.
func (s *store) grow(records, keys int, id func(n int64) string) {
	s.Helper()
	began := time.Now()
	out := s.bulk()
	lines := map[int64]ledger.Line{}
	kept := int64(2*keys + 1000) // lines that may have to be looked at again
	if id != nil {
		kept = int64(records) // and as all of them may, as they are in the log, which takes less
	}
	source := func(first, last int64) ([]ledger.Line, error) { return []ledger.Line{lines[first]}, nil }
	first, err := s.behind.client.End(context.Background(), 0) // behind what Init has written
	if err != nil {
		s.Fatal(err)
	}
	book, _, err := ledger.NewBook(first, first, nil, source, nil)
	if err != nil {
		s.Fatal(err)
	}
	var token int64
	for n := range int64(records) {
		key := fmt.Sprint("key-", n/2%int64(keys))
		owner := fmt.Sprintf("%032x", n/2)
		e := &ledger.Entry{Kind: ledger.Lock, Key: key, Owner: owner, TTL: 60000, Slots: 1, Holder: "host", Host: "host", PID: 1, Writer: "grow", N: n}
		if n%2 == 1 {
			e = &ledger.Entry{Kind: ledger.Release, Key: key, Owner: owner, Token: token, Outcome: backends.Succeeded, Writer: "grow", N: n}
		}
		if id != nil {
			e.RunID = id(n / 2)
		}
		page, err := book.Page(key)
		if err != nil {
			s.Fatal(err)
		}
		carry, err := book.Carry(page, e)
		if err != nil {
			s.Fatal(err)
		}
		value, _ := e.Encode()
		known, _ := carry.Encode()
		out.add(ledger.Record{Key: e.RecordKey(), Value: value, Carry: known})
		// What has just been written need not be read.
		line := ledger.Line{Record: ledger.Record{Offset: first + n, Time: time.Now().UnixMilli()}, Entry: e, Carry: carry}
		if err := book.Feed(line); err != nil || book.Torn() {
			s.Fatal(line, err)
		}
		token = page.State().Token
		if n%2 == 1 {
			book.Close(key)
		}
		if id != nil {
			line.Record.Carry, line.Carry = known, nil
		}
		lines[line.Offset] = line
		delete(lines, line.Offset-kept)
	}
	out.flush()
	s.Logf("%d records of %d keys were written in %v", records, keys, time.Since(began).Round(time.Millisecond))
}
