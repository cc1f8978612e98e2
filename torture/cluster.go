package main

import "github.com/lockrun/lockrun/internal/testserver"

// clusterArena is three masters with a replica each. Like sentinels, it may lose what a master has acknowledged before its
// replica had it.
func clusterArena(t testserver.TB, g *game) *arena {
	c := testserver.StartCluster(t, 3, true, testserver.RedisConfig{Persist: true})
	a := &arena{name: "redis-cluster", url: c.URL(), direct: c.URL()}
	a.heal = func() {
		for _, r := range c.Nodes {
			revive(r.Process)
		}
		c.AwaitGood()
	}
	a.remove = func(b *blow) { forgetKey(b.key, c.Nodes...) }
	a.faults = []fault{a.byHand(),
		{name: "failover", forgets: true, do: func(b *blow) { c.Failover(b.key) }},
		{name: "master killed", forgets: true, do: func(b *blow) {
			old := c.MasterOf(b.key)
			old.Kill()
			c.NewMasterOf(b.key, old)
			old.Restart()
			c.AwaitGood()
		}},
		{name: "master frozen for a moment", do: func(b *blow) {
			m := c.MasterOf(b.key)
			m.Freeze()
			b.g.rest(b.length / 10)
			m.Thaw()
		}},
	}
	return a
}
