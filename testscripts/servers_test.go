package testscripts

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/internal/rounds"
	"github.com/lockrun/lockrun/internal/testserver"
)

// password is every server's here. No output may contain it.
const password = "hunter2horse"

// outlast is the TTL of leases that have to outlast a failover, however busy the machine is.
const outlast = "60s"

func TestServersRedis(t *testing.T) {
	t.Parallel()
	r := testserver.StartRedis(t, testserver.RedisConfig{Password: password})
	f := redisFleet(t, r.URL(), r)
	f.peace()
	f.war()
}

func TestServersQuorum(t *testing.T) {
	t.Parallel()
	q := testserver.StartQuorum(t, 3, testserver.RedisConfig{Password: password})
	f := redisFleet(t, q.URL(), q.Servers...)
	f.peace()
	// FOV-03
	f.sub("one and another restart empty", func(h *host) {
		h.hold("restarted", 0, "--ttl", outlast, "--heartbeat", "100ms").survives(func() {
			q.Servers[0].RestartEmpty()
			replicated(h, "restarted", 3, q.Servers)
			q.Servers[1].RestartEmpty()
		})
	})
	f.sub("one is frozen", func(h *host) {
		q.Servers[1].Freeze()
		defer q.Servers[1].Thaw()
		h.lockrun(0, "--key", "majority", "--", "true").silent()
	})
	// Two of three are what counts.
	f.freeze, f.thaw = all(q.Servers[:2], (*testserver.Redis).Freeze), all(q.Servers[:2], (*testserver.Redis).Thaw)
	f.kill = all(q.Servers[1:], (*testserver.Redis).Kill)
	f.war()
}

func TestServersSentinel(t *testing.T) {
	t.Parallel()
	s := testserver.StartSentinels(t, testserver.SentinelConfig{Redis: testserver.RedisConfig{Password: password}})
	f := redisFleet(t, s.URL(), s.Servers...)
	thaw := f.thaw
	f.thaw = func() { thaw(); s.Master() }
	f.peace()
	// FOV-01
	f.sub("failover", func(h *host) {
		c := h.hold("switched", 0, "--ttl", outlast, "--heartbeat", "100ms")
		replicated(h, "switched", 3, s.Servers)
		c.survives(func() { s.Failover().Must("SCRIPT", "FLUSH") })
	})
	f.sub("master killed", func(h *host) {
		c := h.hold("bereft", 0, "--ttl", outlast, "--heartbeat", "100ms")
		replicated(h, "bereft", 3, s.Servers)
		c.survives(func() { old := s.Master(); old.Kill(); s.NewMaster(old) })
	})
	f.war()
	f.sub("sentinels frozen", func(h *host) {
		all(s.Sentinels, (*testserver.Redis).Freeze)()
		h.refused("nobody")
		h.interrupted()
	})
}

func TestServersCluster(t *testing.T) {
	t.Parallel()
	c := testserver.StartCluster(t, 3, true, testserver.RedisConfig{Password: password})
	f := redisFleet(t, c.URL(), c.Nodes...)
	thaw := f.thaw
	f.thaw = func() { thaw(); c.AwaitGood() }
	f.peace()
	// FOV-01
	f.sub("failover", func(h *host) {
		run := h.hold("switched", 0, "--ttl", outlast, "--heartbeat", "100ms")
		name := replicated(h, "switched", 2, c.Nodes)
		run.survives(func() { c.Failover(name).Must("SCRIPT", "FLUSH") })
	})
	f.sub("master killed", func(h *host) {
		run := h.hold("bereft", 0, "--ttl", outlast, "--heartbeat", "100ms")
		name := replicated(h, "bereft", 2, c.Nodes)
		run.survives(func() { old := c.MasterOf(name); old.Kill(); c.NewMasterOf(name, old); c.AwaitGood() })
	})
	f.war()
}

func TestServersMariaDB(t *testing.T) {
	t.Parallel()
	databaseFleet(t, testserver.StartMariaDB(t, testserver.MariaDBConfig{}))
}

// MySQL with all that it measures of itself, as it is by default.
func TestServersMySQL(t *testing.T) {
	t.Parallel()
	databaseFleet(t, testserver.StartMySQL(t, testserver.MySQL80, testserver.MariaDBConfig{Args: []string{"--performance-schema=ON"}}))
}

