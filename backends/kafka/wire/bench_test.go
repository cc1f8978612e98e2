package wire_test

import (
	"testing"

	"github.com/lockrun/lockrun/backends/kafka/wire"
	"github.com/lockrun/lockrun/internal/testserver"
)

// bench starts a broker with a topic.
func bench(b *testing.B) (*testserver.Kafka, wire.Config) {
	b.Helper()
	k := testserver.StartKafka(b, testserver.KafkaConfig{})
	k.Cluster().CreateTopic("bench", 1, logAppendTime)
	return k, wire.Config{Brokers: []string{k.Addr()}, Topic: "bench", ClientID: "bench"}
}

// BenchmarkProduce is one record with acks=all over a connection that is there: what everything else is compared with.
func BenchmarkProduce(b *testing.B) {
	_, config := bench(b)
	c := wire.New(config)
	defer c.Close()
	value := make([]byte, 500)
	for b.Loop() {
		if _, err := c.Produce(b.Context(), 0, nil, value); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAppendAndRead is what an acquire costs of the network: an append, and reading on up to it.
func BenchmarkAppendAndRead(b *testing.B) {
	_, config := bench(b)
	c := wire.New(config)
	defer c.Close()
	value := make([]byte, 500)
	for b.Loop() {
		at, err := c.Produce(b.Context(), 0, nil, value)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.Fetch(b.Context(), 0, at.Offset, 0, 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFirstProduce is the same from a new client: connecting, versions, the leader.
func BenchmarkFirstProduce(b *testing.B) {
	_, config := bench(b)
	value := make([]byte, 500)
	for b.Loop() {
		c := wire.New(config)
		if _, err := c.Produce(b.Context(), 0, nil, value); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}
