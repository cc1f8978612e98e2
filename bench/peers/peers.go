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
	"github.com/lockrun/lockrun/bench/measure"
)

// limit is for a single command; only what hangs reaches it.
const limit = time.Minute

// peer is one way of keeping a job from running twice.
type peer struct {
	name   string
	guard  func(key string, job ...string) []string // command line that runs job if it is free
	wait   func(key string, job ...string) []string // the same, waiting for the lock; nil: it cannot wait
	server *server                                  // what it relies on; nil: this machine's kernel

	// open is a lease of the package itself, as a program that calls it would take it; nil for what is no library.
	open func(*measure.Stage) backends.Backend
	// jvm is what goes before ops and handover on the command line of a JVM library; nil for others.
	jvm []string

	err      error // why it is not measured, or how it last failed
	failures int
}

// slow tells what takes a JVM to start.
func (p *peer) slow() bool { return p.jvm != nil }

// library tells what a program can call without starting a process.
func (p *peer) library() bool { return p.jvm != nil || p.open != nil }

// peers are all of them, lockrun's own backends first. Those that cannot be measured have an error.
func (b *bench) peers(s *stage, v *servers) []*peer {
	var all []*peer
	add := func(name string, server *server, build func(*peer)) {
		p := &peer{name: name, server: server}
		if server != nil {
			p.err = server.err
		}
		if p.err == nil {
			p.err = measure.Try(func() { build(p) })
		}
		all = append(all, p)
	}
	add("lockrun, SQLite", nil, func(p *peer) { b.ours(p, "sqlite://"+filepath.Join(s.dir, "store.db"), sqlite.Open) })
	add("lockrun, Redis", v.onRedis, func(p *peer) { b.ours(p, v.redis.URL(), redis.Open) })
	add("lockrun, MariaDB", v.onMaria, func(p *peer) { b.ours(p, v.maria.URL(), mysql.Open) })
	add("lockrun, ZooKeeper", v.onZK, func(p *peer) { b.ours(p, v.zk.URL("/lockrun"), zookeeper.Open) })
	add("flock", nil, func(p *peer) { flock(p, s.dir) })
	add("etcdctl lock", v.onEtcd, func(p *peer) { b.etcdctl(p, v.etcd.Addr()) })
	add("SET NX in a shell", v.onRedis, func(p *peer) { b.shell(p, s.dir, v.redis.Port()) })
	add("Redisson"+b.jvm.version("redisson"), v.onRedis, func(p *peer) { b.java(p, "redisson", v.redis.Addr()) })
	add("ShedLock"+b.jvm.version("shedlock-core")+", JDBC", v.onMaria, func(p *peer) {
		b.java(p, "shedlock", v.maria.Addr()+"/"+v.database+"?user=root")
		p.wait = nil
	})
	add("Curator"+b.jvm.version("curator-recipes"), v.onZK, func(p *peer) { b.java(p, "curator", v.zk.Addr()) })
	return all
}

// ours is one of lockrun's backends.
func (b *bench) ours(p *peer, url string, open backends.OpenFunc) {
	run(b.lockrun, "init", "--backend", url)
	with := func(key string, more ...string) []string {
		return append([]string{b.lockrun, "--backend", url, "--key", key, "--ttl", b.ttl.String()}, more...)
	}
	p.guard = func(key string, job ...string) []string { return with(key, append([]string{"--"}, job...)...) }
	p.wait = func(key string, job ...string) []string {
		return with(key, append([]string{"--wait", "60s", "--"}, job...)...)
	}
	p.open = func(s *measure.Stage) backends.Backend {
		u, err := backends.ParseURL(url)
		must(err)
		store, err := open(context.Background(), u, backends.Options{Timeout: limit}.WithDefaults())
		must(err)
		s.Cleanup(func() { store.Close() })
		return store
	}
}

// java is one of the JVM's libraries.
func (b *bench) java(p *peer, library, address string) {
	must(b.jvm.err)
	p.jvm = append(append([]string{}, b.jvm.prefix...), library, address, strconv.FormatInt(b.ttl.Milliseconds(), 10))
	mode := func(mode string) func(string, ...string) []string {
		return func(key string, job ...string) []string {
			return append(append(append([]string{}, p.jvm...), mode, key), job...)
		}
	}
	p.guard, p.wait = mode("run"), mode("wait")
}

// flock locks a file a key.
func flock(p *peer, dir string) {
	flock := program("flock")
	file := func(key string) string { return filepath.Join(dir, key+".lock") }
	p.guard = func(key string, job ...string) []string { return append([]string{flock, "-n", file(key)}, job...) }
	p.wait = func(key string, job ...string) []string { return append([]string{flock, file(key)}, job...) }
}

// etcdctl always waits.
func (b *bench) etcdctl(p *peer, address string) {
	etcdctl := program("etcdctl")
	p.guard = func(key string, job ...string) []string {
		return append([]string{"/usr/bin/env", "ETCDCTL_API=3", etcdctl, "--endpoints=" + address, "lock",
			fmt.Sprintf("--ttl=%d", int(b.ttl.Seconds())), key, "--"}, job...)
	}
	p.wait = p.guard
}

// setNX is what is found in many crontabs: SET NX with an expiry, a token, and a compare at the end. It renews nothing.
const setNX = `#!/bin/sh
key=$1 token=$$-$(od -An -N8 -tx8 /dev/urandom); shift
[ "$(redis-cli -p PORT set "$key" "$token" NX PX TTL)" = OK ] || exit 75
"$@"; code=$?
redis-cli -p PORT eval "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end" 1 "$key" "$token" >/dev/null
exit $code
`

// shell writes the script.
func (b *bench) shell(p *peer, dir string, port int) {
	program("redis-cli")
	script := filepath.Join(dir, "setnx")
	text := strings.NewReplacer("PORT", strconv.Itoa(port), "TTL", strconv.FormatInt(b.ttl.Milliseconds(), 10)).Replace(setNX)
	must(os.WriteFile(script, []byte(text), 0o755))
	// Its keys are strings, and Redisson's on the same server are none.
	p.guard = func(key string, job ...string) []string { return append([]string{script, "nx-" + key}, job...) }
}