func databaseFleet(t *testing.T, m *testserver.MariaDB) {
	m.Exec("CREATE USER lockrun IDENTIFIED BY '" + password + "'")
	m.Exec("GRANT SELECT, INSERT, UPDATE, DELETE ON " + testserver.Database + ".* TO lockrun")
	f := &fleet{host: newHost(t, m.URLFor("lockrun", password), password), wrong: m.URLFor("lockrun", wrongPassword),
		forget: func(key string) { m.Exec("DELETE FROM lockrun WHERE job_name = ?", key) },
		freeze: m.Freeze, thaw: m.Thaw, kill: m.Kill}
	f.sub("no table", func(h *host) { h.refused("early", "lockrun init") })
	f.at(m.URL()).lockrun(0, "init")
	f.peace()
	f.sub("first runs in an empty database", func(h *host) {
		h.firstRuns(1, rounds.Of(6, 30), true, func(round string) string {
			m.Exec("CREATE DATABASE " + round)
			return strings.Replace(m.URL(), "/"+testserver.Database, "/"+round, 1)
		})
	})
	if rounds.Full() {
		for _, level := range []string{"READ UNCOMMITTED", "REPEATABLE READ", "SERIALIZABLE"} {
			m.Exec("SET GLOBAL TRANSACTION ISOLATION LEVEL " + level)
			f.sub("crowd at "+level, (*host).checkCrowd)
		}
	}
	// FOV-04
	f.sub("read-only for a while", func(h *host) {
		c := h.hold("readonly", 0, "--ttl", outlast, "--heartbeat", "100ms")
		c.survives(func() {
			m.Exec("SET GLOBAL read_only = ON")
			defer m.Exec("SET GLOBAL read_only = OFF")
			time.Sleep(2 * time.Second) // several beats are refused
		})
	})
	f.sub("read-only for good", func(h *host) {
		defer m.Exec("SET GLOBAL read_only = OFF")
		h.checkDeadInTime("readonly-for-good", func() { m.Exec("SET GLOBAL read_only = ON") })
		h.refused("readonly-start", "read-only")
	})
	f.sub("restart", func(h *host) {
		h.hold("restart", 0, "--ttl", outlast, "--heartbeat", "100ms").survives(m.Restart)
	})
	f.war()
}

// redisFleet is what the Redis topologies have in common.
func redisFleet(t *testing.T, backend string, servers ...*testserver.Redis) *fleet {
	return &fleet{
		host:   newHost(t, backend, password),
		wrong:  strings.Replace(backend, url.UserPassword("", password).String(), url.UserPassword("", wrongPassword).String(), 1),
		forget: func(key string) { forget(t, key, servers) },
		freeze: all(servers, (*testserver.Redis).Freeze),
		thaw:   all(servers, (*testserver.Redis).Thaw),
		kill:   all(servers, (*testserver.Redis).Kill),
	}
}

// all does the same to each server that runs.
func all(servers []*testserver.Redis, do func(*testserver.Redis)) func() {
	return func() {
		for _, r := range servers {
			if r.Running() {
				do(r)
			}
		}
	}
}

// leaseOf is the name of a key's lease on this server, "" where it has none, or does not answer: right after a failover the
// old master closes its connections more than once.
func leaseOf(r *testserver.Redis, key string) string {
	reply, _ := r.Do("KEYS", "*:lease:"+key)
	if names, _ := reply.([]any); len(names) == 1 {
		return names[0].(string)
	}
	return ""
}

// forget deletes a key's lease on all servers that let it be deleted, which replicas do not.
func forget(t *testing.T, key string, servers []*testserver.Redis) {
	t.Helper()
	deleted := 0
	for _, r := range servers {
		name := leaseOf(r, key)
		if name == "" {
			continue
		}
		var refused testserver.RedisError
		switch _, err := r.Do("DEL", name); {
		case err == nil:
			deleted++
		case !errors.As(err, &refused):
			t.Fatal(err)
		}
	}
	if deleted == 0 {
		t.Fatalf("no server has a lease of %s", key)
	}
}

// replicated waits until so many servers have a key's lease: what a failover loses of asynchronous replication is not
// what these tests are about, nor is a quorum that is lost before it is whole again. It returns the lease's name.
func replicated(h *host, key string, n int, servers []*testserver.Redis) (name string) {
	h.t.Helper()
	h.await("the servers have the lease", func() bool {
		have := 0
		for _, r := range servers {
			if found := leaseOf(r, key); found != "" {
				name = found
				have++
			}
		}
		return have >= n
	})
	return name
}
