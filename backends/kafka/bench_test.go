package kafka

import (
	"context"
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
	began := time.Now()
	l, err := host.Acquire(context.Background(), benchRequest(key))
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

// BenchmarkGrown is the acquire of a process that starts anew, on a topic of a million records of ten thousand keys, and in
// turns with it on a fresh topic. LOCKRUN_KAFKA_RECORDS asks for another number of records.
func BenchmarkGrown(b *testing.B) {
	records := 1_000_000
	if text := os.Getenv("LOCKRUN_KAFKA_RECORDS"); text != "" {
		var err error
		if records, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	const keys = 10_000
	s := benchStore(b)
	s.grow(records, keys)
	fresh := &store{TB: b, cluster: s.cluster, topic: "fresh"}
	if err := fresh.open(backends.Options{}).Init(context.Background()); err != nil {
		b.Fatal(err)
	}
	warm := s.open(backends.Options{Timeout: time.Minute})
	warmFresh := fresh.open(backends.Options{})
	var grown, small, warmGrown, warmSmall []time.Duration
	one := func(s *store, key string) time.Duration {
		host := s.openQuery(backends.Options{}, "")
		defer host.Close()
		if _, err := host.client.Topic(context.Background()); err != nil { // connected, as it has to be in any case
			b.Fatal(err)
		}
		return cycle(b, host, key)
	}
	n := 0
	for b.Loop() {
		key := fmt.Sprint("key-", n*7919%keys)
		grown, small = append(grown, one(s, key)), append(small, one(fresh, fmt.Sprint("key-", n%20)))
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

// grow fills the topic with the records of runs, one key after the other, as processes write them that come one by one.
func (s *store) grow(records, keys int) {
	s.Helper()
	began := time.Now()
	out := s.bulk()
	lines := map[int64]ledger.Line{}
	kept := int64(2*keys + 1000) // lines that may have to be looked at again
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
		lines[line.Offset] = line
		delete(lines, line.Offset-kept)
	}
	out.flush()
	s.Logf("%d records of %d keys were written in %v", records, keys, time.Since(began).Round(time.Millisecond))
}
