// Package kafka keeps leases in a topic of Apache Kafka 2.4 or later. The topic's log decides: see package ledger for the
// rules, package wire for how brokers are talked to, and docs/backends/kafka.md for the records and for the limits.
//
// Each operation appends one record and reads on until it has seen that record come by, unless offset and time tell what
// it will see. What it did follows from all records before it, so that every process comes to the same answer without
// asking anybody, and the broker only has to put records in order and to write its time beside them. A denied LOCK is at the
// same time the refusal's record.
//
// A process reads the end of the log once, finds its key through the index that the records carry, and from then on reads
// only what is new.
package kafka

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"hash/fnv"
	"sync"
	"sync/atomic"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/wire"
)

// backend is one process's way to a topic.
type backend struct {
	c      *config
	client *wire.Client
	logs   []*log // by partition
	writer string // names the appends of this process
	seq    atomic.Int64
	looked atomic.Bool // at the topic, before the first append: see usable
	agreed atomic.Bool // on the number of partitions: see agree

	mu     sync.Mutex
	unsure map[string]bool // owners with an append that has no reply, and may still arrive
}

var (
	_ backends.Backend  = (*backend)(nil)
	_ backends.Waiter   = (*backend)(nil)
	_ backends.Follower = (*backend)(nil)
	_ backends.Walker   = (*backend)(nil)
)

var _ backends.OpenFunc = Open

// Open prepares a backend for kafka://. It connects to nothing: the first operation does, under its own context. It
// returns a *backends.UsageError for a URL that has to be corrected. The topic has to exist, and is never created but by
// Init; options.ReadOnly keeps Now from asking for the brokers' time, which only an append tells.
func Open(_ context.Context, u *backends.URL, o backends.Options) (backends.Backend, error) {
	c, err := configure(u, o)
	if err != nil {
		return nil, err
	}
	return newBackend(c), nil
}

func newBackend(c *config) *backend {
	var id [8]byte
	rand.Read(id[:]) // never fails
	b := &backend{c: c, client: wire.New(c.wire), writer: hex.EncodeToString(id[:]), unsure: map[string]bool{}}
	for partition := range c.partitions {
		b.logs = append(b.logs, newLog(b, partition))
	}
	return b
}

func (b *backend) Name() string { return b.c.name }

func (b *backend) Close() error { return b.client.Close() }

// log is the partition that key's records are in. It depends on the configured number of partitions and not on the topic's,
// so that adding partitions to the topic splits no lock.
func (b *backend) log(key string) *log {
	h := fnv.New64a()
	h.Write([]byte(key))
	return b.logs[h.Sum64()%uint64(len(b.logs))]
}

// lateMayCome remembers that an append about owner has no reply.
func (b *backend) lateMayCome(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unsure[owner] = true
}

func (b *backend) mayCome(owner string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unsure[owner]
}
