package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/mysql"
	"github.com/lockrun/lockrun/backends/redis"
	"github.com/lockrun/lockrun/backends/sqlite"
	"github.com/lockrun/lockrun/backends/zookeeper"
	"github.com/lockrun/lockrun/internal/testserver"
)

// peer is one way of keeping a job from running twice.
type peer struct {
	name   string
	guard  func(key string, job ...string) []string // command line that runs job if it is free
	wait   func(key string, job ...string) []string // the same, waiting for the lock; nil: it cannot wait
	server interface{ Freeze() }                    // what it relies on; nil: this machine's kernel

	// open is a lease of the package itself, as a program that calls it would take it; nil for what is no library.
	open func() backends.Backend
	// jvm is what goes before ops and handover on the command line of a JVM library; nil for others.
	jvm []string
}

// slow tells what takes a JVM to start.
func (p *peer) slow() bool { return p.jvm != nil }

// servers are those that the peers need, one of each kind, shared by all that use it.
type servers struct {
	redis *testserver.Redis
	maria *testserver.MariaDB
	zk    *testserver.ZooKeeper
	etcd  *testserver.Etcd
}

func start(s *stage) *servers {
	v := &servers{
		redis: testserver.StartRedis(s, testserver.RedisConfig{}),
		maria: testserver.StartMariaDB(s, testserver.MariaDBConfig{Args: []string{"--max-connections=1000"}}),
		zk:    testserver.StartZooKeeper(s, testserver.ZooKeeperConfig{}),
		etcd:  testserver.StartEtcd(s),
	}
	v.maria.Exec("CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP(3) NULL, " +
		"locked_at TIMESTAMP(3) NULL, locked_by VARCHAR(255))")
	return v
}

// peers are all of them, lockrun's own backends first.
func (b *bench) peers(s *stage, v *servers) []*peer {
	all := b.ours(s, v)
	all = append(all, b.shells(s, v)...)
	jvm := s.jvm()
	ttl := strconv.FormatInt(b.ttl.Milliseconds(), 10)
	_, database, _ := strings.Cut(v.maria.URL(), "/"+"/")
	database = database[strings.IndexByte(database, '/')+1:]
	for _, l := range []struct {
		title, name, address string
		server               interface{ Freeze() }
	}{
		{"Redisson", "redisson", v.redis.Addr(), v.redis},
		{"ShedLock, JDBC", "shedlock", v.maria.Addr() + "/" + database + "?user=root", v.maria},
		{"Curator InterProcessMutex", "curator", v.zk.Addr(), v.zk},
	} {
		prefix := append(append([]string{}, jvm...), l.name, l.address, ttl)
		all = append(all, &peer{name: l.title, server: l.server, jvm: prefix, guard: func(key string, job ...string) []string {
			return append(append(append([]string{}, prefix...), "run", key), job...)
		}})
	}
	return all
}

// ours are lockrun's backends.
func (b *bench) ours(s *stage, v *servers) []*peer {
	var all []*peer
	for _, o := range []struct {
		name, url string
		open      backends.OpenFunc
		server    interface{ Freeze() }
	}{
		{"lockrun, SQLite", "sqlite://" + filepath.Join(s.dir, "store.db"), sqlite.Open, nil},
		{"lockrun, Redis", v.redis.URL(), redis.Open, v.redis},
		{"lockrun, MariaDB", v.maria.URL(), mysql.Open, v.maria},
		{"lockrun, ZooKeeper", v.zk.URL("/lockrun"), zookeeper.Open, v.zk},
	} {
		run(b.lockrun, "init", "--backend", o.url)
		with := func(key string, more ...string) []string {
			return append([]string{b.lockrun, "--backend", o.url, "--key", key, "--ttl", b.ttl.String()}, more...)
		}
		all = append(all, &peer{
			name: o.name, server: o.server,
			guard: func(key string, job ...string) []string { return with(key, append([]string{"--"}, job...)...) },
			wait: func(key string, job ...string) []string {
				return with(key, append([]string{"--wait", "60s", "--"}, job...)...)
			},
			open: func() backends.Backend { return open(s, o.url, o.open) },
		})
	}
	return all
}

// open opens a backend as one host has it.
func open(s *stage, raw string, f backends.OpenFunc) backends.Backend {
	u, err := backends.ParseURL(raw)
	must(err)
	b, err := f(context.Background(), u, backends.Options{Timeout: time.Minute}.WithDefaults())
	must(err)
	s.Cleanup(func() { b.Close() })
	return b
}

// setNX is what is found in many crontabs: SET NX with an expiry, a token, and a compare at the end. It renews nothing.
const setNX = `#!/bin/sh
key=$1 token=$$-$(od -An -N8 -tx8 /dev/urandom); shift
[ "$(redis-cli -p PORT set "$key" "$token" NX PX TTL)" = OK ] || exit 75
"$@"; code=$?
redis-cli -p PORT eval "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end" 1 "$key" "$token" >/dev/null
exit $code
`

// shells are the programs that a shell script would use.
func (b *bench) shells(s *stage, v *servers) []*peer {
	flock, etcdctl, script := program("flock"), program("etcdctl"), filepath.Join(s.dir, "setnx")
	_, port, _ := strings.Cut(v.redis.Addr(), ":")
	text := strings.NewReplacer("PORT", port, "TTL", strconv.FormatInt(b.ttl.Milliseconds(), 10)).Replace(setNX)
	must(os.WriteFile(script, []byte(text), 0o755))
	etcd := func(key string, job ...string) []string {
		return append([]string{"/usr/bin/env", "ETCDCTL_API=3", etcdctl, "--endpoints=" + v.etcd.Addr(), "lock",
			fmt.Sprintf("--ttl=%d", int(b.ttl.Seconds())), key, "--"}, job...)
	}
	file := func(key string) string { return filepath.Join(s.dir, key+".lock") }
	return []*peer{
		{
			name:  "flock",
			guard: func(key string, job ...string) []string { return append([]string{flock, "-n", file(key)}, job...) },
			wait:  func(key string, job ...string) []string { return append([]string{flock, file(key)}, job...) },
		},
		{name: "etcdctl lock", guard: etcd, server: v.etcd}, // its job gets no stdin, by which a handover is measured
		{
			name: "SET NX in a shell", server: v.redis,
			guard: func(key string, job ...string) []string { return append([]string{script, key}, job...) },
		},
	}
}
