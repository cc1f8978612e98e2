package wire_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends/kafka/wire"
	"github.com/lockrun/lockrun/internal/testserver"
)

// blackHole is an address that takes connections and never answers.
func blackHole(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// nobody is an address where nothing listens.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return l.Addr().String()
}

func TestSomeBrokersAreDown(t *testing.T) {
	k := broker(t)
	k.Cluster().CreateTopic(topicName(t), 1, logAppendTime)
	hole := blackHole(t)
	c := client(t, wire.Config{Brokers: []string{hole, nobody(t), hole, k.Addr()}, Timeout: time.Minute})
	started := time.Now()
	if _, err := c.Produce(t.Context(), 0, nil, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(started); took > 30*time.Second {
		t.Errorf("a black hole used up %v", took)
	}
}

func TestNobodyAnswers(t *testing.T) {
	hole, none := blackHole(t), nobody(t)
	c := client(t, wire.Config{Brokers: []string{hole, none}, Topic: "t", Timeout: time.Second})
	started := time.Now()
	_, err := c.Produce(t.Context(), 0, nil, nil)
	if err == nil || !strings.Contains(err.Error(), hole) || !strings.Contains(err.Error(), none) || wire.MaybeDone(err) || permanent(err) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(started); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
	// One context ends all of it at once.
	ctx, cancel := context.WithCancel(t.Context())
	c = client(t, wire.Config{Brokers: []string{hole}, Topic: "t", Timeout: time.Hour})
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := c.Fetch(ctx, 0, 0, time.Hour, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
}

// proxied is a broker behind a proxy, with a topic.
func proxied(t *testing.T) *testserver.Kafka {
	t.Helper()
	k := testserver.StartKafka(t, testserver.KafkaConfig{Proxied: true})
	k.Cluster().CreateTopic(topicName(t), 1, logAppendTime)
	return k
}

// An append goes out once, whatever happens to its answer, and its error tells whether it may be there.
func TestLostReplies(t *testing.T) {
	k := proxied(t)
	for i, after := range []testserver.After{testserver.KeepOpen, testserver.CloseIt} {
		value := fmt.Sprintf("reply %d is lost", i)
		c := client(t, wire.Config{Brokers: []string{k.Addr()}, Timeout: 3 * time.Second})
		if _, err := c.Topic(t.Context()); err != nil {
			t.Fatal(err)
		}
		lost := k.Proxy.LoseReply(value, after)
		_, err := c.Produce(t.Context(), 0, nil, []byte(value))
		if !wire.MaybeDone(err) || !strings.Contains(err.Error(), "append on "+k.Addr()) || !lost() {
			t.Errorf("the reply is lost: %v", err)
		}
		if n := count(t, c, value); n != 1 {
			t.Errorf("the record is there %d times", n)
		}
	}
	// A request that never arrives looks the same from here.
	c := client(t, wire.Config{Brokers: []string{k.Addr()}, Timeout: 3 * time.Second})
	lost := k.Proxy.LoseRequest("into nothing", testserver.CloseIt)
	if _, err := c.Produce(t.Context(), 0, nil, []byte("into nothing")); !wire.MaybeDone(err) || !lost() {
		t.Errorf("the request is lost: %v", err)
	}
	if n := count(t, c, "into nothing"); n != 0 {
		t.Errorf("the record is there %d times", n)
	}
	// Reading is repeated.
	k.Proxy.Reset()
	if n := count(t, c, "into nothing"); n != 0 {
		t.Errorf("the record is there %d times", n)
	}
}

func count(t *testing.T, c *wire.Client, value string) int {
	t.Helper()
	got, err := c.Fetch(t.Context(), 0, 0, 0, 10<<20)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range got.Records {
		if string(r.Value) == value {
			n++
		}
	}
	return n
}

// A connection that the broker, or something on the way, has closed while it idled is not written to: an append into it
// would be lost without anybody knowing.
func TestAnIdleConnectionThatWasClosed(t *testing.T) {
	k := proxied(t)
	c := client(t, wire.Config{Brokers: []string{k.Addr()}})
	for i := range 6 {
		if _, err := c.Produce(t.Context(), 0, nil, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			k.Proxy.HangUp()
		} else {
			k.Proxy.Reset()
		}
		time.Sleep(20 * time.Millisecond) // that is on its way through the loopback device
	}
}

func TestFrozenBroker(t *testing.T) {
	k := testserver.StartKafka(t, testserver.KafkaConfig{})
	k.Cluster().CreateTopic(topicName(t), 1, logAppendTime)
	warm := client(t, wire.Config{Brokers: []string{k.Addr()}, Timeout: 2 * time.Second})
	if _, err := warm.Produce(t.Context(), 0, nil, nil); err != nil {
		t.Fatal(err)
	}
	cold := client(t, wire.Config{Brokers: []string{k.Addr()}, Timeout: 2 * time.Second})
	k.Freeze()
	for name, c := range map[string]*wire.Client{"append on": warm, "greet": cold} {
		started := time.Now()
		_, err := c.Produce(t.Context(), 0, nil, nil)
		if err == nil || !strings.Contains(err.Error(), name+" "+k.Addr()) || wire.MaybeDone(err) != (c == warm) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(started); took > 20*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
	k.Thaw()
	if _, err := cold.Produce(t.Context(), 0, nil, nil); err != nil && !wire.MaybeDone(err) {
		t.Errorf("after the thaw: %v", err)
	}
}

func TestLeaderMovesAndDies(t *testing.T) {
	k := testserver.StartKafkaCluster(t, 3, testserver.KafkaConfig{})
	topic := topicName(t)
	k.CreateTopic(topic, 1, logAppendTime)
	var all []string
	for _, b := range k.Nodes {
		all = append(all, b.Addr())
	}
	c := client(t, wire.Config{Brokers: all, Timeout: time.Minute})
	appended := 0
	put := func() {
		t.Helper()
		for {
			_, err := c.Produce(t.Context(), 0, nil, fmt.Appendf(nil, "%d", appended))
			if err == nil {
				appended++
				return
			}
			if !wire.MaybeDone(err) {
				t.Fatal(err)
			}
		}
	}
	put()
	first := k.Leader(topic, 0)
	k.InSync(topic, 0, 3)
	next := k.Nodes[first.ID()%3]
	k.MoveLeader(topic, 0, next)
	put()
	k.InSync(topic, 0, 3)
	next.Kill()
	put()
	got, err := c.Fetch(t.Context(), 0, 0, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	epoch := int32(-1)
	for _, r := range got.Records {
		seen[string(r.Value)] = true
		if r.Epoch < epoch {
			t.Errorf("the epoch goes back from %d to %d", epoch, r.Epoch)
		}
		epoch = r.Epoch
	}
	if len(seen) != appended || epoch < 2 {
		t.Errorf("%d of %d records are there, the last of epoch %d", len(seen), appended, epoch)
	}

	// Below the smallest number of replicas in sync the record is positively not appended.
	k.SetTopic(topic, "min.insync.replicas", "3")
	for {
		_, err := c.Produce(t.Context(), 0, nil, nil)
		if errors.Is(err, wire.NotEnoughReplicas) {
			if remedy, permanent := wire.Advice(err); wire.MaybeDone(err) || permanent || !strings.Contains(remedy, "start the brokers") {
				t.Errorf("too few replicas: %v; %s", err, remedy)
			}
			break
		}
		if err != nil && !wire.MaybeDone(err) { // none: the setting takes a moment to reach the leader
			t.Fatal(err)
		}
	}
	next.Restart()
	k.InSync(topic, 0, 3)
	put()
}

func TestCloseLeavesNothing(t *testing.T) {
	k := broker(t)
	k.Cluster().CreateTopic(topicName(t), 1, logAppendTime)
	before := runtime.NumGoroutine()
	c := client(t, wire.Config{Brokers: []string{blackHole(t), k.Addr()}})
	if _, err := c.Produce(t.Context(), 0, nil, nil); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := c.Fetch(context.Background(), 0, 1, time.Hour, 1<<20)
		ended <- err
	}()
	time.Sleep(50 * time.Millisecond)
	c.Close()
	if err := <-ended; err == nil {
		t.Error("a fetch outlived its client")
	}
	if _, err := c.Topic(t.Context()); err == nil {
		t.Error("a closed client answers")
	}
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i == 500 {
			buf := make([]byte, 64<<10)
			t.Fatalf("%d goroutines more than before:\n%s", runtime.NumGoroutine()-before, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
}
