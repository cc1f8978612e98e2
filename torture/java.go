package main

import (
	"fmt"
	"strings"

	"github.com/lockrun/lockrun/internal/testserver"
)

// each are the faults of servers of which a majority is enough, one server at a time.
func each(n int, network func(int) *testserver.Proxy, process func(int) *testserver.Process) (all []fault) {
	for i := range n {
		for _, f := range append(faultsOf(network(i)), processFaults(process(i))...) {
			if n > 1 {
				f.name = fmt.Sprintf("one of %d: %s", n, f.name)
			}
			all = append(all, f)
		}
	}
	return all
}

// servers is how many there are of what decides by majority.
func (g *game) servers() int {
	if g.small {
		return 1
	}
	return 3
}

// kafkaArena is three brokers, or one in a small game. Clients reach each through a proxy.
func kafkaArena(t testserver.TB, g *game) *arena {
	c := testserver.StartKafkaCluster(t, g.servers(), testserver.KafkaConfig{Proxied: true})
	a := &arena{name: "kafka", url: c.URL("torture"), begunAnew: true}
	g.init(t, a.url)
	a.heal = func() {
		for _, n := range c.Nodes {
			n.Proxy.Heal()
			revive(n.Process)
		}
	}
	a.remove = (*blow).unlock
	a.faults = append(each(len(c.Nodes), func(i int) *testserver.Proxy { return c.Nodes[i].Proxy },
		func(i int) *testserver.Process { return c.Nodes[i].Process }), a.byHand())
	if len(c.Nodes) > 1 {
		a.faults = append(a.faults, fault{name: "leader moved", do: func(b *blow) {
			to := c.Nodes[b.r.IntN(len(c.Nodes))]
			c.InSync("torture", 0, len(c.Nodes))
			c.MoveLeader("torture", 0, to)
		}})
	}
	return a
}

// zookeeperArena is an ensemble of three, or one server in a small game.
func zookeeperArena(t testserver.TB, g *game) *arena {
	var servers []*testserver.ZooKeeper
	if n := g.servers(); n == 1 {
		servers = append(servers, testserver.StartZooKeeper(t, testserver.ZooKeeperConfig{}))
	} else {
		servers = testserver.StartEnsemble(t, n, testserver.ZooKeeperConfig{}).Servers
	}
	var proxies []*testserver.Proxy
	var hosts []string
	for _, z := range servers {
		p := testserver.StartProxy(t, z.Addr())
		proxies, hosts = append(proxies, p), append(hosts, p.Addr())
	}
	a := &arena{name: "zookeeper", url: "zookeeper://" + strings.Join(hosts, ",") + "/torture"}
	g.init(t, a.url)
	a.heal = func() {
		for i, z := range servers {
			proxies[i].Heal()
			revive(z.Process)
		}
	}
	a.remove = (*blow).unlock
	a.faults = append(each(len(servers), func(i int) *testserver.Proxy { return proxies[i] },
		func(i int) *testserver.Process { return servers[i].Process }), a.byHand())
	if len(servers) > 1 {
		a.faults = append(a.faults, fault{name: "leader killed", do: func(b *blow) {
			for _, z := range servers {
				if z.Mode() == "leader" {
					z.Kill()
					b.wait()
					z.Restart()
					return
				}
			}
		}})
	}
	return a
}

// firestoreArena is Google's emulator. It forgets all when it is killed.
func firestoreArena(t testserver.TB, g *game) *arena {
	f := testserver.StartFirestore(t)
	p := testserver.StartProxy(t, f.Addr())
	a := &arena{name: "firestore", url: strings.Replace(f.URL("torture"), f.Addr(), p.Addr(), 1), direct: f.URL("torture")}
	g.init(t, a.direct)
	a.heal = func() { p.Heal(); revive(f.Process) }
	a.remove = (*blow).unlock
	a.faults = append(faultsOf(p), processFaults(f.Process)[0], a.byHand(),
		fault{name: "server restarted without its data", forgets: true, do: func(b *blow) { f.Restart(); g.init(t, a.direct) }})
	return a
}
