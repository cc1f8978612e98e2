package main

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lockrun/lockrun/bench/measure"
	"github.com/lockrun/lockrun/internal/testserver"
)

// server is what peers rely on, and whether it is there.
type server struct {
	process interface {
		Freeze()
		Thaw()
	}
	err   error
	count func(s *stage) func() int // see operations
}

// servers are those that the peers need, one of each kind, shared by all that use it.
type servers struct {
	redis    *testserver.Redis
	maria    *testserver.MariaDB
	zk       *testserver.ZooKeeper
	etcd     *testserver.Etcd
	onRedis  *server
	onMaria  *server
	onZK     *server
	onEtcd   *server
	database string // MariaDB's
}

// start starts all that can be started here.
func start(s *stage) *servers {
	v := &servers{onRedis: &server{}, onMaria: &server{}, onZK: &server{}, onEtcd: &server{}, database: testserver.Database}
	v.onRedis.err = measure.Try(func() {
		v.redis = testserver.StartRedis(s, testserver.RedisConfig{})
		v.onRedis.process, v.onRedis.count = v.redis, v.redisCommands
	})
	v.onMaria.err = measure.Try(func() {
		v.maria = testserver.StartMariaDB(s, testserver.MariaDBConfig{Args: []string{"--max-connections=1000"}})
		v.maria.Exec("CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP(3) NULL, " +
			"locked_at TIMESTAMP(3) NULL, locked_by VARCHAR(255))")
		v.onMaria.process, v.onMaria.count = v.maria, v.mariaStatements
	})
	v.onZK.err = measure.Try(func() {
		v.zk = testserver.StartZooKeeper(s, testserver.ZooKeeperConfig{})
		v.onZK.process, v.onZK.count = v.zk, v.zkPackets
	})
	v.onEtcd.err = measure.Try(func() {
		v.etcd = testserver.StartEtcd(s)
		v.onEtcd.process, v.onEtcd.count = v.etcd, v.etcdMessages
	})
	return v
}

// running are the servers that are there.
func (v *servers) running() (all []*server) {
	for _, one := range []*server{v.onRedis, v.onMaria, v.onZK, v.onEtcd} {
		if one.err == nil {
			all = append(all, one)
		}
	}
	return all
}

// redisCommands counts what clients ask for; what scripts do inside counts with the script.
func (v *servers) redisCommands(*stage) func() int {
	m := v.redis.Monitor()
	return func() int { return len(m.Commands()) }
}

// since turns a server's running total into what is new since the last look, the look itself excepted.
func since(total func() int) func() int {
	total()
	before := total()
	look := total() - before
	before += look
	return func() int {
		now := total()
		n := now - before - look
		before = now
		return n
	}
}

// mariaStatements counts statements, among them the ones that begin and end a transaction.
func (v *servers) mariaStatements(*stage) func() int {
	return since(func() int {
		return whole(v.maria.Query("SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'QUESTIONS'"))
	})
}

// zkPackets counts requests, among them the ones that begin and end a session.
func (v *servers) zkPackets(*stage) func() int {
	return since(func() int {
		text, err := v.zk.Word("mntr")
		must(err)
		for line := range strings.Lines(text) {
			if n, ok := strings.CutPrefix(line, "zk_packets_received"); ok {
				return whole(n)
			}
		}
		must(fmt.Errorf("ZooKeeper does not tell of packets: %w", errNoMeasure))
		return 0
	})
}

// etcdMessages counts messages that clients send, also within streams.
func (v *servers) etcdMessages(*stage) func() int {
	client := http.Client{Timeout: 10 * time.Second}
	return since(func() (n int) {
		r, err := client.Get("http://" + v.etcd.Addr() + "/metrics")
		must(err)
		defer r.Body.Close()
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "grpc_server_msg_received_total{") {
				n += whole(lines.Text()[strings.LastIndexByte(lines.Text(), ' '):])
			}
		}
		must(lines.Err())
		return n
	})
}

// whole reads a whole number, however it is written.
func whole(text string) int {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	must(err)
	return int(n)
}
