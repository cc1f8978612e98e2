package wire_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends/kafka/wire"
	"github.com/lockrun/lockrun/internal/testserver"
)

// shared is one broker for all tests that do it no harm, started for the first.
var shared struct {
	once     sync.Once
	broker   *testserver.Kafka
	cleanups []func()
}

// sharedTB lets a server outlive the test that asked for it first: TestMain ends it.
type sharedTB struct{ *testing.T }

func (s sharedTB) Cleanup(f func()) { shared.cleanups = append(shared.cleanups, f) }
func (s sharedTB) Failed() bool     { return false }
func (s sharedTB) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

func TestMain(m *testing.M) {
	code := m.Run()
	for i := len(shared.cleanups) - 1; i >= 0; i-- {
		shared.cleanups[i]()
	}
	os.Exit(code)
}

func broker(t *testing.T) *testserver.Kafka {
	t.Helper()
	shared.once.Do(func() { shared.broker = testserver.StartKafka(sharedTB{t}, testserver.KafkaConfig{}) })
	if shared.broker == nil {
		t.Skip("there is no broker: see the test before")
	}
	return shared.broker
}

var logAppendTime = map[string]string{"message.timestamp.type": "LogAppendTime"}

// client is a client of a topic that this test has for itself; it is closed with the test.
func client(t *testing.T, c wire.Config) *wire.Client {
	t.Helper()
	if c.Topic == "" {
		c.Topic = topicName(t)
	}
	if c.ClientID == "" {
		c.ClientID = "wire-test"
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	cl := wire.New(c)
	t.Cleanup(func() { cl.Close() })
	return cl
}

func topicName(t *testing.T) string {
	b := []byte(t.Name())
	for i, c := range b {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			b[i] = '-'
		}
	}
	return string(b)
}

func TestAppendAndRead(t *testing.T) {
	k := broker(t)
	k.Cluster().CreateTopic(topicName(t), 2, logAppendTime)
	c := client(t, wire.Config{Brokers: []string{k.Addr()}})
	before := time.Now().Add(-time.Second)
	var times []time.Time
	for i := range 3 {
		got, err := c.Produce(t.Context(), 1, fmt.Appendf(nil, "key%d", i), fmt.Appendf(nil, "value%d", i))
		if err != nil {
			t.Fatal(err)
		}
		if got.Offset != int64(i) {
			t.Errorf("record %d is at offset %d", i, got.Offset)
		}
		if got.Time.Before(before) || got.Time.After(time.Now().Add(time.Second)) {
			t.Errorf("the broker's time is %v", got.Time)
		}
		times = append(times, got.Time)
	}
	got, err := c.Fetch(t.Context(), 1, 1, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Records) != 2 || got.Next != 3 || got.HighWater != 3 || got.LogStart != 0 {
		t.Fatalf("read %+v", got)
	}
	for i, r := range got.Records {
		n := i + 1
		if r.Offset != int64(n) || string(r.Key) != fmt.Sprint("key", n) || string(r.Value) != fmt.Sprint("value", n) ||
			!r.Appended || !r.Time.Equal(times[n]) || r.Epoch != 0 || r.Control {
			t.Errorf("record %d reads as %+v, appended at %v", n, r, times[n])
		}
	}
	start, end, err := c.Offsets(t.Context(), 1)
	if err != nil || start != 0 || end != 3 {
		t.Errorf("offsets %d to %d, %v", start, end, err)
	}
	if _, err = c.Fetch(t.Context(), 1, 77, 0, 1<<20); !errors.Is(err, wire.OffsetOutOfRange) {
		t.Errorf("reading behind the end: %v", err)
	}
	if _, err = c.Fetch(t.Context(), 2, 0, 0, 1<<20); !errors.Is(err, wire.ErrPartition) {
		t.Errorf("reading a partition that is not there: %v", err)
	}
}

