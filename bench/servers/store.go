package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka"
	"github.com/lockrun/lockrun/backends/mysql"
	"github.com/lockrun/lockrun/backends/redis"
	"github.com/lockrun/lockrun/backends/zookeeper"
	"github.com/lockrun/lockrun/internal/testserver"
)

// store is one running server, how lockrun is told of it, and how the server's own rate is found out.
type store struct {
	name   string
	url    string
	proxy  *testserver.Proxy // in front of the server; used by the measures that look at the traffic
	open   backends.OpenFunc
	native replayer

	warmUp int // runs that are not measured
}

// jvmWarmUp is for servers that a JVM interprets at first: a run on Kafka took 15.1 ms after 10 others, and 12.2 to 13.0 after 500.
const jvmWarmUp = 500

// replayer repeats recorded requests with as little beside the server as can be had.
type replayer interface {
	// keepOn sends request i of n on connection i, again and again, for about span, and gives the requests a second.
	keepOn(requests [][]byte, span time.Duration) float64
	// atOnce sends some requests, one after the other, on each of n connections at one instant, and gives the time until
	// all are answered.
	atOnce(requests [][]byte, n int) time.Duration
	// busy is the time that the server has spent on scripts so far, or 0 where it does not tell.
	busy() time.Duration
	// find picks the requests that do the work out of what was recorded of one operation.
	find(recorded [][]byte) [][]byte
}

// open starts a server with what lockrun needs in it.
func open(s *stage, scheme string) *store {
	var st *store
	switch scheme {
	case "redis":
		r := testserver.StartRedis(s, testserver.RedisConfig{})
		st = &store{name: "Redis", url: r.URL(), proxy: testserver.StartProxy(s, r.Addr()), open: redis.Open, native: &redisReplay{s, r}}
	case "mysql":
		m := testserver.StartMariaDB(s, testserver.MariaDBConfig{Args: []string{"--max-connections=3000"}})
		st = &store{name: "MariaDB", url: m.URL(), proxy: testserver.StartProxy(s, m.Addr()), open: mysql.Open, native: &mysqlReplay{s, m}}
	case "zookeeper":
		z := testserver.StartZooKeeper(s, testserver.ZooKeeperConfig{})
		st = &store{name: "ZooKeeper", url: z.URL("/lockrun"), proxy: testserver.StartProxy(s, z.Addr()), open: zookeeper.Open, native: &zookeeperReplay{s, z}, warmUp: jvmWarmUp}
	case "kafka": // for measures of whole runs alone: no single request is an operation there
		k := testserver.StartKafka(s, testserver.KafkaConfig{})
		st = &store{name: "Kafka", url: k.URL("bench"), open: kafka.Open, warmUp: jvmWarmUp}
	default:
		s.Fatalf("no server is called %q", scheme)
	}
	b := st.backend(s, st.url)
	if i, ok := b.(backends.Initer); ok {
		must(i.Init(context.Background()))
	}
	return st
}

// backend opens the store as one process of lockrun would, but with more patience: a crowd on a busy machine is to be
// measured rather than given up.
func (st *store) backend(s *stage, raw string) backends.Backend {
	u, err := backends.ParseURL(raw)
	must(err)
	b, err := st.open(context.Background(), u, backends.Options{Timeout: time.Minute}.WithDefaults())
	must(err)
	s.Cleanup(func() { b.Close() })
	return b
}

// throughProxy is the store's URL with the proxy's address.
func (st *store) throughProxy() string {
	scheme, rest, _ := strings.Cut(st.url, "://")
	user, _, found := strings.Cut(rest, "@")
	if found {
		user += "@"
	} else {
		user = ""
	}
	path := ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		path = rest[i:]
	}
	return scheme + "://" + user + st.proxy.Addr() + path
}

// one is for operations that must not take more than one request.
func one(requests [][]byte) []byte {
	if len(requests) != 1 {
		must(fmt.Errorf("%d requests instead of one, %q: %w", len(requests), requests, errNoMeasure))
	}
	return requests[0]
}

// contender is one would-be holder with a connection of its own, as a process has.
type contender struct {
	backends.Backend
	key string
}

// contenders are n of them, connected, each with a key of its own or all with the same.
func (st *store) contenders(s *stage, n int, key func(i int) string) []*contender {
	all := make([]*contender, n)
	for i := range all {
		all[i] = &contender{st.backend(s, st.url), key(i)}
		_, err := all[i].Now(context.Background())
		must(err)
	}
	return all
}

// request asks for a lease as lockrun does.
func (c *contender) request() backends.Request {
	return backends.Request{Key: c.key, Owner: backends.NewOwner(), Holder: "bench", Host: "bench", PID: 1,
		TTL: 10 * time.Minute, Slots: 1, Last: true}
}

// cycle is a lease's whole life: acquire, renew, release. It gives the time that each took.
func (c *contender) cycle(ctx context.Context) (took [3]time.Duration, err error) {
	begin := time.Now()
	l, err := c.Acquire(ctx, c.request())
	if err != nil {
		return took, fmt.Errorf("acquire: %w", err)
	}
	acquired := time.Now()
	if err := l.Renew(ctx, 10*time.Minute); err != nil {
		return took, fmt.Errorf("renew: %w", err)
	}
	renewed := time.Now()
	if err := l.Release(ctx, succeeded()); err != nil {
		return took, fmt.Errorf("release: %w", err)
	}
	return [3]time.Duration{acquired.Sub(begin), renewed.Sub(acquired), time.Since(renewed)}, nil
}

func succeeded() backends.End {
	zero := 0
	return backends.End{Outcome: backends.Succeeded, ExitCode: &zero, Duration: time.Second}
}
