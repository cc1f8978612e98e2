package testserver

import (
	"errors"
	"fmt"
	"strconv"
)

// Cluster is a Redis Cluster whose nodes call each other failed after a second of silence.
type Cluster struct {
	Nodes  []*Redis // the masters at first, then the replica of each
	t      TB
	config RedisConfig
}

const slots = 16384

// StartCluster starts a cluster of so many masters and returns when every node calls it good. With replicas, each master
// has one.
func StartCluster(t TB, masters int, replicas bool, config RedisConfig) *Cluster {
	t.Helper()
	Need(t, "redis-server")
	c := &Cluster{t: t, config: config}
	n := masters
	if replicas {
		n *= 2
	}
	node := replicated(config, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0")
	for range n {
		c.Nodes = append(c.Nodes, StartRedis(t, node))
	}
	for i, r := range c.Nodes[:masters] {
		r.Must("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		r.Must(append([]string{"CLUSTER", "ADDSLOTS"}, share(i, masters)...)...)
	}
	for _, r := range c.Nodes[1:] {
		c.Nodes[0].Must("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(r.port))
	}
	await(t, "the nodes knowing each other", func() error { return c.each(n, "") })
	for i, r := range c.Nodes[masters:] {
		c.follow(r, c.Nodes[i])
	}
	c.AwaitGood()
	return c
}

// share is the slots of master i of n.
func share(i, n int) []string {
	var s []string
	for slot := i * slots / n; slot < (i+1)*slots/n; slot++ {
		s = append(s, strconv.Itoa(slot))
	}
	return s
}

// follow makes a node a replica. It first has to hear of its master by gossip.
func (c *Cluster) follow(replica, master *Redis) {
	c.t.Helper()
	id := fmt.Sprint(master.Must("CLUSTER", "MYID"))
	await(c.t, "CLUSTER REPLICATE", func() error {
		_, err := replica.Do("CLUSTER", "REPLICATE", id)
		return err
	})
	await(c.t, "replication", func() error { return online(master, 1) })
}

// each returns nil when every running node knows of n nodes and, where state is not "", calls the cluster so.
func (c *Cluster) each(n int, state string) error {
	for _, r := range c.Nodes {
		if !r.Running() {
			continue
		}
		reply, err := r.Do("CLUSTER", "INFO")
		if err != nil {
			return err
		}
		text, _ := reply.(string)
		info := fields(text)
		if info["cluster_known_nodes"] != strconv.Itoa(n) || state != "" && info["cluster_state"] != state {
			return fmt.Errorf("%s knows %s nodes of %d and calls the cluster %s", r.Addr(), info["cluster_known_nodes"], n, info["cluster_state"])
		}
	}
	return nil
}

// AwaitGood waits until every running node calls the cluster good.
func (c *Cluster) AwaitGood() {
	c.t.Helper()
	await(c.t, "the cluster being good", func() error { return c.each(len(c.Nodes), "ok") })
}

// URL is how lockrun is told of the cluster.
func (c *Cluster) URL() string { return c.config.url("redis+cluster", "", c.Nodes...) }

// MasterOf is the node that serves a key at this moment, hash tags included. It waits while there is none.
func (c *Cluster) MasterOf(key string) *Redis {
	c.t.Helper()
	return c.NewMasterOf(key, nil)
}

// NewMasterOf is MasterOf, but waits until it is another than old.
func (c *Cluster) NewMasterOf(key string, old *Redis) *Redis {
	c.t.Helper()
	var master *Redis
	await(c.t, "a master for "+strconv.Quote(key), func() (err error) {
		if master, _, err = c.serving(key); err == nil && master == old {
			err = errors.New("it is still the old one")
		}
		return err
	})
	return master
}

// serving finds the master of a key and its replicas, as the nodes that answer agree about them.
func (c *Cluster) serving(key string) (master *Redis, replicas []*Redis, err error) {
	for _, r := range c.Nodes {
		if !r.Running() {
			continue
		}
		m, reps, err := c.servingBy(r, key)
		if err != nil {
			return nil, nil, err
		}
		if master != nil && m != master {
			return nil, nil, errors.New("the nodes disagree")
		}
		master, replicas = m, reps
	}
	if master == nil || !master.Running() {
		return nil, nil, errors.New("no master is running")
	}
	return master, replicas, nil
}

// servingBy asks one node.
func (c *Cluster) servingBy(r *Redis, key string) (master *Redis, replicas []*Redis, err error) {
	slot, err := r.Do("CLUSTER", "KEYSLOT", key)
	if err != nil {
		return nil, nil, err
	}
	reply, err := r.Do("CLUSTER", "SLOTS")
	if err != nil {
		return nil, nil, err
	}
	ranges, _ := reply.([]any)
	for _, one := range ranges {
		a, _ := one.([]any)
		if len(a) < 3 || slot.(int64) < a[0].(int64) || slot.(int64) > a[1].(int64) {
			continue
		}
		for i, n := range a[2:] {
			node := byPort(c.Nodes, fmt.Sprint(n.([]any)[1]))
			if i == 0 {
				master = node
			} else {
				replicas = append(replicas, node)
			}
		}
	}
	if master == nil {
		return nil, nil, fmt.Errorf("%s knows no master for %q", r.Addr(), key)
	}
	return master, replicas, nil
}

// Failover puts the replica of a key's master in its place, and returns the new master when all nodes agree. The old one
// stays as a replica.
func (c *Cluster) Failover(key string) *Redis {
	c.t.Helper()
	old := c.MasterOf(key)
	await(c.t, "CLUSTER FAILOVER", func() error {
		_, replicas, err := c.serving(key)
		if err != nil {
			return err
		}
		if len(replicas) == 0 {
			return errors.New("its master has no replica")
		}
		_, err = replicas[0].Do("CLUSTER", "FAILOVER")
		return err
	})
	return c.NewMasterOf(key, old)
}
