package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka"
	"github.com/lockrun/lockrun/backends/mysql"
	"github.com/lockrun/lockrun/backends/redis"
	"github.com/lockrun/lockrun/backends/sqlite"
	"github.com/lockrun/lockrun/backends/zookeeper"
	"github.com/lockrun/lockrun/bench/measure"
	"github.com/lockrun/lockrun/internal/testserver"
)

// store is one store that runs.
type store struct {
	name, url string
	open      backends.OpenFunc
	ttl       time.Duration
	bytes     func() int64 // what it takes for its data; 0: it does not tell
}

// start starts a store, with what lockrun needs in it.
func start(s *measure.Stage, name string, partitions int) *store {
	st := &store{ttl: 10 * time.Minute, bytes: func() int64 { return 0 }}
	switch name {
	case "sqlite":
		dir, err := os.MkdirTemp("", "lockrun-sizing")
		measure.Must(err)
		s.Cleanup(func() { os.RemoveAll(dir) })
		file := filepath.Join(dir, "s.db")
		st.name, st.url, st.open = "SQLite", "sqlite://"+file, sqlite.Open
		st.bytes = func() int64 { return sizeOf(file) }
	case "redis":
		r := testserver.StartRedis(s, testserver.RedisConfig{})
		st.name, st.url, st.open = "Redis", r.URL(), redis.Open
		st.bytes = func() int64 {
			memory, err := r.Info("memory")
			measure.Must(err)
			n, err := strconv.ParseInt(memory["used_memory_dataset"], 10, 64)
			measure.Must(err)
			return n
		}
	case "mysql":
		m := testserver.StartMariaDB(s, testserver.MariaDBConfig{Args: []string{"--max-connections=5000"}})
		st.name, st.url, st.open = "MariaDB", m.URL(), mysql.Open
	case "zookeeper":
		z := testserver.StartZooKeeper(s, testserver.ZooKeeperConfig{})
		st.name, st.url, st.open = "ZooKeeper", z.URL("/lockrun"), zookeeper.Open
		st.ttl = 30 * time.Second // a session's limit is 40 s there
	case "kafka":
		k := testserver.StartKafka(s, testserver.KafkaConfig{})
		st.name, st.url, st.open = "Kafka", k.URL("sizing"), kafka.Open
		if partitions > 1 {
			st.name, st.url = fmt.Sprintf("Kafka, %d partitions", partitions), fmt.Sprintf("%s?partitions=%d", st.url, partitions)
		}
	default:
		s.Fatalf("no store is called %q", name)
	}
	b, err := st.connect()
	measure.Must(err)
	defer b.Close()
	if i, ok := b.(backends.Initer); ok {
		measure.Must(i.Init(context.Background()))
	}
	return st
}

// sizeOf is a database with its log.
func sizeOf(file string) (sum int64) {
	for _, suffix := range []string{"", "-wal"} {
		if fi, err := os.Stat(file + suffix); err == nil {
			sum += fi.Size()
		}
	}
	return sum
}

// connect opens the store as one process of lockrun does.
func (st *store) connect() (backends.Backend, error) {
	u, err := backends.ParseURL(st.url)
	if err != nil {
		return nil, err
	}
	return st.open(context.Background(), u, backends.Options{Timeout: patience}.WithDefaults())
}
