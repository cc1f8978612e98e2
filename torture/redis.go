package main

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/lockrun/lockrun/internal/testserver"
)

// through is a store's URL with its servers replaced by the proxies in front of them.
func through(t testserver.TB, raw string, proxies ...*testserver.Proxy) string {
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatalf("%v", err)
	}
	var hosts []string
	for _, p := range proxies {
		hosts = append(hosts, p.Addr())
	}
	u.Host = strings.Join(hosts, ",")
	return u.String()
}

// redisArena is one server that writes all that it acknowledges to its disk.
func redisArena(t testserver.TB, g *game) *arena {
	r := testserver.StartRedis(t, testserver.RedisConfig{Persist: true})
	p := testserver.StartProxy(t, r.Addr())
	a := &arena{name: "redis", url: through(t, r.URL(), p), direct: r.URL()}
	a.heal = func() { p.Heal(); revive(r.Process) }
	a.remove = func(b *blow) { forgetKey(b.key, r) }
	a.faults = append(faultsOf(p), processFaults(r.Process)...)
	a.faults = append(a.faults, a.byHand(),
		fault{name: "server restarted without its data", forgets: true, do: func(b *blow) { r.RestartEmpty() }},
		fault{name: "scripts flushed", do: func(b *blow) { r.Must("SCRIPT", "FLUSH") }})
	return a
}

// forgetKey deletes the lease of a key, its token counter included.
func forgetKey(key string, servers ...*testserver.Redis) {
	for _, r := range servers {
		names, err := r.Do("KEYS", "*:lease:"+key)
		if err != nil {
			continue // a replica that is just being replaced
		}
		for _, name := range names.([]any) {
			_, _ = r.Do("DEL", fmt.Sprint(name))
		}
	}
}

// quorumArena is three servers, of which a majority decides. Whatever happens to one of them is to be noticed by nobody.
func quorumArena(t testserver.TB, g *game) *arena {
	q := testserver.StartQuorum(t, 3, testserver.RedisConfig{Persist: true})
	a := &arena{name: "redis-quorum"}
	var proxies []*testserver.Proxy
	for _, r := range q.Servers {
		p := testserver.StartProxy(t, r.Addr())
		proxies = append(proxies, p)
		for _, f := range append(faultsOf(p), processFaults(r.Process)...) {
			f.name = fmt.Sprintf("one of three: %s", f.name)
			a.faults = append(a.faults, f)
		}
	}
	a.url, a.direct = through(t, q.URL(), proxies...), q.URL()
	a.heal = func() {
		for i, r := range q.Servers {
			proxies[i].Heal()
			revive(r.Process)
		}
	}
	a.remove = func(b *blow) { forgetKey(b.key, q.Servers...) }
	a.faults = append(a.faults, a.byHand(), a.emptied(q), a.minority(q), a.fence(proxies))
	return a
}

// emptied is one server that loses its data, again and again but never two within the time in which holders write the
// first one's again. Done-marks are not written again, so they are lost where two servers in turn have been emptied.
func (a *arena) emptied(q *testserver.Quorum) fault {
	return fault{name: "one of three restarted without its data", marks: true, do: func(b *blow) {
		q.Servers[b.r.IntN(len(q.Servers))].RestartEmpty()
		b.g.rest(2 * b.g.ttls[len(b.g.ttls)-1])
	}}
}

// minority freezes two of three: nobody is granted anything then.
func (a *arena) minority(q *testserver.Quorum) fault {
	return fault{name: "two of three frozen", do: func(b *blow) {
		spared := b.r.IntN(len(q.Servers))
		for i, r := range q.Servers {
			if i != spared {
				r.Freeze()
				defer r.Thaw()
			}
		}
		b.wait()
	}}
}

// fence cuts off all of them in turns, so that some grants and renewals reach a part of them only.
func (a *arena) fence(proxies []*testserver.Proxy) fault {
	return fault{name: "each of three cut off in turns", do: func(b *blow) {
		for range 4 {
			p := proxies[b.r.IntN(len(proxies))]
			p.BlackHole()
			b.g.rest(b.length / 4)
			p.Heal()
			p.Reset()
		}
	}}
}

// sentinelArena is a master with two replicas. What a failover loses is what a master acknowledges before its replicas
// have it; so each is a time in which the store may forget.
func sentinelArena(t testserver.TB, g *game) *arena {
	s := testserver.StartSentinels(t, testserver.SentinelConfig{Redis: testserver.RedisConfig{Persist: true}})
	a := &arena{name: "redis-sentinel", url: s.URL(), direct: s.URL()}
	a.heal = func() {
		for _, r := range append(s.Servers, s.Sentinels...) {
			revive(r.Process)
		}
		s.Master()
	}
	a.remove = func(b *blow) { forgetKey(b.key, s.Master()) }
	a.faults = []fault{a.byHand(),
		{name: "failover", forgets: true, do: func(b *blow) { s.Failover() }},
		{name: "master killed", forgets: true, do: func(b *blow) {
			old := s.Master()
			old.Kill()
			s.Replaced(old) // or else it comes back as the master
			old.Restart()
			s.Master()
		}},
		{name: "master frozen until it is replaced", forgets: true, do: func(b *blow) {
			old := s.Master()
			old.Freeze()
			s.Replaced(old)
			old.Thaw()
			s.Master()
		}},
		{name: "master frozen for a moment", do: func(b *blow) {
			m := s.Master()
			m.Freeze()
			b.g.rest(b.length / 10)
			m.Thaw()
		}},
		{name: "a sentinel frozen", do: func(b *blow) {
			one := s.Sentinels[b.r.IntN(len(s.Sentinels))]
			one.Freeze()
			b.wait()
			one.Thaw()
		}},
	}
	return a
}

// revive starts a server that was killed and lets a frozen one go on.
func revive(p *testserver.Process) {
	if p.Running() {
		p.Thaw()
		return
	}
	p.Restart()
}