func TestFetchWaitsForARecord(t *testing.T) {
	k := broker(t)
	k.Cluster().CreateTopic(topicName(t), 1, logAppendTime)
	c := client(t, wire.Config{Brokers: []string{k.Addr()}})
	type result struct {
		got wire.Fetched
		err error
	}
	done := make(chan result)
	go func() {
		got, err := c.Fetch(context.Background(), 0, 0, 20*time.Second, 1<<20)
		done <- result{got, err}
	}()
	// An append goes by its own connection: the one that waits would let it wait as well.
	if _, err := c.Produce(t.Context(), 0, nil, []byte("x")); err != nil {
		t.Fatal(err)
	}
	r := <-done
	if r.err != nil || len(r.got.Records) != 1 || r.got.Records[0].Key != nil {
		t.Fatalf("%+v, %v", r.got, r.err)
	}
	started := time.Now()
	got, err := c.Fetch(t.Context(), 0, 1, 200*time.Millisecond, 1<<20)
	if err != nil || len(got.Records) != 0 || got.Next != 1 || time.Since(started) < 190*time.Millisecond {
		t.Errorf("nothing to read: %+v, %v after %v", got, err, time.Since(started))
	}
}

func TestProducersTimeIsToldApart(t *testing.T) {
	k := broker(t)
	k.Cluster().CreateTopic(topicName(t), 1, map[string]string{"message.timestamp.type": "CreateTime"})
	c := client(t, wire.Config{Brokers: []string{k.Addr()}})
	a, err := c.Produce(t.Context(), 0, []byte("k"), nil)
	if err != nil || !a.Time.IsZero() {
		t.Fatalf("%+v, %v", a, err)
	}
	got, err := c.Fetch(t.Context(), 0, 0, 0, 1<<20)
	if err != nil || len(got.Records) != 1 || got.Records[0].Appended || got.Records[0].Value != nil {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestMissingTopicIsNotCreated(t *testing.T) {
	k := testserver.StartKafka(t, testserver.KafkaConfig{AutoCreate: true})
	c := client(t, wire.Config{Brokers: []string{k.Addr()}})
	info, err := c.Topic(t.Context())
	if err != nil || info.Exists {
		t.Fatalf("%+v, %v", info, err)
	}
	_, err = c.Produce(t.Context(), 0, nil, nil)
	if !errors.Is(err, wire.ErrNoTopic) || wire.MaybeDone(err) {
		t.Errorf("append: %v", err)
	}
	if remedy, permanent := wire.Advice(err); remedy != "run lockrun init" || !permanent {
		t.Errorf("advice: %q, %v", remedy, permanent)
	}
	if _, err = c.Fetch(t.Context(), 0, 0, 0, 1<<20); !errors.Is(err, wire.ErrNoTopic) {
		t.Errorf("read: %v", err)
	}
	k.Provoke("another")
	if k.Cluster().HasTopic(topicName(t)) {
		t.Error("the topic was created")
	}
}

func TestCreateTopic(t *testing.T) {
	k := broker(t)
	c := client(t, wire.Config{Brokers: []string{k.Addr()}})
	spec := wire.TopicSpec{Partitions: 3, Replication: 1, Config: map[string]string{"message.timestamp.type": "LogAppendTime", "retention.ms": "86400000"}}
	if err := c.CreateTopic(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	info, err := c.Topic(t.Context())
	if err != nil || !info.Exists || len(info.Partitions) != 3 || len(info.Partitions[0].ISR) != 1 || info.Partitions[0].Leader != 1 {
		t.Errorf("%+v, %v", info, err)
	}
	config, err := c.TopicConfig(t.Context())
	if err != nil || config["message.timestamp.type"] != "LogAppendTime" || config["retention.ms"] != "86400000" || config["cleanup.policy"] != "delete" {
		t.Errorf("%v, %v", config, err)
	}
	if err := c.CreateTopic(t.Context(), spec); !errors.Is(err, wire.TopicExists) {
		t.Errorf("the second time: %v", err)
	}
}
