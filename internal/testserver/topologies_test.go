package testserver

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	s := StartSentinels(t, SentinelConfig{Redis: RedisConfig{Password: "one"}, Password: "two"})
	old := s.Master()
	if old != s.Servers[0] {
		t.Errorf("the first master is %s", old.Addr())
	}
	old.Must("SET", "k", "v")
	old.Must("WAIT", "2", "5000")
	master := s.Failover()
	if master == old || master.Must("GET", "k") != "v" {
		t.Errorf("the new master %s has k = %v", master.Addr(), master.Must("GET", "k"))
	}
	master.Must("SET", "l", "w")
	if !strings.HasPrefix(s.URL(), "redis+sentinel://:one@127.0.0.1:") || !strings.HasSuffix(s.URL(), "/lk") {
		t.Errorf("URL = %s", s.URL())
	}
}

func TestSentinelReplacesAKilledMaster(t *testing.T) {
	t.Parallel()
	certs := NewCerts(t)
	s := StartSentinels(t, SentinelConfig{Redis: RedisConfig{TLS: certs, Mutual: true}, Replicas: 1})
	old := s.Master()
	old.Kill()
	master := s.NewMaster(old)
	master.Must("SET", "k", "v")
	old.Restart()
	await(t, "the old master following", func() error { return online(master, 1) })
	if got := s.Master(); got != master {
		t.Errorf("the returned server %s is the master again", got.Addr())
	}
}

func TestClusterFailover(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3, true, RedisConfig{Password: "one"})
	old := c.MasterOf("{k}1")
	if other := c.MasterOf("{k}2"); other != old {
		t.Error("one hash tag is served by two nodes")
	}
	old.Must("SET", "{k}1", "v")
	old.Must("WAIT", "1", "5000")
	master := c.Failover("{k}1")
	if got := master.Must("GET", "{k}1"); got != "v" {
		t.Errorf("after the failover the key is %v", got)
	}
	master.Kill()
	if next := c.NewMasterOf("{k}1", master); next != old {
		t.Errorf("%s took over from the killed %s, not its replica %s", next.Addr(), master.Addr(), old.Addr())
	}
	c.AwaitGood()
	old.Must("SET", "{k}1", "w")
}

func TestClusterWithoutReplicas(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3, false, RedisConfig{TLS: NewCerts(t)})
	served := map[*Redis]bool{}
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		served[c.MasterOf(key)] = true
	}
	if len(served) != 3 {
		t.Errorf("ten keys are served by %d of 3 nodes", len(served))
	}
	m := c.MasterOf("a")
	m.Kill()
	var refused RedisError
	other := c.Nodes[(slices.Index(c.Nodes, m)+1)%3]
	await(t, "the cluster noticing", func() error {
		if _, err := other.Do("GET", "b"); errors.As(err, &refused) && strings.HasPrefix(err.Error(), "CLUSTERDOWN") {
			return nil
		}
		return errors.New("it has not")
	})
	m.Restart()
	c.AwaitGood()
}

func TestQuorumAndMonitor(t *testing.T) {
	q := StartQuorum(t, 3, RedisConfig{})
	u, err := url.Parse(strings.Split(q.URL(), ",")[0])
	if err != nil || u.Scheme != "redis+quorum" || u.Host != q.Servers[0].Addr() {
		t.Errorf("URL = %s", q.URL())
	}
	m := q.Servers[0].Monitor()
	q.Servers[0].Must("EVAL", "return redis.call('SET', KEYS[1], ARGV[1])", "1", "k", "v w")
	q.Servers[1].Must("SET", "k", "other")
	got := m.Commands()
	if len(got) != 1 || !strings.HasPrefix(got[0], `"EVAL" `) {
		t.Errorf("the monitor saw %q", got)
	}
	if got = m.Commands(); len(got) != 0 {
		t.Errorf("the second time it saw %q", got)
	}
}
